// SPDX-License-Identifier: Apache-2.0
#include "host_log.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace node_agent {

void Log(absl::LogSeverity severity, absl::string_view about, absl::string_view text) {
  std::cout << absl::StrCat(absl::FormatTime("%H:%M:%E3S", absl::Now(), absl::LocalTimeZone()), " ",
                            absl::LogSeverityName(severity), " ", about, ": ", text, "\n")
            << std::flush;
}

void Log(absl::string_view about, absl::string_view text) {
  Log(absl::LogSeverity::kInfo, about, text);
}

}  // namespace node_agent
