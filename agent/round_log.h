// SPDX-License-Identifier: Apache-2.0
//
// File: agent/round_log.h
//
// The program's log, through glog: as similar to klog's as glog allows, on standard error.
#ifndef KIPT_AGENT_ROUND_LOG_H_
#define KIPT_AGENT_ROUND_LOG_H_

#include <glog/logging.h>

#include <map>
#include <string>

#include "agent/config/config.h"
#include "agent/loop/events.h"
#include "agent/loop/plan.h"
#include "agent/loop/round.h"

namespace kipt::agent {

// While it exists every LOG is one line of standard error, "I1120 23:24:11.000000 TID file:line] ".
// Messages are escaped, because names and comments of rules come from others. One object a process.
class StderrLog final : private google::LogSink {
 public:
  StderrLog(const char* program, const Flags& flags);
  ~StderrLog() override;
  StderrLog(const StderrLog&) = delete;
  StderrLog& operator=(const StderrLog&) = delete;

 private:
  using google::LogSink::send;
  void send(google::LogSeverity severity, const char* full_filename, const char* base_filename,
            int line, const google::LogMessageTime& time, const char* message,
            size_t message_len) override;
};

// Warnings; --v=1: the effective configuration; --v=2: gates that are ignored.
void LogConfig(const Config& config);

// One line per incident and per change of state, none per attempt. An incident is a warning; a
// failed family is an error, a degraded one a warning, one that is in place again information.
// --v=1: every change that is made; --v=2: refills and every round.
void LogRound(const Round& round, const AgentState& state);

// Logs what was retired, what failed, and whenever it changes what is kept for which claims.
// `kept_items`, by iptables mode, is what was last logged as kept.
void LogRetirement(const RetireReport& report, std::map<std::string, std::string>& kept_items);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ROUND_LOG_H_
