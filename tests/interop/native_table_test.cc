// SPDX-License-Identifier: Apache-2.0
//
// The native table where iptables can hold no rules: a table of its name that another process owns,
// foreign rules in it, and the table of an earlier version through an upgrade. Martian packets
// are sent all the time.
#include <sys/utsname.h>

#include "tests/interop/daemon_fixture.h"
#include "tests/interop/packet_world.h"

namespace kipt::testing {
namespace {

constexpr uint16_t kPort = 4001;
constexpr int kPerSecond = 2000;

// Of v0.7.0: with four bytes of each address and a mask, where nft(8) and this version take one
// byte. nft(8) shows no difference.
constexpr char kRulesOfV070[] = R"(
    ip daddr & 255.0.0.0 == 127.0.0.0 ip saddr & 255.0.0.0 != 127.0.0.0 ct state & (invalid | untracked) != 0 counter drop comment "block incoming localnet connections"
    ip daddr & 255.0.0.0 == 127.0.0.0 ip saddr & 255.0.0.0 != 127.0.0.0 ct state & (established | related) == 0 ct status & dnat == 0 counter drop comment "block incoming localnet connections"
)";

class NativeTableTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    host_.Directory("nothing");
    modules_.emplace(host_.Path("nothing"), "/sys/module");
    if (std::filesystem::exists("/proc/modules")) list_.emplace("/dev/null", "/proc/modules");
    HaveMatches(false);
    world_.emplace();
    // Or the ports of one address would not be enough for the connections of half a minute.
    SetSysctl("netfilter/nf_conntrack_udp_timeout", "2");
    WitnessMartians();
    listener_.emplace(kLoopback, kPort);
  }
  // Its thread has this test's mount namespace.
  void TearDown() override {
    martians_.reset();
    listener_.reset();
  }

  // Whether iptables can hold rules, as far as the lists of the kernel's modules show.
  void HaveMatches(bool matches) const {
    utsname kernel = {};
    ASSERT_EQ(uname(&kernel), 0);
    const std::string lists = absl::StrCat("lib/modules/", kernel.release, "/modules.");
    host_.Write(lists + "builtin", matches ? "kernel/nft_compat.ko\nkernel/xt_comment.ko\n"
                                             "kernel/xt_conntrack.ko\nkernel/xt_mark.ko\n"
                                           : "kernel/nf_tables.ko\n");
    host_.Write(lists + "dep", "");
  }

  static void PutTableOfV070() {
    std::string chains;
    for (const std::string hook : {"input", "output"}) {
      absl::StrAppend(&chains, "chain ", hook, " { type filter hook ", hook, " priority -1;",
                      kRulesOfV070, "}\n");
    }
    Nft(absl::StrCat("table ip kube-iptables-agent {\n", chains, "}\n"));
  }

  static void Nft(const std::string& commands) {
    const ProgramResult result = RunProgram({"/usr/sbin/nft", "-f", "-"}, commands);
    ASSERT_EQ(result.exit_code, 0) << result;
  }
  // With the numbers that the kernel gives what is made.
  static std::string Table() {
    return RunProgram({"/usr/sbin/nft", "-a", "-s", "list", "table", "ip", "kube-iptables-agent"})
        .out;
  }
  // As this version makes it: without what another namespace numbers differently.
  std::string TableAsItMustBe() const {
    const Netns fresh = NewNetns();
    const InNetns inside(fresh);
    const ProgramResult sync = Agent({"sync", HostRoot(), "--iptables-mode=nft"});
    EXPECT_EQ(sync.exit_code, kExitOk) << sync;
    return WithoutHandles(Table());
  }
  static std::string WithoutHandles(const std::string& text) {
    std::string lines;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      absl::StrAppend(&lines, line.substr(0, line.find(" # handle")), "\n");
    }
    return lines;
  }

  std::string HostRoot() const { return "--host-root=" + host_.root(); }
  void StartWith(const std::vector<std::string>& more = {}) {
    StartOnly(Words{HostRoot(), "--iptables-mode=nft", "--iptables-sync-period=1s"} + more);
    ASSERT_TRUE(daemon().Prints("Watching: ")) << daemon().Output();
  }

  void StartSending() {
    const InNetns outside(world_->client());
    martians_.emplace(PacketWorld::MartianPath(kPort), kPerSecond);
  }
  // So many more martian packets have been dealt with.
  static bool MoreArrive(uint64_t packets = 400) {
    const uint64_t before = MartiansArrived();
    return WaitUntil([&] { return MartiansArrived() >= before + packets; });
  }
  bool OnePasses() const {
    return WaitUntil([this] { return listener_->received().packets > 0; });
  }

  const TemporaryTree host_;
  std::optional<InPlaceOf> modules_;
  std::optional<InPlaceOf> list_;
  std::optional<PacketWorld> world_;
  std::optional<PacketTaker> listener_;
  std::optional<PacketSender> martians_;
};

// ---- another process' table of that name ----

