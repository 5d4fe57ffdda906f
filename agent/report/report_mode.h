// SPDX-License-Identifier: Apache-2.0
//
// File: agent/report/report_mode.h
//
// What the mode oracle found, as text for people and as JSON for programs; see report.h.
#ifndef KIPT_AGENT_REPORT_REPORT_MODE_H_
#define KIPT_AGENT_REPORT_REPORT_MODE_H_

#include <string>

#include "absl/types/span.h"
#include "agent/detect/iptables_mode.h"
#include "agent/policy/other_mode.h"

namespace kipt::agent {

std::string DetectText(absl::Span<const FamilyMode> modes);
std::string DetectJson(absl::Span<const FamilyMode> modes);

// The section of plan and status; empty where there is nothing to say.
std::string OtherModeText(const OtherMode& other);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_REPORT_REPORT_MODE_H_
