// SPDX-License-Identifier: Apache-2.0
//
// A test node, and rules on it, for each iptables mode and IP family.
#ifndef KIPT_TESTS_SKEW_SELFTEST_NODE_FIXTURE_H_
#define KIPT_TESTS_SKEW_SELFTEST_NODE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/skew/node/test_node.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/private_run.h"
#include "tests/support/run_program.h"

namespace kipt::skew {

using testing::IpFamily;
using testing::IptablesMode;

class NodeTest : public testing::NetnsTest,
                 public ::testing::WithParamInterface<std::tuple<IptablesMode, IpFamily>> {
 protected:
  static IptablesMode mode() { return std::get<0>(GetParam()); }
  static IpFamily family() { return std::get<1>(GetParam()); }

  void SetUp() override {
    NetnsTest::SetUp();
    absl::StatusOr<std::unique_ptr<TestNode>> node = TestNode::Create();
    ASSERT_TRUE(node.ok()) << node.status();
    node_ = *std::move(node);
  }

  void Run(const std::vector<std::string>& argv) {
    const testing::InNetns inside(node_->At(Place::kNode));
    const testing::ProgramResult result = testing::RunProgram(argv);
    ASSERT_EQ(result.exit_code, 0) << absl::StrJoin(argv, " ") << ": " << result;
  }
  void SetRouteLocalnet() {
    Run({"sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet"});
  }

  void Load(const std::string& text, IpFamily of) {
    const testing::InNetns inside(node_->At(Place::kNode));
    const testing::ProgramResult loaded =
        testing::Iptables{.family = of, .mode = mode()}.Restore(text);
    ASSERT_EQ(loaded.exit_code, 0) << loaded << text;
  }
  void Load(const std::string& text) { Load(text, family()); }

  const testing::PrivateRun own_lock_;
  std::unique_ptr<TestNode> node_;
};

inline auto InModes() { return ::testing::Values(IptablesMode::kNft, IptablesMode::kLegacy); }
inline auto EveryModeAndFamily() {
  return ::testing::Combine(InModes(), ::testing::Values(IpFamily::kIpv4, IpFamily::kIpv6));
}
inline std::string NameOfRow(
    const ::testing::TestParamInfo<std::tuple<IptablesMode, IpFamily>>& info) {
  return absl::StrCat(testing::NameOf(std::get<0>(info.param)),
                      std::get<1>(info.param) == IpFamily::kIpv6 ? "Ipv6" : "Ipv4");
}

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_SELFTEST_NODE_FIXTURE_H_
