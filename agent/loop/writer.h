// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/writer.h
//
// Who wrote: from the process ID and command that the kernel reports with a commit to what an
// operator can act upon. Reads /proc, and must do so before the writer has ended: at once.
#ifndef KIPT_AGENT_LOOP_WRITER_H_
#define KIPT_AGENT_LOOP_WRITER_H_

#include <string>

#include "absl/strings/string_view.h"
#include "agent/loop/events.h"
#include "netlink/backend.h"

namespace kipt::agent {

struct WriterSources {
  std::string proc = "/proc";
  // Link to the PID namespace of this process; the kernel's IDs are looked up in `proc` only where
  // it is the initial one (PROC_PID_INIT_INO, 4026531836: linux/proc_ns.h).
  std::string pid_namespace = "/proc/self/ns/pid";
};

// Safe for use by several threads at once.
class WriterLookup {
 public:
  explicit WriterLookup(const WriterSources& sources = {});

  // Believes /proc only where comm there still is what the kernel reported: an ID may be another
  // process' by now. (A program that renames itself between the commit and now is not described.)
  // Never fails: what cannot be read stays empty.
  Writer Identify(const netlink::RulesetChange& change) const;

 private:
  std::string proc_;
  bool in_initial_namespace_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_WRITER_H_
