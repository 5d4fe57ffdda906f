// SPDX-License-Identifier: Apache-2.0
//
// A kubelet program as an actor: the stand-in of tests/systemd, in place of a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/skew/actors/third_parties.h"
#include "tests/skew/selftest/actor_fixture.h"
#include "tests/support/scratch_directory.h"

namespace kipt::skew {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ProgramKubeletTest : public ActorTest {
 protected:
  static KubeletSettings Settings() { return {.version = {{1, 24}, {}}, .iptables = Choice()}; }

  void SetUp() override {
    ActorTest::SetUp();
    folder_.emplace();
  }
  std::unique_ptr<NodeAgent> Started() {
    EXPECT_TRUE(
        folder_->WriteFile("kubelet",
                           absl::StrCat("#!/bin/sh\nFOLDER=", folder_->Path(""),
                                        " PERIOD=0.2 exec " KIPT_TESTS_DIR "/systemd/kubelet\n"),
                           /*executable=*/true));
    std::unique_ptr<NodeAgent> kubelet = NewProgramKubelet(folder_->Path("kubelet"), Settings());
    EXPECT_TRUE(Went(kubelet->Start()));
    return kubelet;
  }
  static void ExpectItsRules() {
    for (const testing::Iptables& iptables : {V4(), V6()}) {
      EXPECT_EQ(RulesIn(iptables, "nat", "KUBE-POSTROUTING").size(), 3U);
      EXPECT_EQ(RulesIn(iptables, "nat", "KUBE-MARK-DROP").size(), 1U);
      EXPECT_TRUE(Saved(iptables).HasChain("mangle", "KUBE-IPTABLES-HINT"));
    }
    EXPECT_EQ(RulesIn(V4(), "filter", "KUBE-FIREWALL").size(), 2U);
  }

  // In the /run of the test.
  std::optional<testing::ScratchDirectory> folder_;
};

TEST_P(ProgramKubeletTest, HasSyncedWhenAnActIsOver) {
  const std::unique_ptr<NodeAgent> kubelet = Started();
  ExpectItsRules();
  EXPECT_TRUE(Went(kubelet->Stop()));
  ExpectItsRules();
}

TEST_P(ProgramKubeletTest, DoesNothingBetweenActs) {
  const std::unique_ptr<NodeAgent> kubelet = Started();
  EXPECT_TRUE(Went(FlushEverything(Choice())));
  // Longer than its period.
  absl::SleepFor(absl::Milliseconds(1000));
  EXPECT_THAT(RulesIn(V4(), "nat", "KUBE-POSTROUTING"), IsEmpty());
  EXPECT_TRUE(Went(kubelet->Tick()));
  ExpectItsRules();
}

// The canaries of the first are there, and do not count.
TEST_P(ProgramKubeletTest, StartsOverTheRulesOfAnother) {
  EXPECT_TRUE(Went(Started()->Stop()));
  EXPECT_EQ(V4().Run({"-t", "nat", "-F", "KUBE-POSTROUTING"}).exit_code, 0);
  const std::unique_ptr<NodeAgent> second = Started();
  ExpectItsRules();
}

TEST_P(ProgramKubeletTest, FailsAnActWhenTheProgramEnds) {
  const std::unique_ptr<NodeAgent> kubelet = NewProgramKubelet("/bin/false", Settings());
  EXPECT_THAT(kubelet->Tick().error, HasSubstr("not started"));
  EXPECT_THAT(kubelet->Start().error, HasSubstr("ended with 1"));
  EXPECT_THAT(kubelet->Tick().error, HasSubstr("ended with 1"));
}

INSTANTIATE_TEST_SUITE_P(Modes, ProgramKubeletTest,
                         ::testing::Values(IptablesMode::kNft, IptablesMode::kLegacy), ModeName);

}  // namespace
}  // namespace kipt::skew
