// SPDX-License-Identifier: Apache-2.0
//
// Network namespaces: listing them, entering one, working in one without moving the caller, and
// noticing that a thread has left.
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

// Moves the calling thread into the network namespace at `path`, such as /run/netns/NAME
// (setns(2)). Open sockets stay where they were made.
//
// NotFound: nothing is at `path`. InvalidArgument: it is no network namespace. PermissionDenied:
// CAP_SYS_ADMIN is missing in one of the two namespaces.
absl::Status EnterNetworkNamespace(const std::string& path);

// Remembers the calling thread's network namespace, in which programs start.
class NetnsGuard {
 public:
  NetnsGuard();

  // What keeps it from being checked, unless /proc is missing. ResourceExhausted: no descriptor.
  absl::Status Opened() const;
  // FailedPrecondition: the calling thread is in another one now. Unavailable: /proc is missing.
  absl::Status Check() const;

 private:
  // Keeps the namespace alive, so that its number is not reused.
  OwnedFd fd_;
  int error_;
};

// Works in another network namespace without moving the caller's thread, which might fail to
// return.
class VisitedNamespace {
 public:
  // Keeps the namespace at `path` alive. Enters it once, to find a wrong path or a missing
  // capability. Errors are EnterNetworkNamespace's, and ResourceExhausted: no thread could be
  // started.
  static absl::StatusOr<VisitedNamespace> Open(const std::string& path);

  // Its number in nsfs.
  ino_t inode() const { return inode_; }

  // Does `work`, which must not throw, on a new thread without signals in the namespace, and waits
  // for its end. An error, as Open's, means that `work` was not done.
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
  // Its number in nsfs, as `readlink /proc/PID/ns/net` shows it; unique while it lives.
  uint64_t inode = 0;
  // "/run/netns/pod1" (ip-netns(8)); without a name, its first process: "pid 123 (nginx)".
  std::string name = {};
  // For EnterNetworkNamespace. A process number may be reused: see VisitListed.
  std::string path = {};
  // The calling thread is in it.
  bool own = false;

  bool operator==(const NetworkNamespace&) const = default;
};

struct NetworkNamespaces {
  // Each once: the own one first, then those with a name, by name, then by process number.
  std::vector<NetworkNamespace> found = {};
  // Sentences about what could not be read; `found` may lack namespaces then.
  std::vector<std::string> problems = {};
};

struct NetworkNamespacePaths {
  // A mount of proc(5). Processes of other PID namespaces are not seen.
  std::string proc = "/proc";
  // Where ip-netns(8) and the container runtimes keep names. It need not exist.
  std::string names = "/run/netns";
  // Not /proc/self, which is the main thread's.
  std::string own = "/proc/thread-self/ns/net";
};

// The kernel has no list of namespaces, so these are the ones of all names and of all processes'
// main threads. Reading other users' processes needs CAP_SYS_PTRACE. A process that ends meanwhile
// is no problem.
NetworkNamespaces ListNetworkNamespaces(const NetworkNamespacePaths& paths = {});

// VisitedNamespace::Visit of one that was listed. NotFound: it has ended since.
absl::Status VisitListed(const NetworkNamespace& listed, absl::FunctionRef<void()> work);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_NETWORK_NAMESPACES_H_
