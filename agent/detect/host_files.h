// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/host_files.h
//
// What the host's files tell: which iptables its `iptables` is, and which CNI configurations name a
// chain of kubelet's.
#ifndef KIPT_AGENT_DETECT_HOST_FILES_H_
#define KIPT_AGENT_DETECT_HOST_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/detect/iptables_mode.h"
#include "agent/policy/claims.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// ---- its program ----
//
// Which iptables the host's `iptables` is, by its symbolic links alone: it is never run. A
// container's own program says nothing about its node, so it is never asked.

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

// ---- its CNI configurations ----
//
// Which CNI configurations name a chain of kubelet's: `externalSetMarkChain` of the portmap plugin
// (containernetworking/plugins, plugins/meta/portmap) is the one way there is, and what it names
// must exist when the next pod with a host port starts. Any plugin's is believed.

// Where the CNI configurations of a node are found, relative to its root: /etc/cni/net.d
// (containerd, CRI-O), and the places of distributions that move it (k3s, RKE2, MicroK8s, ...).
absl::Span<const absl::string_view> KnownCniDirectories();

// The chains that one configuration names: a list ("plugins": [...]) or a single plugin. Takes any
// bytes. `file` only names it in the answer.
// InvalidArgument: not JSON, or no object, or an externalSetMarkChain that is no text.
absl::StatusOr<std::vector<CniReference>> ParseCniConfig(absl::string_view file,
                                                         absl::string_view text);

// Reads *.conflist, *.conf and *.json in the `given` directories or, where none are given, in those
// of the node: KnownCniDirectories under `root`, or a problem where the node's files cannot be seen
// from here. As libcni does, and since libcni 1.3 (CNI 1.1) also NETWORK/*.conf for the network of
// each *.conflist that does not have loadOnlyInlinedPlugins. A directory that does not exist is
// left out; one that cannot be read, a file that cannot be read or parsed, or is larger than 1 MiB,
// and a name that is no network's, is a problem.
CniConfigs ReadNodeCniConfigs(const HostRoot& root, const std::vector<std::string>& given = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_HOST_FILES_H_
