// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/plan.h
//
// One look at the kernel: what exists, compared with what is desired. Changes nothing, and tries
// once.
#ifndef KIPT_AGENT_LOOP_PLAN_H_
#define KIPT_AGENT_LOOP_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "agent/loop/events.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

// The rule that keeps neighbours from 127.0.0.1, whoever wrote it, and however (CVE-2020-8558).
struct MartianProtection {
  // It stands, and packets for this node come to it: `rule`, `way` and not `dormant`; or it is the
  // native table's.
  bool stands = false;
  // It is in KUBE-FIREWALL, and whatever comes into that chain comes to it.
  bool rule = false;
  // Packets for this node come from INPUT into KUBE-FIREWALL.
  bool way = false;
  // Table ip filter is dormant: none of its rules sees a packet.
  bool dormant = false;
  // Packets that it has dropped since it was made; and those of them that the native table has.
  uint64_t dropped = 0;
  uint64_t dropped_natively = 0;

  bool operator==(const MartianProtection&) const = default;
};

MartianProtection FindMartianProtection(const netlink::Snapshot& observed,
                                        const std::optional<netlink::ObservedNativeTable>& native);

// Whether the protection stands once `applied` was done after it was found as `found`.
bool MartianProtectionStands(MartianProtection found, absl::Span<const Change> applied);

// What a counter that shows `now` has counted since it showed `seen`, which is set to `now`. The
// first time counts for nothing; a counter that was made anew counts from nothing.
uint64_t CountedSince(std::optional<uint64_t>& seen, uint64_t now);

// What one look at the kernel found.
struct Plan {
  uint32_t generation = 0;
  // What it is about; of the others it says nothing.
  std::vector<netlink::Family> families = {};
  Diff diff;
  // Where kube-proxy lives (ownership.h).
  std::vector<netlink::Family> claimed_by_kube_proxy = {};
  // Where kube-proxy's chains are being deleted (KubeProxyLeaves), and kubelet's jump to
  // KUBE-POSTROUTING is all that table nat lacks.
  std::vector<netlink::Family> in_cleanup = {};
  // In the base chains that were read, each once, sorted.
  std::vector<ForeignJump> foreign_jumps = {};
  MartianProtection martians = {};
  // RuleSupport said that iptables can hold no rule, and one that stands proves that it can: `diff`
  // is against what is desired then.
  bool support_disproved = false;
  // What of diff.stale is to be removed, and what of the other iptables mode; where that was asked
  // for.
  std::optional<Retirement> retirement = {};
  std::optional<Retirement> other_retirement = {};

  bool operator==(const Plan&) const = default;
};

// What exists, at one generation.
struct Observation {
  netlink::Snapshot snapshot;
  std::optional<netlink::ObservedNativeTable> native;
};

// Errors are Backend::Read's; Aborted too where others wrote meanwhile.
absl::StatusOr<Observation> Observe(netlink::Backend& backend,
                                    absl::Span<const netlink::ChainQuery> queries);

// `support`, or that iptables can hold rules, if a rule in `snapshot` proves that.
RuleSupport Proven(const RuleSupport& support, const netlink::Snapshot& snapshot);

// What `observed` lacks of `input` on a node that can hold `support`.
Plan Compare(const PolicyInput& input, const RuleSupport& support, const Observation& observed);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_PLAN_H_
