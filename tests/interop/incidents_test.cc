// SPDX-License-Identifier: Apache-2.0
//
// The last incidents outlive the daemon: at /statusz, in `status` and in `incidents`, in the
// network namespace and the boot in which they happened. A disk that is full or read-only, and what
// a hostile writer is called, are no reason to repair less.
#include <sys/mount.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/process/record_file.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/netns.h"
#include "tests/support/status_matchers.h"
#include "tests/support/unescaped.h"

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
  void Damage(const std::string& program = "/usr/sbin/iptables-nft") {
    const double before = Metric(kRepairs);
    Output({program, "-F", "INPUT"});
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
    std::vector<std::string> arguments = {"incidents", flag_, "--output=json"};
    arguments.insert(arguments.end(), more_flags.begin(), more_flags.end());
    return Json::parse(Agent(arguments).out)["incidents"];
  }
  // One incident in the calling thread's network namespace, by a daemon that ends.
  void KeepOne() {
    StartKeeping();
    Damage();
    ASSERT_TRUE(Keeps(1));
    EXPECT_EQ(Stop(SIGTERM), 0);
  }
  // There is one in the file.
  void ExpectNoneHere() {
    EXPECT_EQ(Incidents().out, "1 incident of other boots or network namespaces: --all shows it\n");
    EXPECT_EQ(Listed({}), Json::array());
    EXPECT_THAT(Agent({"status", flag_}).out, Not(HasSubstr("incidents")));
    EXPECT_EQ(Json::parse(Agent({"status", flag_, "--output=json"}).out)["incidents"],
              Json::array());
  }
  // Leaves `record` alone in the file.
  void Rewrite(const Json& record) {
    std::filesystem::remove(file_);
    auto file = agent::RecordFile::Open(file_, nullptr);
    ASSERT_THAT(file, IsOk());
    (*file)->Add(record.dump());
  }
  static uint64_t Inode(const Netns& netns) {
    struct stat about = {};
    EXPECT_EQ(stat(netns.Path().c_str(), &about), 0);
    return about.st_ino;
  }

  static constexpr char kRepairs[] = "kube_iptables_agent_repair_latency_seconds_count";
  const std::string file_ = "/run/state/incidents";
  const std::string flag_ = "--incidents-file=" + file_;
};

TEST_F(IncidentsTest, OutliveADaemonThatIsKilled) {
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
}

TEST_F(IncidentsTest, BelongToTheirNetworkNamespace) {
  const Netns first = *Netns::Current();
  KeepOne();
  const Netns second = NewNetns();
  {
    const InNetns inside(second);
    ExpectNoneHere();
    EXPECT_THAT(Agent({"incidents", flag_, "--all"}).out,
                HasSubstr(absl::StrCat("Z (network namespace ", Inode(first), ") Repaired in ")));
    StartKeeping();
    EXPECT_THAT(HttpGet(kMetricsPort, "/statusz").body, Not(HasSubstr("damage by")));
    Damage();
    ASSERT_TRUE(Keeps(1));
    EXPECT_EQ(Stop(SIGTERM), 0);
  }
  const Json all = Listed({"--all"});
  ASSERT_EQ(all.size(), 2) << all;
  EXPECT_EQ(all[0]["networkNamespace"]["inode"], Inode(second));
  EXPECT_EQ(all[1]["networkNamespace"]["inode"], Inode(first));
  EXPECT_EQ(all[0]["bootID"], all[1]["bootID"]);
  EXPECT_FALSE(all[0]["current"]);
  EXPECT_TRUE(all[1]["current"]);
  EXPECT_EQ(Listed({}), Json::array({all[1]}));
  EXPECT_EQ(Listed({"--netns=" + second.Path()})[0]["time"], all[0]["time"]);
}

TEST_F(IncidentsTest, OfTheNamespaceThatTheDaemonIsSentTo) {
  const Netns other = NewNetns();
  StartOnly({flag_, "--netns=" + other.Path()});
  {
    const InNetns inside(other);
    ASSERT_TRUE(BecomesReady()) << daemon().Output();
    Damage();
    ASSERT_TRUE(Keeps(1));
  }
  ExpectNoneHere();
}

TEST_F(IncidentsTest, OfAnEarlierBootAndOfAnOlderReleaseAreShownOnRequest) {
  KeepOne();
  Json json = Json::parse(agent::ReadRecords(file_)->front());
  json["bootID"] = "00000000-0000-4000-8000-000000000000";
  Rewrite(json);
  ExpectNoneHere();
  EXPECT_THAT(Agent({"incidents", flag_, "--all"}).out, HasSubstr("Z (an earlier boot) Repaired"));
  StartKeeping();
  EXPECT_THAT(HttpGet(kMetricsPort, "/statusz").body, Not(HasSubstr("damage by")));
  Stop(SIGTERM);
  json.erase("bootID");
  json.erase("networkNamespace");
  Rewrite(json);
  ExpectNoneHere();
  EXPECT_THAT(Agent({"incidents", flag_, "--all"}).out,
              HasSubstr("Z (unknown boot and network namespace) Repaired"));
}

TEST_F(IncidentsTest, OfAHostileWriterAreEscaped) {
  const std::string program = "/run/state/x\x1b[2J\n\xff\"";
  std::filesystem::copy_file("/usr/sbin/nft", program);
  StartKeeping();
  Damage();
  const double before = Metric(kRepairs);
  Output({program, "flush chain ip filter INPUT"});
  ASSERT_TRUE(MetricReaches(kRepairs, before + 1));
  ASSERT_TRUE(Keeps(2));
  for (const char* output : {"text", "json"}) {
    EXPECT_THAT(Incidents(output).out, AllOf(HasSubstr("[2J"), Not(HasSubstr("\x1b")))) << output;
  }
  EXPECT_EQ(CountOf("\n", Incidents().out), 2);
  Stop(SIGTERM);
  StartKeeping();
  const std::string statusz = HttpGet(kMetricsPort, "/statusz").body;
  EXPECT_THAT(statusz, AllOf(HasSubstr("[2J"), Not(HasSubstr("\x1b"))));
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

TEST_F(IncidentsTest, WithoutADirectoryOrAFileNothingIsMissing) {
  Start({}, {"--incidents-file=/none/incidents"});
  Damage();
  EXPECT_THAT(daemon().Output(), HasSubstr("I"));
  const ProgramResult none = Agent({"incidents", "--incidents-file=/none/incidents"});
  EXPECT_EQ(none.exit_code, kExitFailed) << none;
  EXPECT_THAT(none.err, HasSubstr("/none/incidents"));
  EXPECT_EQ(Agent({"incidents", "--incidents-file="}).exit_code, kExitFailed);
  Start({}, {"--incidents-file="});
  Damage();
  EXPECT_THAT(daemon().Output(), Not(HasSubstr("outlive")));
}

}  // namespace
}  // namespace kipt::testing
