// SPDX-License-Identifier: Apache-2.0
//
// Packets that never cease, while IPTablesOwnershipCleanup is switched back and forth and what is
// stale is retired: no martian comes in, and nothing that a third party has marked leaves with the
// address of its sender.
#include <iterator>

#include "absl/strings/numbers.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/interop/packet_world.h"

namespace kipt::testing {
namespace {

constexpr int kPerSecond = 2000;
constexpr uint16_t kServicePort = 4002;

// How a third party has packets masqueraded.
enum class ThirdParty { kNone, kJumps, kSetsTheBit };

struct FlipCase {
  std::string name;
  ThirdParty third_party;
  IptablesMode iptables;
  int flips = 50;
};
void PrintTo(const FlipCase& row, std::ostream* stream) { *stream << row.name; }

class GateFlipPacketsTest : public WithPacketWorld<DaemonTest>,
                            public ::testing::WithParamInterface<FlipCase> {
 protected:
  void SetUp() override {
    WithPacketWorld::SetUp();
    const InNetns inside(world_->receiver());
    receiver_.emplace(0, kServicePort);
  }
  void TearDown() override {
    receiver_.reset();
    WithPacketWorld::TearDown();
  }

  void StartWithGateOff() {
    WriteGate(file_, /*cleanup=*/false);
    StartOnly({"--config=" + file_.path(), "--stale-chains=retire",
               "--cni-conf-dir=" + no_cni_.root(), "--iptables-sync-period=1s",
               absl::StrCat("--iptables-mode=", NameOf(GetParam().iptables))});
    ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  }

  void AddThirdParty() const {
    const bool jumps = GetParam().third_party == ThirdParty::kJumps;
    Load(iptables_, absl::StrCat("*nat\n:THIRD-PARTY - [0:0]\n-A PREROUTING -j THIRD-PARTY\n"
                                 "-A THIRD-PARTY -p udp --dport ",
                                 kServicePort, " -j ",
                                 jumps ? "KUBE-MARK-MASQ" : "MARK --or-mark 0x4000", "\nCOMMIT\n"));
  }

  bool Exists(const std::string& chain) const {
    return iptables_.Run({"-t", "nat", "-S", chain}).exit_code == 0;
  }

  // Switches the gate and waits until that has been done in the kernel.
  void Flip(bool cleanup) {
    const double retired = Metric("kube_iptables_agent_retired_total");
    WriteGate(file_, cleanup);
    const auto done = [&] {
      return cleanup ? Metric("kube_iptables_agent_retired_total") > retired
                     : Metric("kube_iptables_agent_mode_info", ",mode=\"legacy\"") == 1;
    };
    ASSERT_TRUE(WaitUntil(done)) << daemon().Output();
    ASSERT_EQ(Exists("KUBE-MARK-DROP"), !cleanup) << daemon().Output();
    const bool claimed = GetParam().third_party == ThirdParty::kJumps;
    EXPECT_EQ(Exists("KUBE-MARK-MASQ"), !cleanup || claimed);
    const bool marks = GetParam().third_party != ThirdParty::kNone;
    EXPECT_EQ(Exists("KUBE-POSTROUTING"), !cleanup || marks);
  }

  // Packets of rules in filter/KUBE-FIREWALL that are about 127.0.0.0/8.
  uint64_t DroppedByTheRule() const {
    const std::string save = absl::StrCat("iptables-", NameOf(GetParam().iptables), "-save");
    uint64_t packets = 0;
    for (absl::string_view line : absl::StrSplit(Output({save, "-c", "-t", "filter"}), '\n')) {
      if (!absl::StrContains(line, "-A KUBE-FIREWALL") || !absl::StrContains(line, "127.0.0.0/8")) {
        continue;
      }
      uint64_t of_line = 0;
      const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::ByAnyChar("[:"));
      EXPECT_TRUE(absl::SimpleAtoi(parts.at(1), &of_line)) << line;
      packets += of_line;
    }
    return packets;
  }

