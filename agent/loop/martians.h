// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/martians.h
//
// Whether the node is protected from packets to 127.0.0.0/8, as far as its rules tell. Pure.
#ifndef KIPT_AGENT_LOOP_MARTIANS_H_
#define KIPT_AGENT_LOOP_MARTIANS_H_

#include <cstdint>
#include <optional>

#include "agent/loop/reconciler.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

MartianProtection FindMartianProtection(const netlink::Snapshot& observed,
                                        const std::optional<netlink::ObservedNativeTable>& native);

// After what `report` did.
bool MartianProtectionStands(const SyncReport& report);

// From the rule's counter to what it dropped since the last look.
class MartianCount {
 public:
  // `dropped` is MartianProtection::dropped. The first one counts for nothing; a rule that was made
  // anew counts from nothing.
  uint64_t Note(uint64_t dropped);

 private:
  std::optional<uint64_t> seen_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_MARTIANS_H_
