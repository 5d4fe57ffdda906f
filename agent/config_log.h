// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config_log.h
//
// What the standalone program logs of its configuration.
#ifndef KIPT_AGENT_CONFIG_LOG_H_
#define KIPT_AGENT_CONFIG_LOG_H_

#include "agent/config/config.h"

namespace kipt::agent {

// Through glog: warnings; --v=1: the effective configuration; --v=2: gates that are ignored.
void LogConfig(const Config& config);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_LOG_H_
