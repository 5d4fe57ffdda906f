// SPDX-License-Identifier: Apache-2.0
//
// The last incidents outlive the daemon: at /statusz, in `status` and in `incidents`, in the
// network namespace and the boot in which they happened. A full or read-only disk stops no repair.
#include <sys/mount.h>

#include <nlohmann/json.hpp>

#include "tests/interop/daemon_fixture.h"
#include "tests/support/netns.h"

namespace kipt::testing {
namespace {

using Json = nlohmann::json;

class IncidentsTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    if (HasFatalFailure()) return;
    // Of the test's own mount namespace.
    std::filesystem::create_directory("/run/state");
  }
  void StartKeeping() { Start({}, {flag_}); }
  // Repaired when this returns.
  void Damage() {
    const double before = Metric(kRepairs);
    Output({"iptables-nft", "-F", "INPUT"});
    ASSERT_TRUE(MetricReaches(kRepairs, before + 1)) << daemon().Output();
  }
  ProgramResult Incidents(const std::string& output = "text") {
    return Agent({"incidents", flag_, "--output=" + output});
  }
  // Each is written within a second.
  bool Keeps(size_t count) {
    return WaitUntil([&] { return Listed({}).size() == count; });
  }
  // The incidents that the command lists.
  Json Listed(const std::vector<std::string>& more_flags) {
    return Json::parse(
        Agent(Words{"incidents", flag_, "--output=json"} + more_flags).out)["incidents"];
  }

  static constexpr char kRepairs[] = "kube_iptables_agent_repair_latency_seconds_count";
  const std::string file_ = "/run/state/incidents";
  const std::string flag_ = "--incidents-file=" + file_;
};

TEST_F(IncidentsTest, OutliveADaemonThatIsKilled) {
  EXPECT_EQ(Incidents().exit_code, kExitOk) << "none yet";
  StartKeeping();
  Damage();
  ASSERT_TRUE(Keeps(1));
  daemon().Signal(SIGKILL);
  daemon().Wait();
  const ProgramResult text = Incidents();
  EXPECT_EQ(text.exit_code, kExitOk) << text;
  EXPECT_THAT(text.out, AllOf(HasSubstr("Repaired in "), HasSubstr("damage by iptables"),
                              HasSubstr("jump_missing \"-A INPUT -j KUBE-FIREWALL\"")));
  const Json json = Json::parse(Incidents("json").out)["incidents"][0];
  EXPECT_GT(json["repairMicroseconds"], 0);
  EXPECT_EQ(json["damage"][0]["chain"], "INPUT");
  EXPECT_EQ(json["damage"][0]["kind"], "jump_missing");
  EXPECT_THAT(json["writers"][0]["command"], HasSubstr("iptables"));
  StartKeeping();
  EXPECT_THAT(HttpGet(kMetricsPort, "/statusz").body,
              AllOf(HasSubstr("Incidents: 0"), HasSubstr("damage by iptables")));
  const ProgramResult status = Agent({"status", flag_});
  EXPECT_THAT(status.out, AllOf(HasSubstr("last incidents:"), HasSubstr("damage by iptables")));
  Damage();
  ASSERT_TRUE(Keeps(2));
  const Netns other = NewNetns();
  const InNetns inside(other);
  EXPECT_EQ(Listed({}), Json::array()) << "they are another namespace's";
  EXPECT_EQ(Listed({"--all"}).size(), 2);
}

TEST_F(IncidentsTest, ADiskThatIsFullOrReadOnlyIsReportedOnceAndRepairsGoOn) {
  ASSERT_EQ(mount("none", "/run/state", "tmpfs", 0, "size=8k"), 0);
  std::ofstream("/run/state/full") << std::string(8192, 'x');
  for (const bool read_only : {false, true}) {
    if (read_only) {
      ASSERT_EQ(mount("none", "/run/state", "tmpfs", MS_REMOUNT | MS_RDONLY, ""), 0);
    }
    StartKeeping();
    for (int i = 0; i < 3; ++i) Damage();
    EXPECT_EQ(CountOf("Incidents do not outlive", daemon().Output()), 1) << daemon().Output();
    EXPECT_THAT(HttpGet(kMetricsPort, "/statusz").body, HasSubstr("Incidents: 3"));
    Stop(SIGTERM);
  }
  umount2("/run/state", MNT_DETACH);
}

}  // namespace
}  // namespace kipt::testing
