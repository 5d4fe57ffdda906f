// SPDX-License-Identifier: Apache-2.0
//
// File: agent/round_log.h
//
// What the standalone program logs of each round: one line per incident and per change of state,
// none per attempt.
#ifndef KIPT_AGENT_ROUND_LOG_H_
#define KIPT_AGENT_ROUND_LOG_H_

#include <map>
#include <string>

#include "agent/loop/events.h"
#include "agent/loop/retirer.h"
#include "agent/loop/round.h"

namespace kipt::agent {

// Through glog. An incident is a warning; a family that fails an error, one that is degraded a
// warning, one that is in place again information. --v=1: every change that is made; --v=2: refills
// and every round.
void LogRound(const Round& round, const AgentState& state);

// Logs what was retired, what failed, and what is kept for which claims whenever that changes. One
// instance per process.
class RetirementLog {
 public:
  void Log(const RetireReport& report);

 private:
  // By iptables mode: what was last logged as kept.
  std::map<std::string, std::string> kept_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ROUND_LOG_H_
