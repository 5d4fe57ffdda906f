// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/actors/iptables_calls.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

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

void Canary::Ensure(FamilyNotes& notes) {
  std::vector<KubeletStep> steps;
  for (const char* table : {"mangle", "nat", "filter"}) {
    steps.push_back({KubeletStep::Kind::kEnsureChain, table, chain_, {}});
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
  std::vector<std::string> arguments = wait_;
  arguments.insert(arguments.end(), {"-S", chain_, "-t", table});
  const testing::ProgramResult result = iptables_.Run(arguments);
  notes.Called(iptables_, arguments, result);
  return result.exit_code != 0 && (result.exit_code != kLockNotHad || lock_is_loss_);
}

}  // namespace kipt::skew
