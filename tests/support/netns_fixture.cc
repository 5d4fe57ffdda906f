// SPDX-License-Identifier: Apache-2.0
#include "tests/support/netns_fixture.h"

#include <cstdlib>
#include <fstream>
#include <utility>

#include "tests/support/run_program.h"

namespace kipt::testing {

void NetnsTest::SetUp() {
  const absl::Status status = Netns::MoveToNew();
  ASSERT_TRUE(status.ok()) << status;
}

void PrivateRunTest::SetUp() {
  NetnsTest::SetUp();
  if (!HasFatalFailure()) private_run_.emplace();
}

Netns NewNetns() {
  absl::StatusOr<Netns> netns = Netns::Create();
  if (netns.ok()) return *std::move(netns);
  ADD_FAILURE() << netns.status();
  std::abort();
}

void SetSysctl(const std::string& name, const std::string& value) {
  std::ofstream file("/proc/sys/net/" + name);
  file << value << std::flush;
  EXPECT_TRUE(file.good()) << name;
}

void MustRun(const std::vector<std::string>& argv, const std::string& input) {
  const ProgramResult result = RunProgram(argv, input);
  EXPECT_EQ(result.exit_code, 0) << result;
}

}  // namespace kipt::testing