TEST_F(NativeTableTest, ATableOfItsNameThatAnotherProcessOwnsIsReportedAndLeftToThatProcess) {
  // nft(8) itself is the program: the table is gone with it.
  std::optional<BackgroundProgram> owner(
      std::in_place,
      std::vector<std::string>{
          "/bin/bash", "-c",
          "exec nft -i < <(echo 'add table ip kube-iptables-agent { flags owner; }'; "
          "echo 'add chain ip kube-iptables-agent input { type filter hook input priority -1; }'; "
          "echo 'add rule ip kube-iptables-agent input counter accept'; "
          "exec tail --pid=$$ -f /dev/null)"});
  ASSERT_TRUE(WaitUntil([] { return absl::StrContains(Table(), "accept # handle"); }))
      << owner->Output();
  const std::string before = Table();
  EXPECT_THAT(before, HasSubstr("flags owner"));
  StartSending();
  StartWith();
  ASSERT_TRUE(daemon().Prints("ip is failed: WriteRefused: ")) << daemon().Output();
  EXPECT_THAT(Readyz(), AllOf(HasSubstr("putting in place the table ip kube-iptables-agent"),
                              HasSubstr("another process owns the table")));
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_route_localnet_exposed", 1));
  EXPECT_TRUE(OnePasses()) << "it is true";
  EXPECT_EQ(Table(), before);
  // The kernel removes the table with its owner.
  owner.reset();
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  EXPECT_EQ(WithoutHandles(Table()), TableAsItMustBe());
  EXPECT_TRUE(MoreArrive());
  listener_->Forget();
  EXPECT_TRUE(MoreArrive());
  EXPECT_EQ(listener_->received().packets, 0);
}

// ---- the earlier version's table ----

struct Upgrade {
  std::string name;
  std::vector<std::string> flags = {};
  // iptables can hold rules from now on: the rule of KUBE-FIREWALL replaces the table.
  bool matches = false;
};
void PrintTo(const Upgrade& row, std::ostream* out) { *out << row.name; }

class NativeUpgradeTest : public NativeTableTest, public ::testing::WithParamInterface<Upgrade> {
 protected:
  // What nft monitor shows from now on.
  void StartMonitor() {
    monitor_.emplace(std::vector<std::string>{"/usr/sbin/nft", "monitor"});
    ASSERT_TRUE(WaitUntil([this] {
      Nft("add table ip probe\ndelete table ip probe");
      return absl::StrContains(monitor_->Output(), "add table ip probe");
    }));
  }
  // The transactions that are about the native table.
  std::vector<std::string> Transactions() const {
    std::vector<std::string> about;
    std::string transaction;
    for (const absl::string_view line : absl::StrSplit(monitor_->Output(), '\n')) {
      absl::StrAppend(&transaction, line, "\n");
      if (!absl::StartsWith(line, "# new generation")) continue;
      if (absl::StrContains(transaction, "ip kube-iptables-agent")) about.push_back(transaction);
      transaction.clear();
    }
    return about;
  }
  bool IsReplaced() const {
    if (GetParam().matches) {
      return Table().empty() && absl::StrContains(Iptables{}.Run({"-S", "KUBE-FIREWALL"}).out,
                                                  "block incoming localnet connections");
    }
    return !Table().empty() && !Transactions().empty();
  }

  std::optional<BackgroundProgram> monitor_;
};

TEST_P(NativeUpgradeTest, ReplacesItInOneTransactionAndNoMartianPacketPasses) {
  StartSending();
  EXPECT_TRUE(OnePasses()) << "what follows cannot fail";
  PutTableOfV070();
  const std::string old = Table();
  EXPECT_TRUE(MoreArrive());
  listener_->Forget();
  StartMonitor();
  const uint64_t before = MartiansArrived();
  HaveMatches(GetParam().matches);
  StartWith(GetParam().flags);
  ASSERT_TRUE(WaitUntil([this] { return IsReplaced(); })) << daemon().Output();
  EXPECT_TRUE(MoreArrive());
  martians_->Stop();
  EXPECT_GT(MartiansArrived() - before, 400U);
  EXPECT_EQ(listener_->received().packets, 0) << "of " << MartiansArrived() - before;
  RecordProperty("Martians", absl::StrCat(MartiansArrived() - before));

  const std::vector<std::string> transactions = Transactions();
  ASSERT_EQ(transactions.size(), 1U) << monitor_->Output();
  EXPECT_THAT(transactions[0],
              AllOf(HasSubstr("delete table ip kube-iptables-agent"),
                    HasSubstr(GetParam().matches ? "rule ip filter KUBE-FIREWALL"
                                                 : "rule ip kube-iptables-agent input")));
  if (!GetParam().matches) {
    EXPECT_EQ(WithoutHandles(Table()), TableAsItMustBe());
  }
  // Once: another start finds it in place.
  const std::string after = Table();
  EXPECT_NE(after, old);
  StartWith(GetParam().flags);
  ASSERT_TRUE(MetricReaches("kube_iptables_agent_syncs_total", 2)) << daemon().Output();
  EXPECT_EQ(Table(), after);
  EXPECT_EQ(Transactions().size(), 1U) << monitor_->Output();
}

INSTANTIATE_TEST_SUITE_P(
    Modes, NativeUpgradeTest,
    ::testing::Values(Upgrade{"InTheSameMode"}, Upgrade{"WithAHint", {"--hint-policy=always"}},
                      // Reported as impossible; the table stays.
                      Upgrade{"WithTheGateOff", {"--feature-gates=IPTablesOwnershipCleanup=false"}},
                      Upgrade{"WithMatches", {}, /*matches=*/true},
                      Upgrade{"WithMatchesAndTheGateOff",
                              {"--feature-gates=IPTablesOwnershipCleanup=false"},
                              /*matches=*/true}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace kipt::testing
