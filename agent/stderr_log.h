// SPDX-License-Identifier: Apache-2.0
//
// File: agent/stderr_log.h
//
// The program's log: klog's shape, as far as glog has it, on standard error.
#ifndef KIPT_AGENT_STDERR_LOG_H_
#define KIPT_AGENT_STDERR_LOG_H_

#include <glog/logging.h>

#include "agent/config/command_line.h"

namespace kipt::agent {

// From its construction to its destruction every LOG is one line of standard error,
// "I1120 23:24:11.000000 TID file:line] ", whatever is in it: messages are escaped, because names
// and comments of rules are strangers'. One object a process.
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

}  // namespace kipt::agent

#endif  // KIPT_AGENT_STDERR_LOG_H_
