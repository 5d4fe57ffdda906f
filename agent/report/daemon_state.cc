// SPDX-License-Identifier: Apache-2.0
#include "agent/report/daemon_state.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace kipt::agent {
namespace {

// An Incident, NewForeignRules or Blocker.
template <typename Noted>
void NoteLine(absl::Time now, Noted noted, std::vector<std::string>& lines) {
  noted.by = WithoutCommandLines(std::move(noted.by));
  lines.insert(lines.begin(), absl::StrCat(absl::FormatTime(now), " ", ToString(noted)));
  if (lines.size() > RecentEvents::kMost) lines.pop_back();
}

}  // namespace

void RecentEvents::Note(absl::Time now, const Event& event) {
  if (event.incident) NoteLine(now, *event.incident, incidents);
  if (event.foreign_rules) NoteLine(now, *event.foreign_rules, foreign_rules);
  for (const Blocker& blocker : event.new_blockers) NoteLine(now, blocker, blockers);
}

std::string StatusLine(const DaemonState& state) {
  std::vector<std::string> problems;
  if (!state.config_problem.empty()) {
    problems.push_back(absl::StrCat("configuration not reloaded: ", state.config_problem));
  }
  if (!state.listen_problem.empty()) problems.push_back(state.listen_problem);
  return StatusLine(state, problems);
}

}  // namespace kipt::agent
