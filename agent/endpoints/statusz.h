// SPDX-License-Identifier: Apache-2.0
//
// File: agent/endpoints/statusz.h
//
// The pages for people, in the shape of Kubernetes' z-pages (KEP-4827, KEP-4828). Pure.
#ifndef KIPT_AGENT_ENDPOINTS_STATUSZ_H_
#define KIPT_AGENT_ENDPOINTS_STATUSZ_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/config/command_line.h"
#include "agent/loop/events.h"

namespace kipt::agent {

// What the agent is, what it wants, what stands and what went wrong, at `now`. `version`: of this
// program.
std::string StatuszText(const AgentState& state, absl::string_view version, absl::Time now);

// Every flag as NAME=VALUE, in the order of --help: what was given, else the default. What a
// configuration file sets is /configz's affair.
std::string FlagzText(const Flags& flags);

// "2026-01-31T23:59:58Z"; "never" for the infinite past.
std::string TimeText(absl::Time time);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_STATUSZ_H_
