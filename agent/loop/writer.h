// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/writer.h
//
// Who wrote: from the process ID and command that the kernel reports with a commit to what an
// operator can act upon. Reads /proc, and must do so before the writer has ended: at once.
#ifndef KIPT_AGENT_LOOP_WRITER_H_
#define KIPT_AGENT_LOOP_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "netlink/backend.h"

namespace kipt::agent {

// Everything that came from the writer's own memory (comm, arguments) is escaped (C escapes, one
// line, valid UTF-8) and cut: it is a stranger's text in our log.
struct Writer {
  // In the initial PID namespace; 0 where not known.
  uint32_t pid = 0;
  // comm, as the kernel reported it with the commit: "iptables-nft-re". Never empty; "unknown"
  // where the kernel said nothing.
  std::string command = "unknown";
  // All below are empty or 0 where the process was gone already, or its ID reused, or ours is not
  // the initial PID namespace.
  //
  // The arguments, separated by spaces, quoted where they contain any; at most 256 bytes, "..." at
  // the end of what was cut.
  std::string command_line = {};
  // Of cgroups(7), the innermost that tells something: "firewalld.service",
  // "container 0123456789ab of pod 12345678-1234-...", "container 0123456789ab", "session-3.scope".
  std::string unit = {};
  uint32_t parent_pid = 0;
  // The parent's comm. Where a firewall manager runs iptables-restore, this is what names it.
  std::string parent_command = {};

  bool operator==(const Writer&) const = default;
};

// `nft (PID 4242: "nft flush ruleset"; in session-3.scope; started by bash, PID 4200)`, what is not
// known left out.
std::string ToString(const Writer& writer);

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
