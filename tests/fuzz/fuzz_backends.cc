// SPDX-License-Identifier: Apache-2.0
//
// Random rulesets of the model through both real backends, and a random change of each: both
// take it, and then everybody who can be asked says the same (two_backends.h).
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "netlink/ruleset.h"
#include "tests/fuzz/random_rules.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/two_backends.h"
#include "tests/support/netns.h"

namespace kipt::testing {
namespace {

using netlink::ChainId;
using netlink::Rule;

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

std::vector<Edit> RandomRuleset(Choices& choices) {
  std::set<ChainId> chains;
  std::vector<Edit> rules;
  while (!choices.done() && rules.size() < kMostRules) {
    const ChainId chain = RandomChain(choices);
    chains.insert(chain);
    for (const ChainId& target : JumpTargets(chain)) chains.insert(target);
    for (size_t count = choices.Below(4); count > 0; --count) {
      rules.push_back(PutRule{.chain = chain, .rule = RandomRule(chain, choices)});
    }
    if (choices.Below(8) == 0) break;
  }
  std::vector<Edit> edits;
  for (const ChainId& chain : chains) edits.push_back(MakeChain{chain});
  edits.insert(edits.end(), rules.begin(), rules.end());
  return edits;
}

// Chains of the model that nothing stands in and nothing jumps to, and that `edits` does not touch.
std::vector<ChainId> Removable(const ModelRuleset& model, const std::vector<Edit>& edits) {
  std::set<ChainId> candidates;
  for (const auto& [chain, rules] : model) {
    const bool user = netlink::FindBaseChain(chain.table, chain.name) == nullptr;
    if (user && rules.empty()) candidates.insert(chain);
  }
  const auto keep = [&](const ChainId& chain, const Rule& rule) {
    candidates.erase(chain);
    const auto* jump = std::get_if<netlink::Jump>(&rule.target);
    if (jump != nullptr) candidates.erase({chain.family, chain.table, jump->chain});
  };
  for (const auto& [chain, rules] : model) {
    for (const Rule& rule : rules) keep(chain, rule);
  }
  for (const Edit& edit : edits) {
    const auto* put = std::get_if<PutRule>(&edit);
    if (put != nullptr) keep(put->chain, put->rule);
  }
  return {candidates.begin(), candidates.end()};
}

// Rules taken away, put before others and behind them, chains made and removed.
std::vector<Edit> RandomChange(const ModelRuleset& model, Choices& choices) {
  std::set<ChainId> made;
  std::vector<Edit> edits;
  std::set<std::pair<ChainId, size_t>> taken;
  for (size_t count = choices.Below(kMostChanges) + 1; count > 0; --count) {
    auto chain = model.begin();
    std::advance(chain, static_cast<ptrdiff_t>(choices.Below(model.size())));
    const auto& [id, rules] = *chain;
    const size_t place = choices.Below(rules.size());
    const bool stands = !rules.empty() && taken.count({id, place}) == 0;
    if (choices.Flag() && stands) {
      edits.push_back(TakeRule{id, place});
      taken.insert({id, place});
      continue;
    }
    const std::optional<size_t> before = stands ? std::make_optional(place) : std::nullopt;
    for (const ChainId& target : JumpTargets(id)) made.insert(target);
    edits.push_back(PutRule{.chain = id, .rule = RandomRule(id, choices), .before = before});
  }
  std::vector<Edit> all;
  for (const ChainId& chain : made) all.push_back(MakeChain{chain});
  all.insert(all.end(), edits.begin(), edits.end());
  for (const ChainId& chain : Removable(model, edits)) {
    if (made.count(chain) == 0 && choices.Flag()) all.push_back(RemoveChain{chain});
  }
  return all;
}

void ApplyAndCompare(const std::vector<Edit>& edits) {
  const absl::Status status = Both().Apply(edits);
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
  const std::vector<Edit> ruleset = RandomRuleset(choices);
  if (ruleset.empty()) return;
  ApplyAndCompare(ruleset);
  if (choices.done()) return;
  ApplyAndCompare(RandomChange(Both().model(), choices));
}

}  // namespace kipt::testing
