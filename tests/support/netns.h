// SPDX-License-Identifier: Apache-2.0
//
// File: tests/support/netns.h
//
// Throwaway network namespaces. Nothing a test does to nf_tables can reach the machine's own rules:
// a fixture that gets no namespace of its own fails, it does not go on and it does not skip.
#ifndef KIPT_TESTS_SUPPORT_NETNS_H_
#define KIPT_TESTS_SUPPORT_NETNS_H_

#include <gtest/gtest.h>

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
// started meanwhile run in `netns`; sockets opened meanwhile stay in it.
class InNetns {
 public:
  explicit InNetns(const Netns& netns);
  ~InNetns();
  InNetns(const InNetns&) = delete;
  InNetns& operator=(const InNetns&) = delete;

 private:
  absl::StatusOr<Netns> back_;
};

// Each test runs in a fresh network namespace of its own, loopback up. For tests of one thread: a
// namespace belongs to a thread.
class NetnsTest : public ::testing::Test {
 protected:
  void SetUp() override;

  // One more fresh namespace; fails the test where there is none to be had.
  static Netns NewNetns();
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_NETNS_H_
