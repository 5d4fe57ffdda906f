// SPDX-License-Identifier: Apache-2.0
//
// Whether this node is protected from martian packets: those from other hosts to 127.0.0.0/8
// (CVE-2020-8558).
#ifndef KIPT_AGENT_POLICY_MARTIANS_H_
#define KIPT_AGENT_POLICY_MARTIANS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "agent/policy/diff.h"
#include "netlink/ruleset.h"
#include "netlink/survey.h"

namespace kipt::agent {

struct MartianProtection {
  // `rule`, `way` and not `dormant`; or the native table has it.
  bool in_place = false;
  // It is in KUBE-FIREWALL, and every martian packet in that chain reaches it.
  bool rule = false;
  // Packets for this node reach KUBE-FIREWALL from INPUT.
  bool way = false;
  // Table ip filter is dormant: no packet reaches its rules.
  bool dormant = false;
  // Packets dropped since its creation; and the native table's part of them.
  uint64_t dropped = 0;
  uint64_t dropped_natively = 0;
  // WhoDropsMartians, where that was asked.
  std::string elsewhere = {};

  bool operator==(const MartianProtection&) const = default;
};

// For reports: assumes that a conditional rule keeps no martian packet from the next one.
MartianProtection FindMartianProtection(const netlink::Snapshot& observed);

// For what removes another protection: whether INPUT of table ip filter drops every martian packet
// once `changes` are made. False where a rule before the drop may accept some of them, or is not
// known.
bool DropsEveryMartian(const netlink::Snapshot& observed, absl::Span<const Change> changes);

// The chain by whose rules, of any program, every martian packet is dropped before a program of
// this node receives it: "chain PREROUTING of table ip raw"; not of type nat. Empty where there is
// none: a rule that may accept some of them leaves the node open to these. `survey` may lack rules
// of chains that drop nothing. Unless `lo_is_loopback`, martians may come from an interface "lo".
std::string WhoDropsMartians(const netlink::Survey& survey, bool lo_is_loopback);

// By any writer.
bool IsMartianRule(const netlink::ObservedRule& rule);

// Whether the protection is in place after `applied`, where it was `found` before.
bool MartianProtectionExists(MartianProtection found, absl::Span<const Change> applied);

// The growth of a counter from `seen`, which is set to `now`: 0 the first time, `now` where the
// counter was recreated.
uint64_t CountedSince(std::optional<uint64_t>& seen, uint64_t now);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_MARTIANS_H_