  // Both streams, from the client.
  void StartSending() {
    const InNetns outside(world_->client());
    martians_.emplace(PacketWorld::MartianPath(kMartianPort), kPerSecond);
    forwarded_.emplace(PacketWorld::ForwardedPath(kServicePort), kPerSecond);
  }

  const Iptables iptables_ = {.mode = GetParam().iptables};
  const TemporaryFile file_{kConfigHead};
  const NoCniUser no_cni_;
  std::optional<PacketTaker> receiver_;
  std::optional<PacketSender> martians_;
  std::optional<PacketSender> forwarded_;
};

TEST_P(GateFlipPacketsTest, NoMartianComesInAndNothingMarkedLeavesUnmasqueraded) {
  // Without rules all of them arrive, as they were sent: what follows can fail.
  StartSending();
  EXPECT_TRUE(WaitUntil([this] { return listener_->received().packets > 0; }));
  EXPECT_TRUE(WaitUntil([this] { return receiver_->received().packets > 0; }));
  martians_.reset();
  forwarded_.reset();
  EXPECT_THAT(receiver_->received().sources, Contains(Key(kClient)));

  StartWithGateOff();
  if (GetParam().third_party != ThirdParty::kNone) AddThirdParty();
  // Or the ports of one address would not be enough for the connections of half a minute.
  SetSysctl("netfilter/nf_conntrack_udp_timeout", "2");
  ObserveMartians();
  listener_->Forget();
  receiver_->Forget();
  const absl::Time start = absl::Now();
  StartSending();
  for (int i = 0; i < GetParam().flips && !HasFatalFailure(); ++i) Flip(/*cleanup=*/i % 2 == 0);
  const absl::Duration took = absl::Now() - start;
  const uint64_t martians_sent = martians_->Stop();
  const uint64_t forwarded_sent = forwarded_->Stop();
  ASSERT_FALSE(HasFatalFailure());

  const uint64_t arrived = MartiansArrived();
  EXPECT_GT(martians_sent, absl::ToDoubleSeconds(took) * kPerSecond * 0.8);
  EXPECT_GT(arrived, martians_sent * 9 / 10) << "a queue ran over";
  EXPECT_EQ(listener_->received().packets, 0) << "of " << martians_sent;
  EXPECT_EQ(DroppedByTheRule(), arrived);
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_martian_dropped_packets_total",
                            static_cast<double>(arrived)));
  EXPECT_EQ(Metric("kube_iptables_agent_martian_dropped_packets_total"), arrived);

  const Received received = receiver_->received();
  RecordProperty("Seconds", absl::StrCat(absl::ToDoubleSeconds(took)));
  RecordProperty("Martians", absl::StrCat(arrived));
  RecordProperty("Forwarded", absl::StrCat(received.packets, " of ", forwarded_sent));
  EXPECT_GT(received.packets, forwarded_sent * 9 / 10);
  EXPECT_EQ(received.numbers.size(), received.packets) << "each comes once";
  if (GetParam().third_party == ThirdParty::kNone) return;
  EXPECT_THAT(received.sources, Each(Key(kNodeInside)));
  EXPECT_LT(received.LongestGap(), static_cast<uint32_t>(kPerSecond) / 2);
}

INSTANTIATE_TEST_SUITE_P(
    With, GateFlipPacketsTest,
    ::testing::Values(
        FlipCase{"ARuleThatJumpsToKubeMarkMasqNft", ThirdParty::kJumps, IptablesMode::kNft},
        FlipCase{"ARuleThatJumpsToKubeMarkMasqLegacy", ThirdParty::kJumps, IptablesMode::kLegacy},
        FlipCase{"ARuleThatSetsTheBitItselfNft", ThirdParty::kSetsTheBit, IptablesMode::kNft},
        FlipCase{"ARuleThatSetsTheBitItselfLegacy", ThirdParty::kSetsTheBit, IptablesMode::kLegacy},
        FlipCase{"NoThirdPartyNft", ThirdParty::kNone, IptablesMode::kNft, 20},
        FlipCase{"NoThirdPartyLegacy", ThirdParty::kNone, IptablesMode::kLegacy, 20}),
    [](const auto& row) { return row.param.name; });

