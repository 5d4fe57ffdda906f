// SPDX-License-Identifier: Apache-2.0
//
// Apart from the other files of the node: agent/xtables/iptables_legacy_monitor.h and
// agent/detect/mode_evidence.h both have a IptablesLegacyTables, and cannot be included together.
#ifndef KIPT_TESTS_FUZZ_LEGACY_ENTRIES_H_
#define KIPT_TESTS_FUZZ_LEGACY_ENTRIES_H_

#include "absl/strings/string_view.h"

namespace kipt::testing {

// The bytes of a legacy table, as IPT_SO_GET_ENTRIES gives them: counters do not count, and all
// else does.
void CheckLegacyEntries(absl::string_view entries);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_LEGACY_ENTRIES_H_
