// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/visited_namespace.h
//
// Work inside another network namespace for a caller whose own thread must not leave its own: a
// host program's, whose next socket would be opened in the wrong place if the way back failed.
#ifndef KIPT_AGENT_PROCESS_VISITED_NAMESPACE_H_
#define KIPT_AGENT_PROCESS_VISITED_NAMESPACE_H_

#include <sys/types.h>

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/process/owned_fd.h"

namespace kipt::agent {

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

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_VISITED_NAMESPACE_H_
