// SPDX-License-Identifier: Apache-2.0
//
// An act in a process of its own, as the real program runs it: the agent looks at who writes.
#ifndef KIPT_TESTS_SKEW_ACTORS_OWN_PROCESS_H_
#define KIPT_TESTS_SKEW_ACTORS_OWN_PROCESS_H_

#include <functional>

#include "tests/skew/actors/actor.h"

namespace kipt::skew {

// Runs `act` in a child process called `name` and waits for its end. The child has the calling
// thread's namespaces.
Act InProcess(const char* name, const std::function<Act()>& act);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ACTORS_OWN_PROCESS_H_
