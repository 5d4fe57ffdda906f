// SPDX-License-Identifier: Apache-2.0
//
// Actors in a network namespace and with a /run of the test's own.
#ifndef KIPT_TESTS_SKEW_SELFTEST_ACTOR_FIXTURE_H_
#define KIPT_TESTS_SKEW_SELFTEST_ACTOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/interop/agent_fixture.h"
#include "tests/skew/actors/actors.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/saved_rules.h"

namespace kipt::skew {

using testing::IpFamily;
using testing::IptablesMode;

// In each iptables mode.
class ActorTest : public testing::AgentTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static IptablesChoice Choice() { return {.mode = GetParam()}; }
  static testing::Iptables V4() { return Choice().Of(IpFamily::kIpv4); }
  static testing::Iptables V6() { return Choice().Of(IpFamily::kIpv6); }

  static testing::SavedRules Saved(const testing::Iptables& iptables) {
    return testing::SavedRules::Of(iptables);
  }
  static ProxyActorSettings As(int minor, ProxyMode mode = ProxyMode::kIptables) {
    return {.version = {{1, minor}, mode},
            .iptables = Choice(),
            .pod_cidr_v4 = "10.180.0.0/16",
            .node_ip_v4 = "192.168.50.2",
            .node_ip_v6 = "fd00:50::2"};
  }
  static std::unique_ptr<NodeAgent> StartKubelet(int minor);
  static void Run(const testing::Iptables& iptables, const std::vector<std::string>& arguments) {
    const testing::ProgramResult result = iptables.Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result;
  }
  static std::vector<std::string> RulesIn(const testing::Iptables& iptables,
                                          const std::string& table, const std::string& chain) {
    return Saved(iptables).Rules(table, chain);
  }
};

inline std::string ModeName(const ::testing::TestParamInfo<IptablesMode>& row) {
  return testing::TestNameOf(row.param);
}

inline KubeletVersion KubeletOf(int minor, std::optional<bool> gate = {}) {
  return {{1, minor}, gate};
}

inline ::testing::AssertionResult Went(const Act& act) {
  if (act.ok) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << act.error;
}

inline std::unique_ptr<NodeAgent> ActorTest::StartKubelet(int minor) {
  std::unique_ptr<NodeAgent> kubelet =
      NewKubelet({.version = KubeletOf(minor), .iptables = Choice()});
  EXPECT_TRUE(Went(kubelet->Start()));
  return kubelet;
}

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_SELFTEST_ACTOR_FIXTURE_H_
