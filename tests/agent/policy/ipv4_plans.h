// SPDX-License-Identifier: Apache-2.0
//
// Policies and plans for IPv4 that the tests share.
#ifndef KIPT_TESTS_AGENT_POLICY_IPV4_PLANS_H_
#define KIPT_TESTS_AGENT_POLICY_IPV4_PLANS_H_

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "agent/detect/rule_support.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "tests/support/observed.h"

namespace kipt::agent {

inline constexpr netlink::Family kIPv4Only[] = {netlink::Family::kIPv4};

inline PolicyInput Legacy(MarkBits bits = {}) { return Wanting(Mode::kLegacy, kIPv4Only, bits); }
inline PolicyInput Cleanup() { return Wanting(Mode::kCleanup, kIPv4Only, {}); }

// For a node on which, according to files, iptables can hold no rule.
inline SupportSource NoXt() {
  SupportSource support(
      [] { return XtCompatReading{.compat = XtCompat::kAbsent, .reason = "no xt"}; });
  support.Read(netlink::BackendKind::kNft, /*labels_desired=*/false);
  return support;
}

inline bool PutsNative(const std::vector<Change>& changes) {
  return std::any_of(changes.begin(), changes.end(), [](const Change& change) {
    return std::holds_alternative<netlink::PutNativeTable>(change.operation);
  });
}

inline std::vector<std::string> Operations(const Diff& diff) {
  std::vector<std::string> lines;
  lines.reserve(diff.changes.size());
  for (const Change& change : diff.changes) lines.push_back(netlink::ToString(change.operation));
  return lines;
}

inline Retirement PlanFor(const PolicyInput& desired, const Observed& observed,
                          const Dependents& dependents = {},
                          const RetirementOptions& options = {}) {
  return PlanRetirement(desired, observed.snapshot(), ComputeDiff(desired, observed.snapshot()),
                        dependents, options);
}

// Leftovers of a kubelet in legacy mode on a node without other users.
inline Observed Residue() { return Made(Legacy()); }

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_POLICY_IPV4_PLANS_H_
