// SPDX-License-Identifier: Apache-2.0
//
// Random rulesets of the model through both real backends, and a random change of each: both
// take it, and then everybody who can be asked says the same (two_backends.h).
#include <cstdio>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "netlink/transaction.h"
#include "tests/fuzz/random_rules.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/two_backends.h"
#include "tests/support/netns.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

constexpr size_t kMostRules = 40;
constexpr size_t kMostChanges = 12;

// In a namespace of this process' own, for all its life: opening costs more than emptying.
TwoBackends& Both() {
  static const std::unique_ptr<TwoBackends> both = [] {
    KIPT_REQUIRE(Netns::MoveToNew().ok());
    absl::StatusOr<std::unique_ptr<TwoBackends>> opened = TwoBackends::Open();
    KIPT_REQUIRE(opened.ok());
    return *std::move(opened);
  }();
  return *both;
}

std::vector<Operation> RandomRuleset(Choices& choices) {
  std::set<ChainId> chains;
  std::vector<Operation> rules;
  while (!choices.done() && rules.size() < kMostRules) {
    const ChainId chain = RandomChain(choices);
    chains.insert(chain);
    for (const ChainId& target : JumpTargets(chain)) chains.insert(target);
    for (size_t count = choices.Below(4); count > 0; --count) {
      rules.emplace_back(AddRule{.chain = chain, .rule = RandomRule(chain, choices)});
    }
    if (choices.Below(8) == 0) break;
  }
  std::vector<Operation> operations;
  for (const ChainId& chain : chains) operations.emplace_back(CreateChain{chain});
  operations.insert(operations.end(), rules.begin(), rules.end());
  return operations;
}

// Chains of the model that nothing stands in and nothing jumps to, and that `operations` does not
// touch.
std::set<ChainId> Removable(const Snapshot& model, const std::vector<Operation>& operations) {
  std::set<ChainId> removable;
  for (const auto& [id, chain] : model.chains) {
    if (!IsBaseChain(id) && chain.rules.empty()) removable.insert(id);
  }
  const auto keep = [&](const ChainId& chain, const ObservedRule& rule) {
    removable.erase(chain);
    const std::string* jump = JumpTarget(rule);
    if (jump != nullptr) removable.erase({chain.family, chain.table, *jump});
  };
  for (const auto& [id, chain] : model.chains) {
    for (const ObservedRule& rule : chain.rules) keep(id, rule);
  }
  for (const Operation& operation : operations) {
    const auto* add = std::get_if<AddRule>(&operation);
    if (add != nullptr) keep(add->chain, {.content = add->rule});
  }
  return removable;
}

// Rules taken away, put before others and behind them, chains made and removed.
std::vector<Operation> RandomChange(const Snapshot& model, Choices& choices) {
  std::set<ChainId> made;
  std::vector<Operation> changes;
  std::set<RuleHandle> taken;
  for (size_t count = choices.Below(kMostChanges) + 1; count > 0; --count) {
    auto chain = model.chains.begin();
    std::advance(chain, static_cast<ptrdiff_t>(choices.Below(model.chains.size())));
    const auto& [id, content] = *chain;
    const size_t place = choices.Below(content.rules.size());
    // The number is corrected by the backend that goes by numbers (restore_plan.cc).
    const int number = static_cast<int>(place) + 1;
    const ObservedRule* stands = content.rules.empty() ? nullptr : &content.rules[place];
    if (stands != nullptr && taken.count(stands->handle) != 0) stands = nullptr;
    if (choices.Flag() && stands != nullptr) {
      changes.emplace_back(DeleteRule{id, stands->handle, number, *stands->rule()});
      taken.insert(stands->handle);
      continue;
    }
    for (const ChainId& target : JumpTargets(id)) made.insert(target);
    AddRule add{.chain = id, .rule = RandomRule(id, choices)};
    if (stands != nullptr) add.before = stands->handle;
    if (stands != nullptr) add.number = number;
    changes.emplace_back(add);
  }
  std::vector<Operation> all;
  for (const ChainId& chain : made) all.emplace_back(CreateChain{chain});
  all.insert(all.end(), changes.begin(), changes.end());
  for (const ChainId& chain : Removable(model, changes)) {
    if (made.count(chain) == 0 && choices.Flag()) all.emplace_back(DeleteChain{chain});
  }
  return all;
}

void ApplyAndCompare(const std::vector<Operation>& operations) {
  const absl::Status status = Both().Apply(operations);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  KIPT_REQUIRE(status.ok());
  const absl::StatusOr<std::string> disagreement = Both().Disagreement();
  KIPT_REQUIRE(disagreement.ok());
  if (!disagreement->empty()) std::fprintf(stderr, "%s\n", disagreement->c_str());
  KIPT_REQUIRE(disagreement->empty());
}

}  // namespace

void FuzzBackends(FuzzBytes input) {
  Choices choices(input);
  KIPT_REQUIRE(Both().Flush().ok());
  const std::vector<Operation> ruleset = RandomRuleset(choices);
  if (ruleset.empty()) return;
  ApplyAndCompare(ruleset);
  if (choices.done()) return;
  ApplyAndCompare(RandomChange(Both().model(), choices));
}

}  // namespace kipt::testing
