// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/saved_family.h
#ifndef KIPT_AGENT_XTABLES_SAVED_FAMILY_H_
#define KIPT_AGENT_XTABLES_SAVED_FAMILY_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// The family of each table in `text`, in its order, told as ParseSavedFile (saved_survey.h)
// says.
//
// InvalidArgument as ReadSave, and where what is said of a table contradicts itself.
absl::StatusOr<std::vector<netlink::Family>> FamiliesOfSavedTables(absl::string_view text);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_SAVED_FAMILY_H_
