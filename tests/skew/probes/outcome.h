// SPDX-License-Identifier: Apache-2.0
//
// From what callers and receivers tell to what became of a probe. Looks at nothing else.
#ifndef KIPT_TESTS_SKEW_PROBES_OUTCOME_H_
#define KIPT_TESTS_SKEW_PROBES_OUTCOME_H_

#include <string>
#include <vector>

#include "tests/skew/probes/callers.h"
#include "tests/skew/probes/probe.h"

namespace kipt::skew {

// `calls`: all connections of the last round that asked the probe. `dropped_by`: the rule that
// counted the silent ones; "" where none did. `node_addresses`: of the probe's family.
ProbeResult ResultOf(const Probe& probe, const std::vector<const Call*>& calls,
                     const std::vector<std::string>& node_addresses, const std::string& dropped_by);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_OUTCOME_H_
