// SPDX-License-Identifier: Apache-2.0
//
// What a running agent shows of itself: its state, what the last rounds found, and what the program
// around it knows.
#ifndef KIPT_AGENT_REPORT_DAEMON_STATE_H_
#define KIPT_AGENT_REPORT_DAEMON_STATE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/events.h"

namespace kipt::agent {

// The last of each kind, newest first: one line each, with the time, without the writers'
// arguments.
struct RecentEvents {
  static constexpr size_t kMost = 10;

  std::vector<std::string> incidents = {};
  std::vector<std::string> foreign_rules = {};
  std::vector<std::string> blockers = {};

  void Note(absl::Time now, const Event& event);

  bool operator==(const RecentEvents&) const = default;
};

struct DaemonState : AgentState {
  RecentEvents recent = {};
  // Why the running configuration is not the one on disk, and why an address is not served.
  std::string config_problem = {};
  std::string listen_problem = {};
  // The sources of the entries of connection tracking when it was last nearly full, with the time.
  std::string conntrack_report = {};

  bool operator==(const DaemonState&) const = default;
};

// StatusLine of the agent, with the program's problems.
std::string StatusLine(const DaemonState& state);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_REPORT_DAEMON_STATE_H_
