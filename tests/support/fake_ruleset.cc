// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/batch.h"
#include "netlink/kernel_error.h"
#include "netlink/ruleset.h"
#include "tests/support/fake_backend.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

constexpr size_t kMaxName = 255;
constexpr size_t kMaxComment = 255;

ChainId Sibling(const ChainId& chain, const std::string& name) {
  return ChainId{.family = chain.family, .table = chain.table, .name = name};
}

auto FindRule(ObservedChain& chain, RuleHandle handle) {
  return std::find_if(chain.rules.begin(), chain.rules.end(),
                      [&](const ObservedRule& rule) { return rule.handle == handle; });
}

// The xtables extensions that nf_tables needs for the rule, in the order in which it meets them.
std::vector<std::string> XtExtensions(const netlink::Rule& rule) {
  std::vector<std::string> extensions;
  if (!rule.comment.empty()) extensions.emplace_back("comment");
  if (rule.mark) extensions.emplace_back("mark");
  if (rule.ct_state) extensions.emplace_back("conntrack");
  if (rule.conn_label) extensions.emplace_back("connlabel");
  if (std::holds_alternative<netlink::SetMark>(rule.target)) extensions.emplace_back("MARK");
  if (std::holds_alternative<Masquerade>(rule.target)) extensions.emplace_back("MASQUERADE");
  return extensions;
}

// Whether nf_tables would be sent `operation`.
absl::Status Check(const netlink::Operation& operation) {
  const netlink::Transaction transaction = {.operations = {operation}};
  return netlink::Batch::Build(transaction, /*first_sequence=*/0).status();
}

// Applies one operation to a copy of the state.
class Applier {
 public:
  explicit Applier(FakeRuleset& ruleset) : ruleset_(ruleset), state_(ruleset.snapshot) {}

  bool changed() const { return changed_; }

  absl::Status operator()(const PutNativeTable& put) {
    // Refused before it is sent.
    if (absl::Status status = Check(put); !status.ok()) return status;
    ruleset_.native[{put.table.family, put.table.name}] = {.table = put.table};
    changed_ = true;
    return absl::OkStatus();
  }

  absl::Status operator()(const DeleteNativeTable& table) {
    if (absl::Status status = Check(table); !status.ok()) return status;
    if (ruleset_.native.erase({table.family, table.name}) == 0) {
      return absl::NotFoundError(absl::StrCat("deleting the table ", FamilyName(table.family), " ",
                                              table.name, ": there is none"));
    }
    changed_ = true;
    return absl::OkStatus();
  }

