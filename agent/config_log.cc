// SPDX-License-Identifier: Apache-2.0
#include "agent/config_log.h"

#include <glog/logging.h>

#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace kipt::agent {

void LogConfig(const Config& config) {
  for (const std::string& warning : config.warnings) LOG(WARNING) << warning;
  for (const std::string& gate : config.ignored_gates) {
    VLOG(2) << "Ignoring a feature gate of kubelet's that is none of ours: " << gate;
  }
  VLOG(1) << "Configuration:";
  for (const absl::string_view line : absl::StrSplit(ToString(config), '\n', absl::SkipEmpty())) {
    VLOG(1) << line;
  }
}

}  // namespace kipt::agent