// What a rule of another program does to packets, judged by packets: wherever a neighbour's packet
// for 127.0.0.1 arrives past that rule, the agent must not call the martian rule effective, and
// wherever none can arrive, it must not call the node exposed.

struct EffectRow {
  std::string name;
  // iptables-restore's lines for table filter, or nft's commands.
  std::string rules;
  bool arrives;
  // A program that accepts it may listen.
  bool may_arrive = arrives;
};

class EffectPacketsTest : public WithPacketWorld<AgentTest> {
 protected:
  void ExpectTruth(const EffectRow& row, IptablesMode mode) {
    SCOPED_TRACE(absl::StrCat(row.name, " ", NameOf(mode)));
    EXPECT_EQ(MartiansArrive(), row.arrives);
    const ProgramResult status = Agent({"status", absl::StrCat("--iptables-mode=", NameOf(mode))});
    EXPECT_EQ(absl::StrContains(status.out, "martian packets: EXPOSED: "), row.may_arrive)
        << status;
  }
};

const EffectRow kXtRows[] = {
    {"NothingElse", "", false},
    {"Accept", "-I INPUT -j ACCEPT", true},
    {"AcceptOfAnotherProtocol", "-I INPUT -p tcp -j ACCEPT", false},
    {"AcceptOfMarkZeroOfZero", "-I INPUT -m mark --mark 0x0/0x0 -j ACCEPT", true},
    {"AcceptRemembered", "-I INPUT -m recent --set --name r -j ACCEPT", true},
    {"AcceptNotRemembered", "-I INPUT -m recent ! --set --name r -j ACCEPT", false},
    {"Return", "-I INPUT -j RETURN", true},
    {"Nfqueue", "-I INPUT -j NFQUEUE --queue-num 7", false, true},
    {"NfqueueBypass", "-I INPUT -j NFQUEUE --queue-num 7 --queue-bypass", true},
    {"NfqueueAboveOurs", "-I KUBE-FIREWALL -j NFQUEUE --queue-num 7 --queue-bypass", true},
    {"AcceptAboveOurs", "-I KUBE-FIREWALL -j ACCEPT", true},
    {"AJumpForSomePackets", "-I INPUT -i lo -j KUBE-FIREWALL\n-D INPUT -j KUBE-FIREWALL", true},
    {"AcceptInAChainOfAChain",
     ":OUTER - [0:0]\n:INNER - [0:0]\n-A INNER -p udp -j RETURN\n-A INNER -j ACCEPT\n"
     "-A OUTER -j INNER\n-I INPUT -j OUTER",
     false},
    {"AcceptAfterAChainOfAChain",
     ":OUTER - [0:0]\n:INNER - [0:0]\n-A INNER -p udp -j RETURN\n-A INNER -j ACCEPT\n"
     "-A OUTER -j INNER\n-A OUTER -j ACCEPT\n-I INPUT -j OUTER",
     true},
    {"Log", "-I INPUT -j LOG", false},
    {"Mark", "-I INPUT -j MARK --set-mark 1", false},
    {"Drop", "-I INPUT -j DROP", false},
    {"Reject", "-I INPUT -j REJECT", false},
    {"AcceptThenReject", "-I INPUT -j REJECT\n-I INPUT -j ACCEPT", true},
    {"AWayThroughAnotherChain",
     ":OUTER - [0:0]\n-A OUTER -j KUBE-FIREWALL\n-A INPUT -j OUTER\n-D INPUT -j KUBE-FIREWALL",
     false},
};

