// SPDX-License-Identifier: Apache-2.0
//
// Changes the observed chains before iptables-restore is run, to find out what it cannot do: it
// does not name the operation that it refuses, finds rules by number only, empties a chain that is
// declared and exists, and has committed whole tables when it fails. Not installed.
#ifndef KIPT_AGENT_XTABLES_RESTORE_PLAN_H_
#define KIPT_AGENT_XTABLES_RESTORE_PLAN_H_

#include <string>

#include "absl/status/statusor.h"
#include "agent/xtables/iptables_save.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

// `transaction` as ToRestoreText() must be given it, if `state` is what was observed:
//  - rules are found by handle, and all numbers are set from that;
//  - chains that exist are not created;
//  - whole tables are ordered mangle, filter, nat, so that no packet is marked for a drop that is
//    not there yet; nat, filter, mangle where the transaction only removes;
//  - if the family's nat changes, removals from filter come last: after a change of the drop bit,
//    packets are dropped by the old one as long as they are marked with it, also if an interrupted
//    transaction has added the new one.
//
// `state` has each chain that the transaction names or jumps to, with its rules, and each chain
// with a rule that jumps to one that the transaction deletes.
//
// Errors are Backend::Apply's, each naming the operation, family, table and chain; also
// FailedPrecondition if a rule needs `random_fully`, which iptables lacks, and InvalidArgument if
// iptables-restore has no words for the rule.
absl::StatusOr<netlink::Transaction> PlanRestore(ObservedChains state,
                                                 const netlink::Transaction& transaction,
                                                 bool random_fully);

// `plan` of PlanRestore as input of iptables-restore --noflush, which commits a table each time
// that the plan comes back to it.
std::string RestoreText(const netlink::Transaction& plan, netlink::Family family);

// Whether `plan` adds a rule about a connection's label in `family`.
bool AddsConnLabel(const netlink::Transaction& plan, netlink::Family family);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_RESTORE_PLAN_H_
