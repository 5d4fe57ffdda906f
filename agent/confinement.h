// SPDX-License-Identifier: Apache-2.0
//
// File: agent/confinement.h
//
// What a command that only reads gives up before it reads what others wrote: for good, and to be
// called before there are other threads. Where the kernel lacks a part of it, the rest is given up
// all the same.
#ifndef KIPT_AGENT_CONFINEMENT_H_
#define KIPT_AGENT_CONFINEMENT_H_

#include "absl/status/status.h"
#include "agent/detect/mode_evidence.h"

namespace kipt::agent {

struct ReadingNeeds {
  // Programs of iptables-legacy are run even where it has no tables yet.
  bool programs = false;
  // The kernel's routing rules.
  bool routes = false;
  // Every network namespace. Then CAP_SYS_ADMIN (to enter them) and CAP_SYS_PTRACE (to see them)
  // stay as well, and system calls and files are given up by ConfineToComputing only.
  bool all_netns = false;
};

// For who reads rules: of its capabilities CAP_NET_ADMIN stays, and CAP_NET_RAW where
// iptables-legacy's programs may be needed. `sources` are what will be read. Internal: the kernel
// did not do as it was told; do not go on.
absl::Status ConfineToReading(const ReadingNeeds& needs, const ModeSources& sources);

// For who has read everything, or a file only: no capability stays. Errors as above.
absl::Status ConfineToComputing();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFINEMENT_H_
