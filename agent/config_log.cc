// SPDX-License-Identifier: Apache-2.0
#include "agent/config_log.h"

#include <glog/logging.h>

namespace kipt::agent {

void LogConfig(const Config& config) {
  for (const std::string& warning : config.warnings) LOG(WARNING) << warning;
  for (const std::string& gate : config.ignored_gates) {
    VLOG(2) << "Ignoring a feature gate of kubelet's that is none of ours: " << gate;
  }
  VLOG(1) << "Configuration:\n" << ToString(config);
}

}  // namespace kipt::agent
