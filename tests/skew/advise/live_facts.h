// SPDX-License-Identifier: Apache-2.0
//
// What of a node matters to an upgrade. Pure.
#ifndef KIPT_TESTS_SKEW_ADVISE_LIVE_FACTS_H_
#define KIPT_TESTS_SKEW_ADVISE_LIVE_FACTS_H_

#include "agent/audit/audit.h"
#include "tests/skew/advise/advise.h"

namespace kipt::skew {

// Facts that both families or both modes share are one; those that block come first.
LiveNode LiveFacts(const agent::NodeView& view, const UpgradePlan& plan);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ADVISE_LIVE_FACTS_H_
