// SPDX-License-Identifier: Apache-2.0
//
// firewalld flushes every chain of iptables-nft when it starts and on each reload, whatever its own
// backend is. Run for real, in the test's own namespaces.
#include "absl/algorithm/container.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/generation_listener.h"

namespace kipt::testing {
namespace {

constexpr char kIncident[] = "Repaired in";

class DaemonFirewalldTest : public DaemonTest {
 protected:
  static constexpr AgentSettings Settings() { return {.ownership_cleanup = false}; }

  void SetUp() override {
    DaemonTest::SetUp();
    if (HasFatalFailure()) return;
    listener_ = GenerationListener::Create();
    ASSERT_THAT(listener_, IsOk());
  }
  static bool Runs() { return RunProgram({"firewall-cmd", "--state"}).exit_code == 0; }
  void StartFirewalld() {
    firewalld_.emplace(std::vector<std::string>{KIPT_FIREWALLD});
    ASSERT_TRUE(WaitUntil(Runs)) << firewalld_->Output();
  }
  // Whether its iptables-restore has written since this was asked last.
  bool HasWritten() {
    const auto changes = listener_->Drain();
    EXPECT_THAT(changes, IsOk());
    if (!changes.ok()) return false;
    return absl::c_any_of(changes->writers, [](const netlink::RulesetChange& change) {
      return change.command == "iptables-restor" || change.command == "ip6tables-resto";
    });
  }
  // What was flushed is there again, and an incident more was logged.
  void ExpectRepaired(const std::string& by) {
    EXPECT_TRUE(HasWritten()) << by << " has flushed nothing: this test shows nothing";
    EXPECT_TRUE(BecomesClean(Settings())) << by << daemon().Output();
    const int incidents = CountOf(kIncident, daemon().Output());
    EXPECT_GT(incidents, incidents_) << by << daemon().Output();
    incidents_ = incidents;
    for (const auto& [family, before] : before_) {
      EXPECT_EQ(Ours(family), before) << by;
    }
  }
  static std::vector<std::string> Ours(IpFamily family) {
    std::vector<std::string> lines;
    const std::string saved = SavedRules::Of({.family = family}).Comparable();
    for (absl::string_view line : absl::StrSplit(saved, '\n')) {
      if (line.find("KUBE-") != absl::string_view::npos) lines.emplace_back(line);
    }
    return lines;
  }
  void NoteCurrentRules() {
    for (const IpFamily family : kBothFamilies) before_[family] = Ours(family);
    ASSERT_EQ(before_[IpFamily::kIpv4].size(), 18U);
  }

 private:
  std::optional<BackgroundProgram> firewalld_;
  absl::StatusOr<GenerationListener> listener_;
  std::map<IpFamily, std::vector<std::string>> before_;
  int incidents_ = 0;
};

TEST_F(DaemonFirewalldTest, WhatItFlushesIsRepairedAndItIsNamed) {
  Start(Settings());
  NoteCurrentRules();
  StartFirewalld();
  ExpectRepaired("the start of firewalld");
  for (const char* reload : {"--reload", "--complete-reload"}) {
    for (int i = 0; i < 2; ++i) {
      // One of them flushes each chain two or three times; ten in a row would be taken for a fight.
      absl::SleepFor(absl::Milliseconds(1100));
      EXPECT_THAT(Output({"firewall-cmd", reload}), HasSubstr("success"));
      ExpectRepaired(reload);
    }
  }
  // firewalld's helper programs end within milliseconds, so the parent of some is not found in
  // time.
  const std::string log = daemon().Output();
  EXPECT_THAT(log, HasSubstr("iptables-restor (PID "));
  EXPECT_THAT(log, HasSubstr("started by firewalld, PID "));
  EXPECT_EQ(Metric("kube_iptables_agent_ownership_fights_total"), 0) << log;
  EXPECT_TRUE(BecomesReady()) << Readyz();
}

}  // namespace
}  // namespace kipt::testing
