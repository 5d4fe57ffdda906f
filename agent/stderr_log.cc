// SPDX-License-Identifier: Apache-2.0
#include "agent/stderr_log.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "agent/text/printable.h"

namespace kipt::agent {

StderrLog::StderrLog(const char* program, const Flags& flags, bool waits) : waits_(waits) {
  FLAGS_v = flags.v.value_or(0);
  FLAGS_vmodule = flags.vmodule.value_or("");
  // glog itself writes nowhere: neither files nor, unescaped, standard error.
  FLAGS_logtostderr = FLAGS_logtostdout = FLAGS_alsologtostderr = false;
  FLAGS_stderrthreshold = google::NUM_SEVERITIES;
  google::InitGoogleLogging(program);
  for (int severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
    google::SetLogDestination(severity, "");
  }
  google::AddLogSink(this);
}

StderrLog::~StderrLog() { google::RemoveLogSink(this); }

void StderrLog::send(google::LogSeverity severity, const char* /*full_filename*/, const char* file,
                     int line, const google::LogMessageTime& time, const char* message,
                     size_t size) {
  const std::string header =
      absl::StrFormat("%c%02d%02d %02d:%02d:%02d.%06d %5d %s:%d] ",
                      google::GetLogSeverityName(severity)[0], time.month() + 1, time.day(),
                      time.hour(), time.min(), time.sec(), time.usec(), gettid(), file, line);
  std::string text;
  if (const uint64_t lost = dropped() - told_; lost != 0) {
    absl::StrAppend(&text, header, lost, " lines are missing here: standard error was full\n");
  }
  absl::StrAppend(&text, header);
  AppendLine(text, absl::string_view(message, size));
  // One write, so that lines of other processes on the same file do not come between.
  if (waits_) {
    std::fwrite(text.data(), 1, text.size(), stderr);
  } else if (const uint64_t lost = dropped(); output_.Write(text)) {
    told_ = lost;
  }
}

}  // namespace kipt::agent
