// SPDX-License-Identifier: Apache-2.0
//
// What the daemon logs.
#ifndef KIPT_AGENT_ROUND_LOG_H_
#define KIPT_AGENT_ROUND_LOG_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "agent/audit/node_audit.h"
#include "agent/config/config.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/pace.h"
#include "agent/loop/retirer.h"
#include "agent/loop/round.h"

namespace kipt::agent {

// Warnings; --v=1: the effective configuration, and gates that are ignored.
void LogConfig(const Config& config);

// Warnings of one kind about what other programs do: ten at once, and one a minute, with the number
// of those left out. A program that repeats itself must not fill the log.
class LimitedWarnings {
 public:
  void Log(absl::string_view line);

 private:
  Allowance allowance_{10, 1.0 / 60};
  uint64_t left_out_ = 0;
};

// One line per incident and per change of state, none per attempt. An incident is a warning; a
// family has the severity of its phase (PhaseRow). --v=1: every change that is made; --v=2: refills
// and every round.
class RoundLog {
 public:
  void Log(const Round& round, const AgentState& state);

 private:
  std::map<Condition, LimitedWarnings> blockers_;
  LimitedWarnings lost_jumps_;
  LimitedWarnings foreign_rules_;
};

// One line for each error or warning that appeared or vanished; 20 at most, and how many more.
void LogAudit(const NodeAudit& before, const NodeAudit& after);

// Logs what was retired, what failed, and whenever it changes what is kept for which claims.
// `kept_items`, by iptables mode, is what was last logged as kept.
void LogRetirement(const RetireReport& report, std::map<std::string, std::string>& kept_items);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ROUND_LOG_H_
