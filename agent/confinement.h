// SPDX-License-Identifier: Apache-2.0
//
// What a command that only reads gives up before it reads what others wrote: for good, and before
// there are other threads. If the kernel lacks a means, the others are used.
#ifndef KIPT_AGENT_CONFINEMENT_H_
#define KIPT_AGENT_CONFINEMENT_H_

#include "absl/status/status.h"
#include "agent/detect/mode_evidence.h"

namespace kipt::agent {

struct ReadingNeeds {
  // iptables-legacy's programs run even before it has tables.
  bool programs = false;
  // What sets and tests the mark without a rule.
  bool routes = false;
  // Every network namespace: CAP_SYS_ADMIN enters and CAP_SYS_PTRACE finds them. Only
  // ConfineToComputing then limits system calls and files.
  bool all_netns = false;
};

// Keeps CAP_NET_ADMIN, and CAP_NET_RAW where iptables-legacy's programs may be needed to read
// `sources`. Internal: the kernel did not obey; do not go on.
absl::Status ConfineToReading(const ReadingNeeds& needs, const ModeSources& sources);

// Keeps no capability, for commands that have read everything. Errors as above.
absl::Status ConfineToComputing();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFINEMENT_H_
