// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/network_namespaces.h
//
// The network namespaces of a machine, as far as they can be seen: the kernel lists none of them,
// so they are found by what keeps them alive.
#ifndef KIPT_AGENT_PROCESS_NETWORK_NAMESPACES_H_
#define KIPT_AGENT_PROCESS_NETWORK_NAMESPACES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace kipt::agent {

struct NetworkNamespace {
  // Its number in nsfs: what `readlink /proc/PID/ns/net` shows. Not given again while it lives.
  uint64_t inode = 0;
  // "/run/netns/pod1" where it has a name (ip-netns(8)); else its process of the lowest number,
  // "pid 123 (nginx)".
  std::string name = {};
  // To be opened by EnterNetworkNamespace. A process may end, and its number become another's: who
  // is in looks at the inode again.
  std::string path = {};
  // The calling thread is in it.
  bool own = false;

  bool operator==(const NetworkNamespace&) const = default;
};

struct NetworkNamespaces {
  // Each once: the own one first, then those with a name, by name, then by process number.
  std::vector<NetworkNamespace> found = {};
  // What could not be looked at, each a sentence: there may be namespaces that are not in `found`.
  std::vector<std::string> problems = {};

  bool operator==(const NetworkNamespaces&) const = default;
};

struct NetworkNamespacePaths {
  // Where proc(5) is mounted: processes of other pid namespaces are not seen.
  std::string proc = "/proc";
  // Where ip-netns(8) and the container runtimes keep names. It need not exist.
  std::string names = "/run/netns";
  // Not /proc/self: that is the main thread's.
  std::string own = "/proc/thread-self/ns/net";
};

// Those of all processes (of their main threads) and all names. Seeing those of other users'
// processes needs CAP_SYS_PTRACE. A process that ends meanwhile is no problem.
NetworkNamespaces ListNetworkNamespaces(const NetworkNamespacePaths& paths = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_NETWORK_NAMESPACES_H_
