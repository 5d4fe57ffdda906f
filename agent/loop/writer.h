// SPDX-License-Identifier: Apache-2.0
//
// Describes another process that changed the rules in terms that an operator can act upon: its
// command, its parent, and its unit, pod or container.
#ifndef KIPT_AGENT_LOOP_WRITER_H_
#define KIPT_AGENT_LOOP_WRITER_H_

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "agent/loop/incident.h"
#include "netlink/backend.h"

namespace kipt::agent {

struct WriterSources {
  std::string proc = "/proc";
  // Writers are looked up in `proc` only if this is the initial PID namespace, as their IDs are.
  std::string pid_namespace = "/proc/self/ns/pid";
};

// Reads /proc, so call it before the writer ends. Believes /proc only if comm is still what the
// kernel reported, because the ID may be reused. What cannot be read stays empty.
Writer IdentifyWriter(const netlink::RulesetChange& change, const WriterSources& sources);

// Whether one of `writers` was started by a process named kube-proxy, and whether that still runs.
// Believes the name, and reads /proc.
std::optional<bool> KubeProxyAmong(absl::Span<const Writer> writers, const WriterSources& sources);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_WRITER_H_
