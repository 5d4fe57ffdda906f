// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/actors/canary.h"

#include <vector>

namespace kipt::skew {
namespace {

using testing::KubeletStep;

constexpr int kLockNotHad = 4;

}  // namespace

void Canary::Ensure(FamilyNotes& notes) {
  std::vector<KubeletStep> steps;
  for (const char* table : {"mangle", "nat", "filter"}) {
    steps.push_back({KubeletStep::Kind::kEnsureChain, table, chain_, {}});
  }
  const std::string error = testing::RunKubelet(iptables_, steps).error;
  ensured_ = error.empty();
  if (!ensured_) notes.Failed("could not set up iptables canary: " + error);
}

bool Canary::IsGone() const {
  const int code =
      iptables_.Run({"-w", "5", "-W", "100000", "-S", chain_, "-t", "mangle"}).exit_code;
  return code != 0 && code != kLockNotHad;
}

}  // namespace kipt::skew
