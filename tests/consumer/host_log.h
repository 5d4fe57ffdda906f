// SPDX-License-Identifier: Apache-2.0
//
// The host's own log: one line each, in the host's own format. The library has none.
#ifndef NODE_AGENT_HOST_LOG_H_
#define NODE_AGENT_HOST_LOG_H_

#include "absl/base/log_severity.h"
#include "absl/strings/string_view.h"

namespace node_agent {

// "15:04:05.123 WARNING red: TEXT". `about` names a part of the host, or a network namespace.
void Log(absl::LogSeverity severity, absl::string_view about, absl::string_view text);
void Log(absl::string_view about, absl::string_view text);

}  // namespace node_agent

#endif  // NODE_AGENT_HOST_LOG_H_
