// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/incident.h
//
// What somebody did to rules that were in place, and what became of it: one value, one log line.
// Pure.
#ifndef KIPT_AGENT_LOOP_INCIDENT_H_
#define KIPT_AGENT_LOOP_INCIDENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/loop/reconciler.h"
#include "agent/loop/writer.h"
#include "agent/policy/diff.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

enum class DamageKind : uint8_t {
  kChainMissing,   // the chain, whatever rules it had
  kJumpMissing,    // our jump in a base chain
  kRuleMissing,    // a rule in a chain of ours
  kRuleMisplaced,  // it stands where it cannot do its work
  kRuleUnwanted,   // a duplicate of ours, or a form of it that is not wanted
  kTableDormant,   // no packet comes to any rule of the table
};
// As in the label `kind` of drift_detected_total: "chain_missing", ...
absl::string_view DamageKindName(DamageKind kind);

struct DamagedItem {
  netlink::ChainId chain;
  DamageKind kind = DamageKind::kRuleMissing;
  // "-A INPUT -j KUBE-FIREWALL"; ":KUBE-FIREWALL" for a chain; "*filter" for a table.
  std::string text;

  bool operator==(const DamagedItem&) const = default;
};

// What was wrong, from what mends it. A chain that is missing is one item, and so is a rule that is
// deleted in one place and added in another.
std::vector<DamagedItem> DamageOf(absl::Span<const Change> changes);

struct Incident {
  std::vector<DamagedItem> damage;
  // As Suspected, in suspects.h: several where it cannot be told which of them did it, none where
  // nobody was seen (found by the timer, --watch=poll, legacy iptables).
  std::vector<Writer> writers;
  bool others = false;
  // Other people's jumps that stood in the base chains at the last look and no longer do: what
  // stays broken until its owner repairs it.
  std::vector<ForeignJump> lost_jumps;
  // From the event, or the start of the look that found it, until the repair was committed.
  absl::Duration latency;
  // The part of it spent inside Backend::Apply.
  absl::Duration applying;

  bool operator==(const Incident&) const = default;
};

// One line.
std::string ToString(const Incident& incident);

// Without the writers' arguments, which /proc may hide from other users (hidepid) and which may
// hold secrets.
Incident WithoutCommandLines(Incident incident);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_INCIDENT_H_
