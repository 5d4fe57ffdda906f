// SPDX-License-Identifier: Apache-2.0
//
// The settings of `run`: where they come from, and which of them can change while it runs.
#include <string>

#include "absl/time/time.h"
#include "agent/config/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/agent/config/config_files.h"

namespace kipt::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DaemonSettingsTest, ComeFromTheFileAndFlagsWinOverIt) {
  const ConfigFiles node;
  const std::string file = Agent(
      "iptablesSyncPeriod: 90s\nwatch: poll\nobserve: true\nhealthzBindAddress: ''\n"
      "metricsBindAddress: '[::1]:0'\n");
  const auto by_file = node.Load({}, file);
  ASSERT_TRUE(by_file.ok()) << by_file.status();
  EXPECT_EQ(by_file->iptables_sync_period, absl::Seconds(90));
  EXPECT_EQ(by_file->watch, netlink::WatchMode::kPoll);
  EXPECT_TRUE(by_file->observe);
  EXPECT_EQ(by_file->healthz_bind_address, "");
  EXPECT_EQ(by_file->metrics_bind_address, "[::1]:0");
  const auto by_flags = node.Load({.iptables_sync_period = absl::Hours(24),
                                   .watch = "events",
                                   .observe = false,
                                   .healthz_bind_address = "0.0.0.0:65535",
                                   .metrics_bind_address = ""},
                                  file);
  ASSERT_TRUE(by_flags.ok()) << by_flags.status();
  EXPECT_EQ(by_flags->iptables_sync_period, absl::Hours(24));
  EXPECT_EQ(by_flags->watch, netlink::WatchMode::kEvents);
  EXPECT_FALSE(by_flags->observe);
  EXPECT_EQ(by_flags->healthz_bind_address, "0.0.0.0:65535");
  EXPECT_EQ(by_flags->metrics_bind_address, "");
}

TEST(DaemonSettingsTest, AreNotReadFromAKubeletConfiguration) {
  const ConfigFiles node;
  const auto config =
      node.Load({}, Kubelet("iptablesSyncPeriod: 1\nhealthzBindAddress: 0.0.0.0\n"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->iptables_sync_period, absl::Minutes(1));
  EXPECT_EQ(config->healthz_bind_address, "127.0.0.1:10270");
}

TEST(WhatNeedsARestartTest, IsWhatIsFixedAtStartWithBothValues) {
  const ConfigFiles node;
  const Config running = *node.Load(Flags{});
  const Config wanted = *node.Load(Flags{.iptables_mode = "legacy",
                                         .host_root = "/",
                                         .watch = "poll",
                                         .healthz_bind_address = "",
                                         .metrics_bind_address = "[::]:1"});
  EXPECT_THAT(WhatNeedsARestart(running, wanted),
              ElementsAre("iptablesMode: auto now, legacy desired",
                          "hostRoot: (own) now, / desired", "watch: events now, poll desired",
                          "healthzBindAddress: 127.0.0.1:10270 now, (none) desired",
                          "metricsBindAddress: 127.0.0.1:10271 now, [::]:1 desired"));
}

TEST(WhatNeedsARestartTest, IsNothingWhereOnlyRulesAndTimesChange) {
  const ConfigFiles node;
  const Config running = *node.Load(Flags{});
  const Config wanted = *node.Load(Flags{.feature_gates = {kOff},
                                         .make_iptables_util_chains = false,
                                         .iptables_masquerade_bit = 3,
                                         .emulated_version = "1.26",
                                         .ip_families = "ipv4",
                                         .iptables_sync_period = absl::Seconds(5)});
  EXPECT_FALSE(running == wanted);
  EXPECT_THAT(WhatNeedsARestart(running, wanted), IsEmpty());
  EXPECT_THAT(WhatNeedsARestart(wanted, running), IsEmpty());
}

}  // namespace
}  // namespace kipt::agent
