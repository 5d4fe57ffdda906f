// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_legacy_chains.h
//
// Everything that legacy iptables holds, for telling whether it is in use at all. A Backend is
// asked for chains by name.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_CHAINS_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_CHAINS_H_

#include <map>

#include "absl/status/statusor.h"
#include "agent/process/command.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// Every chain of the tables mangle, nat and filter that exist, in the calling thread's network
// namespace, as iptables-legacy-save (where iptables itself is legacy, before 1.8: iptables-save)
// prints them. Without -t that program looks only at what ip_tables_names lists, so no table is
// created.
//
// NotFound: the program is not installed. Unknown: it failed, with what it said. Other errors are
// FindIptablesLegacyPrograms', CommandRunner::Run's and ParseSave's.
absl::StatusOr<std::map<netlink::ChainId, netlink::ObservedChain>> ListIptablesLegacyChains(
    netlink::Family family, CommandRunner& runner, const IptablesLegacyOptions& options = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_CHAINS_H_
