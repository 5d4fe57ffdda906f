// SPDX-License-Identifier: Apache-2.0
//
// The log of the program: glog's lines on standard error.
#ifndef KIPT_AGENT_STDERR_LOG_H_
#define KIPT_AGENT_STDERR_LOG_H_

#include <glog/logging.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "agent/config/config.h"
#include "agent/process/own_process.h"

namespace kipt::agent {

// While it exists every LOG is one line of standard error, as similar to klog's as glog allows:
// "I1120 23:24:11.000000 TID file:line] ". Messages are escaped, because names and comments of
// rules come from others. One object a process.
class StderrLog final : private google::LogSink {
 public:
  // `waits`: for a slow reader, as a command may that is not a daemon.
  StderrLog(const char* program, const Flags& flags, bool waits);
  ~StderrLog() override;
  StderrLog(const StderrLog&) = delete;
  StderrLog& operator=(const StderrLog&) = delete;

  // Lines that no reader took in time.
  uint64_t dropped() const { return output_.dropped(); }

 private:
  using google::LogSink::send;
  void send(google::LogSeverity severity, const char* full_filename, const char* file, int line,
            const google::LogMessageTime& time, const char* message, size_t size) override;

  const bool waits_;
  LossyOutput output_{STDERR_FILENO};
  // Dropped lines that a later line reported.
  std::atomic<uint64_t> told_ = 0;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_STDERR_LOG_H_
