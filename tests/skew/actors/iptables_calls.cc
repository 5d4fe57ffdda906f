// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/actors/iptables_calls.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace kipt::skew {
namespace {

using testing::KubeletStep;

constexpr int kLockNotHad = 4;

}  // namespace

std::string LastLines(const std::string& text, size_t count) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(count));
  return absl::StrJoin(lines, " | ");
}

std::vector<std::string> ChainsOf(const testing::Iptables& iptables, const std::string& table) {
  std::vector<std::string> chains;
  const testing::ProgramResult saved = iptables.Save(table);
  for (absl::string_view line : absl::StrSplit(saved.out, '\n')) {
    if (absl::ConsumePrefix(&line, ":")) chains.emplace_back(line.substr(0, line.find(' ')));
  }
  return chains;
}

KubeletStep EnsureChain(const std::string& table, const std::string& chain) {
  return {KubeletStep::Kind::kEnsureChain, table, chain, {}};
}

std::vector<KubeletStep> StepsOf(const std::vector<ProxyJump>& jumps) {
  std::vector<KubeletStep> steps;
  for (const ProxyJump& jump : jumps) {
    steps.push_back(EnsureChain(jump.table, jump.chain));
    std::vector<std::string> rule = jump.match;
    rule.insert(rule.end(), {"-j", jump.chain});
    steps.push_back(
        {KubeletStep::Kind::kEnsurePrepend, jump.table, jump.base_chain, std::move(rule)});
  }
  return steps;
}

std::vector<std::string> Waiting(const std::vector<std::string>& wait,
                                 const std::vector<std::string>& arguments) {
  std::vector<std::string> all = wait;
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

void Canary::Ensure(FamilyNotes& notes) {
  std::vector<KubeletStep> steps;
  for (const char* table : {"mangle", "nat", "filter"}) {
    steps.push_back(EnsureChain(table, chain_));
  }
  const testing::KubeletRun run = testing::RunKubelet(iptables_, steps, wait_);
  notes.Called(run);
  ensured_ = run.error.empty();
  if (!ensured_) notes.Failed("could not set up iptables canary: " + run.error);
}

bool Canary::IsGone(FamilyNotes& notes) const {
  if (!IsGoneFrom("mangle", notes)) return false;
  if (IsGoneFrom("nat", notes)) IsGoneFrom("filter", notes);
  return true;
}

bool Canary::IsGoneFrom(const char* table, FamilyNotes& notes) const {
  const std::vector<std::string> arguments = Waiting(wait_, {"-S", chain_, "-t", table});
  const testing::ProgramResult result = iptables_.Run(arguments);
  notes.Called(iptables_, arguments, result);
  return result.exit_code != 0 && (result.exit_code != kLockNotHad || lock_is_loss_);
}

}  // namespace kipt::skew
