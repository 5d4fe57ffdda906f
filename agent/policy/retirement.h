// SPDX-License-Identifier: Apache-2.0
//
// File: agent/policy/retirement.h
//
// What another mode, bit or family of kubelet's left behind, and what becomes of it: it goes unless
// somebody claims it (claims.h). Nothing of kubelet ever does this: kubelet leaves everything until
// the node reboots. Pure.
#ifndef KIPT_AGENT_POLICY_RETIREMENT_H_
#define KIPT_AGENT_POLICY_RETIREMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "agent/policy/claims.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// --stale-chains: what is done about it without being asked.
enum class StaleChains : uint8_t { kKeep, kRetire };
absl::string_view StaleChainsName(StaleChains policy);  // "keep", "retire"

struct RetirementOptions {
  // KUBE-KUBELET-CANARY goes too. Only on an operator's word: a live kubelet takes its absence for
  // a flush, once a minute.
  bool canaries = false;
  // Also where the mode is off: everything of kubelet's is stale then.
  bool when_off = false;
  // Of the iptables mode that is not managed: its hint misleads who reads it, and goes though
  // others use that mode.
  bool hints = false;

  bool operator==(const RetirementOptions&) const = default;
};

// A chain, rule or jump that stays.
struct Claimed {
  Standing standing;
  // Never empty.
  std::vector<Claim> claims;

  bool operator==(const Claimed&) const = default;
};

struct Retirement {
  // In the order in which they must be applied: rules and jumps, chains, the native table. Base
  // chains are never removed.
  std::vector<Change> changes;
  // As found; not repaired.
  std::vector<Claimed> kept;
  // Families that were left out, for not all that is wanted there stands.
  std::vector<netlink::Family> unsettled = {};

  // Nothing is to go.
  bool empty() const { return changes.empty(); }
  bool operator==(const Retirement&) const = default;
};

// What of `observed` goes and what stays, where `input` says what is desired. Only in `input`'s
// families, for another run may manage the other one, and only in those in which all that is wanted
// stands
// (`diff`, of the same observation, changes nothing): first the new, then away with the old.
Retirement PlanRetirement(const PolicyInput& input, const netlink::Snapshot& observed,
                          const Diff& diff, const Dependents& dependents,
                          const RetirementOptions& options);

// The same from `observed` alone, with nobody known who depends on anything: whether it is worth
// finding out.
bool MayRetire(const PolicyInput& input, const netlink::Snapshot& observed, const Diff& diff,
               const RetirementOptions& options);

// `stale` of a diff, as it is after `retirement`: what went, or is to go, is left out, and
// what stays says why.
std::vector<Standing> WithClaims(std::vector<Standing> stale, const Retirement& retirement);

// "jumped to from ...; kube-proxy uses it: ...".
std::string ToString(const std::vector<Claim>& claims);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_RETIREMENT_H_
