// SPDX-License-Identifier: Apache-2.0
#include "agent/process/visited_namespace.h"

#include <pthread.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/process/network_namespace.h"

namespace kipt::agent {
namespace {

// A thread starts with the signal mask of the one that starts it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

absl::StatusOr<VisitedNamespace> VisitedNamespace::Open(const std::string& path) {
  absl::StatusOr<OwnedFd> fd = OpenNetworkNamespace(path);
  if (!fd.ok()) return fd.status();
  struct stat about = {};
  if (fstat(fd->get(), &about) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("stat ", path));
  VisitedNamespace visited(path, *std::move(fd), about.st_ino);
  // Now is when a wrong path or a missing capability can be told to who gave the path.
  if (absl::Status status = visited.Visit([] {}); !status.ok()) return status;
  return visited;
}

absl::Status VisitedNamespace::Visit(absl::FunctionRef<void()> work) const {
  absl::Status status;
  const auto visit = [&] {
    status = EnterNetworkNamespace(fd_, path_);
    if (status.ok()) work();
  };
  try {
    const SignalsBlocked blocked;
    // Who has entered another namespace does not go back: the thread ends.
    std::thread(visit).join();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread to enter ", path_, " with: ", error.what()));
  }
  return status;
}

}  // namespace kipt::agent