TEST_F(EffectPacketsTest, OfIptablesTargetsIsPredicted) {
  for (const IptablesMode mode : kBothModes) {
    const Iptables iptables = {.mode = mode};
    for (const EffectRow& row : kXtRows) {
      Sync({.iptables = mode});
      const ProgramResult changed =
          iptables.Restore(absl::StrCat("*filter\n", row.rules, "\nCOMMIT\n"));
      ASSERT_EQ(changed.exit_code, 0) << row.name << changed;
      ExpectTruth(row, mode);
      iptables.Run({"-F"});
      iptables.Run({"-X"});
    }
  }
}

const EffectRow kNftRows[] = {
    {"Counter", "counter accept", true},
    {"MetaMark", "meta mark set 1 accept", true},
    {"InASet", "ip saddr { 192.0.2.1 } accept", false},
    {"AVerdictMap", "ip saddr vmap { 0.0.0.0/0 : accept }", true},
    {"LogAlone", "log", false},
    {"LimitByNoPacket", "limit rate over 1000000/second burst 1000000 packets accept", false},
    {"Queue", "queue num 7", false, true},
    {"QueueBypass", "queue num 7 bypass", true},
    {"Dup", "dup to 10.99.0.1 accept", true},
    {"Reject", "reject", false},
    {"CompareMeta", "meta l4proto tcp accept", false},
    // Linux before 5.16 went on with the rule.
    {"ExthdrOfAnotherProtocol", "tcp option maxseg size set 1000 accept", false, true},
};

TEST_F(EffectPacketsTest, OfNftExpressionsIsPredicted) {
  size_t lacking = 0;
  for (const EffectRow& row : kNftRows) {
    Sync({});
    const ProgramResult changed =
        RunProgram({"nft", "-f", "-"}, absl::StrCat("insert rule ip filter INPUT ", row.rules));
    // This kernel may lack the expression.
    if (absl::StrContains(changed.err, "No such file or directory")) {
      ++lacking;
      continue;
    }
    ASSERT_EQ(changed.exit_code, 0) << row.name << changed;
    ExpectTruth(row, IptablesMode::kNft);
    ASSERT_EQ(RunProgram({"nft", "flush", "chain", "ip", "filter", "INPUT"}).exit_code, 0);
  }
  EXPECT_LE(lacking, std::size(kNftRows) / 3);
}

// The kernel passes no packet to a chain of type nat unless some rule tracks connections: here,
// only kubelet's.
TEST_F(EffectPacketsTest, WhatARuleOfTableNatHasDroppedIsDroppedAfterRetire) {
  SetSysctl("ipv4/conf/outside/route_localnet", "0");  // a reason to keep the martian rule
  PacketTaker taker(0, kMartianPort + 1);
  ASSERT_TRUE(world_->Reaches(taker, kNodeOutside, kMartianPort + 1));
  for (const IptablesMode mode : kBothModes) {
    const std::string mode_flag = absl::StrCat("--iptables-mode=", NameOf(mode));
    Sync({.iptables = mode});
    const Iptables iptables = {.mode = mode};
    Load(iptables, absl::StrCat("*nat\n-A PREROUTING -p udp --dport ", kMartianPort + 1,
                                " -j MARK --set-mark 1\nCOMMIT\n"
                                "*filter\n-A INPUT -m mark --mark 1 -j DROP\nCOMMIT\n"));
    EXPECT_FALSE(world_->Reaches(taker, kNodeOutside, kMartianPort + 1));
    const ProgramResult retired =
        Agent({"retire", "--yes", "--make-iptables-util-chains=false", mode_flag});
    EXPECT_EQ(retired.exit_code, kExitOk) << retired;
    EXPECT_FALSE(world_->Reaches(taker, kNodeOutside, kMartianPort + 1)) << retired;
    for (const char* table : {"nat", "filter"}) {
      iptables.Run({"-t", table, "-F"});
      iptables.Run({"-t", table, "-X"});
    }
    EXPECT_TRUE(world_->Reaches(taker, kNodeOutside, kMartianPort + 1));
  }
}

}  // namespace
}  // namespace kipt::testing