  absl::Status operator()(const CreateChain& create) {
    const auto found = state_.chains.find(create.chain);
    if (found == state_.chains.end()) {
      state_.chains[create.chain].hooked = IsBaseChain(create.chain);
      changed_ = true;
      return absl::OkStatus();
    }
    if (IsBaseChain(create.chain) && !found->second.hooked) {
      return absl::FailedPreconditionError("the chain exists without its hook");
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const AddRule& add) {
    ObservedChain* chain = Find(add.chain);
    if (chain == nullptr) return absl::NotFoundError("there is no such chain");
    if (absl::Status status = CheckRule(add); !status.ok()) return status;
    auto place = chain->rules.end();
    if (add.before) {
      place = FindRule(*chain, *add.before);
      if (place == chain->rules.end()) {
        return absl::NotFoundError("there is no rule of that handle in the chain");
      }
    }
    chain->rules.insert(place, ObservedRule{.handle = ruleset_.next_handle++, .content = add.rule});
    changed_ = true;
    const Jump* jump = std::get_if<Jump>(&add.rule.target);
    if (jump != nullptr && Reaches(Sibling(add.chain, jump->chain), add.chain)) {
      return absl::FailedPreconditionError("chains would jump in a circle");
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const DeleteRule& remove) {
    ObservedChain* chain = Find(remove.chain);
    if (chain == nullptr) return absl::NotFoundError("there is no such chain");
    const auto rule = FindRule(*chain, remove.handle);
    if (rule == chain->rules.end()) {
      return absl::NotFoundError("there is no rule of that handle in the chain");
    }
    chain->rules.erase(rule);
    changed_ = true;
    return absl::OkStatus();
  }

  absl::Status operator()(const DeleteChain& remove) {
    if (IsBaseChain(remove.chain)) {
      return absl::InvalidArgumentError("a base chain is not deleted");
    }
    const ObservedChain* chain = Find(remove.chain);
    if (chain == nullptr) return absl::NotFoundError("there is no such chain");
    if (!chain->rules.empty()) return absl::FailedPreconditionError("the chain is not empty");
    if (IsJumpedTo(remove.chain)) {
      absl::Status status = absl::FailedPreconditionError("rules jump to the chain");
      netlink::SetChainInUse(status, remove.chain);
      return status;
    }
    state_.chains.erase(remove.chain);
    changed_ = true;
    return absl::OkStatus();
  }

  absl::Status operator()(const netlink::WakeTable& wake) {
    changed_ |= state_.dormant.erase({wake.chain.family, wake.chain.table}) != 0;
    return absl::OkStatus();
  }

 private:
  ObservedChain* Find(const ChainId& chain) {
    const auto found = state_.chains.find(chain);
    return found != state_.chains.end() ? &found->second : nullptr;
  }

  absl::Status CheckRule(const AddRule& add) {
    if (add.rule.comment.size() > kMaxComment) {
      return absl::InvalidArgumentError("the comment is too long");
    }
    if (absl::Status status = netlink::CheckConnLabel(add.rule); !status.ok()) return status;
    if (std::holds_alternative<Masquerade>(add.rule.target) &&
        add.chain.table != netlink::Table::kNat) {
      return absl::InvalidArgumentError("MASQUERADE is for nat POSTROUTING only");
    }
    for (const std::string& extension : XtExtensions(add.rule)) {
      if (ruleset_.has_xt && ruleset_.missing_extensions.count(extension) == 0) continue;
      absl::Status status = absl::NotFoundError(absl::StrCat("no xtables ", extension));
      netlink::SetMissingExtension(status, extension);
      return status;
    }
    const Jump* jump = std::get_if<Jump>(&add.rule.target);
    if (jump == nullptr) return absl::OkStatus();
    const ObservedChain* target = Find(Sibling(add.chain, jump->chain));
    if (target == nullptr) {
      return absl::NotFoundError(absl::StrCat("there is no chain ", jump->chain, " to jump to"));
    }
    // A plain chain of a base chain's name is a chain like any other.
    if (target->hooked) return absl::FailedPreconditionError("a jump to a base chain");
    return absl::OkStatus();
  }

  bool IsJumpedTo(const ChainId& chain) const {
    for (const auto& [id, content] : state_.chains) {
      if (id.family != chain.family || id.table != chain.table) continue;
      for (const ObservedRule& rule : content.rules) {
        const std::string* target = JumpTarget(rule);
        if (target != nullptr && *target == chain.name) return true;
      }
    }
    return false;
  }

  // Whether a packet in `from` can come to `to` by jumps.
  bool Reaches(const ChainId& from, const ChainId& to) const {
    std::set<ChainId> seen;
    std::vector<ChainId> open = {from};
    while (!open.empty()) {
      const ChainId next = open.back();
      open.pop_back();
      if (next == to) return true;
      const ObservedChain* chain = state_.Find(next);
      if (chain == nullptr || !seen.insert(next).second) continue;
      for (const ObservedRule& rule : chain->rules) {
        if (const std::string* target = JumpTarget(rule)) open.push_back(Sibling(next, *target));
      }
    }
    return false;
  }

  FakeRuleset& ruleset_;
  Snapshot& state_;
  bool changed_ = false;
};

absl::Status Explain(const Operation& operation, const absl::Status& why) {
  if (IsNative(operation)) return why;
  absl::Status status(why.code(), absl::StrCat(ToString(ChainOf(operation)), ": ",
                                               ToString(operation), ": ", why.message()));
  if (const std::optional<std::string> extension = netlink::MissingExtension(why)) {
    netlink::SetMissingExtension(status, *extension);
  }
  return status;
}

absl::Status CheckName(const Operation& operation) {
  const std::string name = ChainOf(operation).name;
  if (IsNative(operation)) return absl::OkStatus();
  if (!name.empty() && name.size() <= kMaxName) return absl::OkStatus();
  return Explain(operation, absl::InvalidArgumentError("a chain's name has 1 to 255 bytes"));
}

}  // namespace

bool IsXt(const netlink::ObservedRule& rule) {
  return rule.rule() != nullptr && !XtExtensions(*rule.rule()).empty();
}

absl::Status ApplyTransaction(const Transaction& transaction, FakeRuleset& ruleset) {
  for (const Operation& operation : transaction.operations) {
    if (absl::Status status = CheckName(operation); !status.ok()) return status;
  }
  if (transaction.generation != ruleset.snapshot.generation) {
    return absl::AbortedError("the ruleset has changed since it was read");
  }
  Applier applier(ruleset);
  for (const Operation& operation : transaction.operations) {
    if (absl::Status status = std::visit(applier, operation); !status.ok()) {
      return Explain(operation, status);
    }
  }
  if (applier.changed()) ++ruleset.snapshot.generation;
  return absl::OkStatus();
}

}  // namespace kipt::testing
