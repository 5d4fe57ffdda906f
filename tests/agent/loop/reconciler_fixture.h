// SPDX-License-Identifier: Apache-2.0
//
// A reconciler over the kernel in memory, in time that only passes when it sleeps.
#ifndef KIPT_TESTS_AGENT_LOOP_RECONCILER_FIXTURE_H_
#define KIPT_TESTS_AGENT_LOOP_RECONCILER_FIXTURE_H_

#include "agent/loop/reconciler.h"
#include "tests/agent/loop/fake_time.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {

inline PolicyInput Both(Mode mode) { return Wanting(mode, netlink::kFamilies, {}); }

class ReconcilerFixture : public ::testing::Test {
 protected:
  SyncReport Sync(Mode mode) { return SyncBy(kernel_, mode); }
  SyncReport SyncBy(netlink::Backend& backend, Mode mode) {
    return Reconciler(&backend, time_.clock()).Sync(Both(mode));
  }

  FakeBackend kernel_;
  FakeTime time_;
};

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_LOOP_RECONCILER_FIXTURE_H_
