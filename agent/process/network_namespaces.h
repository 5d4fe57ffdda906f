// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/network_namespaces.h
//
// Network namespaces: which there are (the kernel lists none, so they are found by what keeps them
// alive), entering one, working in one for a caller who stays, and noticing that a thread has left.
#ifndef KIPT_AGENT_PROCESS_NETWORK_NAMESPACES_H_
#define KIPT_AGENT_PROCESS_NETWORK_NAMESPACES_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/process/files.h"

namespace kipt::agent {

// Moves the calling thread, and no other, into the network namespace at `path` (as /run/netns/NAME
// or /proc/PID/ns/net): setns(2). Sockets opened before stay where they were.
//
// NotFound: nothing is at `path`. InvalidArgument: what is there is no network namespace.
// PermissionDenied: CAP_SYS_ADMIN is missing, in either of the two namespaces.
absl::Status EnterNetworkNamespace(const std::string& path);

// Remembers the calling thread's network namespace. A program is started in that of the thread that
// starts it, so whoever is to stay in one namespace has to be called from there.
class NetnsGuard {
 public:
  NetnsGuard();

  // FailedPrecondition: the calling thread is in another one now. Unavailable: that cannot be seen.
  absl::Status Check() const;

 private:
  // Keeps the namespace, and so its number from being given again.
  OwnedFd fd_;
};

// Work inside another network namespace for a caller whose own thread must not leave its own: a
// host program's, whose next socket would be opened in the wrong place if the way back failed.
class VisitedNamespace {
 public:
  // Holds the namespace at `path`, which lives as long as this does, even if its name and processes
  // go. It has been entered once when this returns. Errors are EnterNetworkNamespace's, and
  // ResourceExhausted where no thread was to be had.
  static absl::StatusOr<VisitedNamespace> Open(const std::string& path);

  // Its number in nsfs.
  ino_t inode() const { return inode_; }

  // Does `work` on a thread that is in the namespace, and returns when that thread has ended; the
  // calling thread waits, and never moves. Signals of the process are not delivered to that thread.
  // `work` must not throw. An error, as Open's: `work` was not done.
  //
  // Safe for use by several threads at once.
  absl::Status Visit(absl::FunctionRef<void()> work) const;

 private:
  VisitedNamespace(std::string path, OwnedFd fd, ino_t inode)
      : path_(std::move(path)), fd_(std::move(fd)), inode_(inode) {}

  std::string path_;
  OwnedFd fd_;
  ino_t inode_;
};

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
