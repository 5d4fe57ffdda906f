// SPDX-License-Identifier: Apache-2.0
//
// A child process to give privileges up in, and what the kernel says about a thread.
#ifndef KIPT_TESTS_KERNEL_UNPRIVILEGED_CHILD_H_
#define KIPT_TESTS_KERNEL_UNPRIVILEGED_CHILD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace kipt::testing {

// What `body` returns when it runs in a forked child; more, if the child ends in another way.
std::string InChild(const std::function<std::string()>& body);

// Makes this process run as user and group 65534, without any capability but `capability`, which is
// ambient, as systemd starts a service with User= and AmbientCapabilities=. What went wrong.
std::string BecomeNobodyWith(int capability);

// proc_pid_status(5).
class ThreadStatus {
 public:
  explicit ThreadStatus(const std::string& path = "/proc/thread-self/status");

  // Empty where there is no such line.
  std::string Text(const std::string& key) const;
  uint64_t Hex(const std::string& key) const;

 private:
  std::map<std::string, std::string> lines_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_KERNEL_UNPRIVILEGED_CHILD_H_
