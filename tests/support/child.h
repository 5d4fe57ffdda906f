// SPDX-License-Identifier: Apache-2.0
//
// Child processes of a test. None outlives the test, even one that is killed.
#ifndef KIPT_TESTS_SUPPORT_CHILD_H_
#define KIPT_TESTS_SUPPORT_CHILD_H_

#include <sys/types.h>

namespace kipt::testing {

// To be called first in a new child; `parent` is the process that made it. From then on the kernel
// kills this process when the parent's thread ends that made it. A change of user ends that, and
// what this process starts is not included: commands for both have a flag, `setpriv
// --pdeathsig=keep` and `unshare --kill-child`; in a shell, `setpriv --pdeathsig KILL` does.
void DieWithParent(pid_t parent);

// A child that does nothing until it is killed.
pid_t StartPausedChild();

struct StandardStreams {
  int in = -1;
  int out = -1;
  int err = -1;
};

// Starts argv[0] (looked up in PATH where it has no slash) as the leader of a process group of its
// own, in the calling thread's namespaces. It dies with that thread. -1 and errno where there is no
// process; a program that cannot be run ends with 127 and its reason on standard error.
pid_t StartChild(char* const* argv, char* const* environment, const StandardStreams& streams);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_CHILD_H_
