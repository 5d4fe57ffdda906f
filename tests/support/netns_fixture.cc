// SPDX-License-Identifier: Apache-2.0
#include "tests/support/netns_fixture.h"

#include <cstdlib>
#include <utility>

namespace kipt::testing {

void NetnsTest::SetUp() {
  const absl::Status status = Netns::MoveToNew();
  ASSERT_TRUE(status.ok()) << status;
}

Netns NetnsTest::NewNetns() {
  absl::StatusOr<Netns> netns = Netns::Create();
  if (netns.ok()) return *std::move(netns);
  // Never the machine's own namespace: without a fresh one nothing may run.
  ADD_FAILURE() << netns.status();
  std::abort();
}

}  // namespace kipt::testing
