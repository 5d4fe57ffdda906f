// SPDX-License-Identifier: Apache-2.0
//
// Throwaway network namespaces: each ends with the last descriptor and process that is in it.
#ifndef KIPT_TESTS_SUPPORT_NETNS_H_
#define KIPT_TESTS_SUPPORT_NETNS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kipt::testing {

// Holds one network namespace alive by an open file. Move-only.
class Netns {
 public:
  // A new, empty namespace with its loopback interface up. The calling thread stays where it is.
  //
  // PermissionDenied: CAP_SYS_ADMIN is missing.
  static absl::StatusOr<Netns> Create();
  // The calling thread moves to a new one, loopback up, for good. PermissionDenied as above.
  static absl::Status MoveToNew();
  // The calling thread's own.
  static absl::StatusOr<Netns> Current();

  Netns(Netns&& other) noexcept;
  Netns& operator=(Netns&& other) noexcept;
  ~Netns();

  // A path for --netns: /proc/PID/fd/N, good as long as this object lives.
  std::string Path() const;

  // Moves the calling thread into this namespace, for good.
  absl::Status Enter() const;

 private:
  explicit Netns(int fd) : fd_(fd) {}
  int fd_;
};

// The calling thread is inside `netns` while this lives, and afterwards back where it was. Programs
// started meanwhile run in `netns`; sockets opened meanwhile stay in it. Where the kernel refuses
// either way, the process ends: what follows would happen to the wrong namespace.
class InNetns {
 public:
  explicit InNetns(const Netns& netns);
  ~InNetns();
  InNetns(const InNetns&) = delete;
  InNetns& operator=(const InNetns&) = delete;

 private:
  Netns back_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_NETNS_H_
