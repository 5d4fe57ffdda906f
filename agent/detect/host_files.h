// SPDX-License-Identifier: Apache-2.0
//
// Reads the host's files: which iptables its `iptables` is, and which CNI configurations name a
// kubelet chain.
#ifndef KIPT_AGENT_DETECT_HOST_FILES_H_
#define KIPT_AGENT_DETECT_HOST_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/detect/iptables_mode.h"
#include "agent/policy/dependents.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// ---- the host's files ----

struct HostRoot {
  // Where this process sees the host's file system; empty if it does not.
  std::string directory;
  // Why `directory` is empty.
  std::string problem;
};

// PROC_PID_INIT_INO of linux/proc_ns.h: the machine's first PID namespace.
inline constexpr uint64_t kInitialPidNamespace = 0xEFFFFFFC;

// "/" if this process is in the host's PID and mount namespaces and its `root` is that of process
// 1, which only a process that may trace process 1 can read.
HostRoot OwnHostRoot(const std::string& proc = "/proc", const std::string& root = "/",
                     uint64_t initial_pid_namespace = kInitialPidNamespace);

// ---- its iptables program ----

struct HostProgram {
  // kNft or kLegacy; kUnknown: there is a program of unknown kind; empty: there is none.
  std::optional<IptablesMode> mode;
  // "/usr/sbin/iptables -> /etc/alternatives/iptables -> ...".
  std::string text;
  // A shortage of memory or descriptors, which may pass: the program may be of either kind.
  bool unreadable = false;
};

// Which iptables (for IPv6, ip6tables) the host has, by symbolic links within `host_root` only:
// nothing is run.
HostProgram FindHostProgram(absl::string_view host_root, netlink::Family family);

// ---- its CNI configurations ----
//
// A configuration names a kubelet chain in `externalSetMarkChain`, an option of the portmap plugin
// that counts for any plugin here. The chain must exist when the next pod with a host port starts.

// The chains that one configuration, a list ("plugins": [...]) or a single plugin, names; `file` is
// its name in the result. Sets `network` to the network's name if it is a list whose plugins may
// also be files of their own. InvalidArgument: not JSON, no object, or an externalSetMarkChain that
// is no text.
absl::StatusOr<std::vector<CniReference>> ParseCniConfig(
    absl::string_view file, absl::string_view text, std::optional<std::string>* network = nullptr);

// Reads *.conflist, *.conf and *.json in the `given` directories or, without any, in the usual ones
// under `root` (/etc/cni/net.d, and those of k3s, RKE2, MicroK8s, ...), if they exist. Like libcni
// since 1.3 (CNI 1.1), also reads NETWORK/*.conf for each *.conflist without
// loadOnlyInlinedPlugins. What cannot be read or parsed, is larger than 1 MiB, or has an invalid
// network name is a problem, and so is a given directory without any of these files.
CniConfigs ReadNodeCniConfigs(const HostRoot& root, const std::vector<std::string>& given = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_HOST_FILES_H_
