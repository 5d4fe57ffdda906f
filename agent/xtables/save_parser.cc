// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/save_parser.h"

#include <optional>
#include <string>
#include <utility>

#include "agent/xtables/save_reader.h"
#include "agent/xtables/save_rule.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::Table;

using Chains = std::map<ChainId, ObservedChain>;

std::optional<Table> FindTable(absl::string_view name) {
  for (const Table table : netlink::kTables) {
    if (name == netlink::TableName(table)) return table;
  }
  return std::nullopt;
}

class ChainCollector : public SaveVisitor {
 public:
  explicit ChainCollector(Family family) : family_(family) {}

  void BeginTable(absl::string_view name) override {
    table_ = FindTable(name);
    last_ = nullptr;
  }

  void DeclareChain(absl::string_view name, absl::string_view policy) override {
    if (table_) chains_[Id(name)].hooked = policy != "-";
  }

  void AddRule(const SavedRule& rule, const SavedChains& chains) override {
    if (!table_) return;
    if (last_ == nullptr || rule.chain != last_name_) {
      last_name_ = rule.chain;
      last_ = &chains_.at(Id(rule.chain));
    }
    last_->rules.push_back(
        ObservedRule{.handle = last_->rules.size() + 1,
                     .content = ParseSavedRule(family_, chains, rule.text, rule.words),
                     .counters = rule.counters});
  }

  Chains Take() { return std::move(chains_); }

 private:
  ChainId Id(absl::string_view name) const {
    return {.family = family_, .table = *table_, .name = std::string(name)};
  }

  Family family_;
  Chains chains_;
  std::optional<Table> table_;  // none: one that is skipped
  // The last rule's chain: the next one's too, as a rule.
  absl::string_view last_name_;
  ObservedChain* last_ = nullptr;
};

}  // namespace

absl::StatusOr<Chains> ParseSave(Family family, absl::string_view text) {
  ChainCollector collector(family);
  if (absl::Status status = ReadSave(text, SavedTables::kOnce, collector); !status.ok()) {
    return status;
  }
  return collector.Take();
}

}  // namespace kipt::agent
