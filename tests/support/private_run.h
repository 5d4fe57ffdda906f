// SPDX-License-Identifier: Apache-2.0
//
// A /run of one's own. Network namespaces do not separate /run/xtables.lock, the one lock of
// all legacy iptables: without this a test waits for the machine's own writers, and they for it. A
// daemon's state directory, where the machine has one, is the test's own too.
#ifndef KIPT_TESTS_SUPPORT_PRIVATE_RUN_H_
#define KIPT_TESTS_SUPPORT_PRIVATE_RUN_H_

namespace kipt::testing {

// While this lives, the calling thread and the programs and threads it starts are in a mount
// namespace of their own with an empty tmpfs on /run. (So the agent does not take itself to be on
// the host, and asks no iptables program which one the host uses.) To be destroyed by the thread
// that made it, when the threads started meanwhile have ended. Where there is no such namespace to
// be had, the process ends: no test may go on with the machine's lock.
class PrivateRun {
 public:
  PrivateRun();
  ~PrivateRun();
  PrivateRun(const PrivateRun&) = delete;
  PrivateRun& operator=(const PrivateRun&) = delete;

 private:
  int mounts_before_;
  int root_before_;
  int directory_before_;  // setns() changes to the root directory
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_PRIVATE_RUN_H_
