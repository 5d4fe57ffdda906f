// SPDX-License-Identifier: Apache-2.0
//
// Leftovers of another mode, bit or family of kubelet's are removed unless they are claimed
// (claims.h). kubelet itself never does this. Pure.
#ifndef KIPT_AGENT_POLICY_RETIREMENT_H_
#define KIPT_AGENT_POLICY_RETIREMENT_H_

#include <string>
#include <vector>

#include "agent/policy/claims.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// --stale-chains: what is done about it automatically.
enum class StaleChains : uint8_t { kKeep, kRetire };
absl::string_view StaleChainsName(StaleChains policy);  // "keep", "retire"

struct RetirementOptions {
  // Also remove KUBE-KUBELET-CANARY, only if an operator asks: a live kubelet takes its absence for
  // a flush, once a minute.
  bool canaries = false;
  // Also where the mode is off: everything of kubelet's is stale then.
  bool when_off = false;
  // For the iptables mode that is not managed: its hint misleads readers, and is removed though
  // that mode is used.
  bool hints = false;

  bool operator==(const RetirementOptions&) const = default;
};

// A chain, rule or jump that stays.
struct Claimed {
  ExistingItem item;
  // Never empty.
  std::vector<Claim> claims;
  // It is in Diff::of_kube_proxy: not stale.
  bool of_kube_proxy = false;

  bool operator==(const Claimed&) const = default;
};

struct Retirement {
  // In the order in which they must be applied: rules and jumps, chains, the native table. Base
  // chains are never removed.
  std::vector<Change> changes;
  // As found; not repaired.
  std::vector<Claimed> kept;
  // Families that were left out, because their desired state is not in place.
  std::vector<netlink::Family> unsettled = {};

  // Nothing is to be removed.
  bool empty() const { return changes.empty(); }
  bool operator==(const Retirement&) const = default;
};

// What of `observed` to remove and what to keep, where `input` is desired: only in `input`'s
// families, because another run may manage the other one, and only in those whose desired state is
// in place (`diff`, of the same observation, changes nothing).
Retirement PlanRetirement(const PolicyInput& input, const netlink::Snapshot& observed,
                          const Diff& diff, const Dependents& dependents,
                          const RetirementOptions& options);

// Whether anything would be removed if nothing were claimed: then claims are worth reading.
bool MayRetire(const PolicyInput& input, const netlink::Snapshot& observed, const Diff& diff,
               const RetirementOptions& options);

// `stale` of a diff without what `retirement` removes, and with claims on the rest.
std::vector<ExistingItem> WithClaims(std::vector<ExistingItem> stale, const Retirement& retirement);

// "jumped to from ...; kube-proxy uses it: ...".
std::string ToString(const std::vector<Claim>& claims);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_RETIREMENT_H_
