// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/host_program.h
//
// Which iptables the host's `iptables` is, by its symbolic links alone: it is never run. A
// container's own program says nothing about its node, so it is never asked.
#ifndef KIPT_AGENT_DETECT_HOST_PROGRAM_H_
#define KIPT_AGENT_DETECT_HOST_PROGRAM_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "agent/detect/iptables_mode.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

struct HostRoot {
  // The directory in which the host's file system is seen; empty where this process sees none.
  std::string directory;
  // Why not, then.
  std::string problem;

  bool operator==(const HostRoot&) const = default;
};

// How a process knows that it is not in a container.
struct NamespacePaths {
  std::string own_pid_namespace = "/proc/thread-self/ns/pid";
  std::string own_mount_namespace = "/proc/thread-self/ns/mnt";
  std::string init_mount_namespace = "/proc/1/ns/mnt";
  std::string own_root = "/";
  std::string init_root = "/proc/1/root";
  // PROC_PID_INIT_INO of linux/proc_ns.h: the machine's first pid namespace.
  uint64_t initial_pid_namespace = 0xEFFFFFFC;
};

// "/" where this process is in the host's pid and mount namespaces and sees the root of process 1;
// looking needs the right to trace process 1.
HostRoot OwnHostRoot(const NamespacePaths& paths = {});

struct HostProgram {
  // kNft or kLegacy; kUnknown: there is a program and it cannot be told; empty: there is none.
  std::optional<IptablesMode> mode;
  // "/usr/sbin/iptables -> /etc/alternatives/iptables -> ...".
  std::string text;

  bool operator==(const HostProgram&) const = default;
};

// iptables for IPv4, ip6tables for IPv6. Links are followed within `host_root`: an absolute one
// begins there, and none leads out of it.
HostProgram FindHostProgram(absl::string_view host_root, netlink::Family family);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_HOST_PROGRAM_H_
