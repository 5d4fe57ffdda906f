// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_save_families.h
#ifndef KIPT_AGENT_XTABLES_IPTABLES_SAVE_FAMILIES_H_
#define KIPT_AGENT_XTABLES_IPTABLES_SAVE_FAMILIES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// The family of each table in `text`, in its order, told as ParseSavedFile (iptables_save_survey.h)
// says.
//
// InvalidArgument as ReadSave, and where what is said of a table contradicts itself.
absl::StatusOr<std::vector<netlink::Family>> FamiliesOfSavedTables(absl::string_view text);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_SAVE_FAMILIES_H_
