// SPDX-License-Identifier: Apache-2.0
//
// Carries out what the generator says, as a kube-proxy would, in a network namespace and with a
// /run of the test's own.
#ifndef KIPT_TESTS_SKEW_SELFTEST_PROXY_KERNEL_FIXTURE_H_
#define KIPT_TESTS_SKEW_SELFTEST_PROXY_KERNEL_FIXTURE_H_

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/skew/actors/iptables_calls.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/private_run.h"

namespace kipt::skew {

using Lines = std::vector<std::string>;

inline std::string FamilyName(testing::IpFamily family) {
  return family == testing::IpFamily::kIpv4 ? "v4" : "v6";
}

class ProxyKernelTest : public testing::NetnsTest {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (!HasFatalFailure()) private_run_.emplace();
  }

  static void Ensure(const testing::Iptables& iptables, const std::vector<ProxyJump>& jumps) {
    EXPECT_EQ(testing::RunKubelet(iptables, StepsOf(jumps)).error, "");
  }

  // 1: it stands.
  static void EnsureChain(const testing::Iptables& iptables, const std::string& table,
                          const std::string& chain) {
    const testing::ProgramResult made = iptables.Run({"-N", chain, "-t", table});
    EXPECT_LE(made.exit_code, 1) << made;
  }

  // What the monitor makes; a kube-proxy's first sync in an empty namespace comes before.
  static void MakeCanaries(const testing::Iptables& iptables) {
    for (const char* table : {"mangle", "nat", "filter"}) {
      EnsureChain(iptables, table, "KUBE-PROXY-CANARY");
    }
  }

  static void Restore(const testing::Iptables& iptables, const std::string& text) {
    const testing::ProgramResult result = iptables.Restore(text);
    EXPECT_EQ(result.exit_code, 0) << result << text;
  }

  static Lines Saved(const testing::Iptables& iptables) {
    const testing::ProgramResult saved = iptables.Save();
    EXPECT_EQ(saved.exit_code, 0) << saved;
    return ComparableLines(saved.out);
  }

  static Lines NatChains(const testing::Iptables& iptables) {
    const std::string start = "nat: :";
    Lines chains;
    for (const std::string& line : Saved(iptables)) {
      if (line.rfind(start, 0) != 0) continue;
      chains.push_back(line.substr(start.size(), line.find(' ', start.size()) - start.size()));
    }
    return chains;
  }

  static testing::Iptables Of(testing::IpFamily family,
                              testing::IptablesMode mode = testing::IptablesMode::kNft) {
    return {.family = family, .mode = mode};
  }

 private:
  std::optional<testing::PrivateRun> private_run_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_SELFTEST_PROXY_KERNEL_FIXTURE_H_
