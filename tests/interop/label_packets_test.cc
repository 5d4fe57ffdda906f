// SPDX-License-Identifier: Apache-2.0
//
// What becomes of packets whose connection a component had labelled, on each way through the node
// and in a tunnel, next to what becomes of those that it had marked.
#include <cstdlib>

#include "tests/interop/daemon_fixture.h"
#include "tests/interop/packet_world.h"
#include "tests/interop/tunnel_world.h"

namespace kipt::testing {
namespace {

// What a component asks for in these tests, by the port that it is about.
constexpr uint16_t kMasqueradedPort = 7001;
constexpr uint16_t kDroppedPort = 7002;
constexpr uint16_t kPlainPort = 7003;
// What has not come so long after the last that came was dropped; what is not takes milliseconds.
constexpr absl::Duration kDroppedByThen = absl::Milliseconds(400);

// A node whose kubelet's chains act on labels of connections (ConnLabelMarking), or on marks, and a
// component that asks them to.
class LabelTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static std::string Gates(bool cleanup, bool labels) {
    return absl::StrCat("IPTablesOwnershipCleanup=", cleanup ? "true" : "false",
                        ",ConnLabelMarking=", labels ? "true" : "false");
  }
  static void SyncWith(bool cleanup, bool labels) {
    const ProgramResult result = Agent({"sync", "--feature-gates=" + Gates(cleanup, labels),
                                        absl::StrCat("--iptables-mode=", NameOf(GetParam()))});
    ASSERT_EQ(result.exit_code, kExitOk) << result;
  }
  static Iptables Of(IpFamily family) { return {.family = family, .mode = GetParam()}; }
  // Input of iptables-restore --noflush, which must be taken, in both families.
  static void Load(const std::string& text) {
    for (const IpFamily family : kBothFamilies) DaemonTest::Load(Of(family), text);
  }
  // A chain COMPONENT for new connections, those of the node too, that jumps to `masquerade` for
  // one port and to `drop` for the other.
  static std::string Component(absl::string_view masquerade, absl::string_view drop) {
    std::string text =
        "*nat\n:COMPONENT - [0:0]\n-A PREROUTING -j COMPONENT\n-A OUTPUT -j COMPONENT\n";
    for (const char* const protocol : {"udp", "tcp"}) {
      const std::string rule = absl::StrCat("-A COMPONENT -p ", protocol, " --dport ");
      absl::StrAppend(&text, rule, kMasqueradedPort, " -j ", masquerade, "\n");
      absl::StrAppend(&text, rule, kDroppedPort, " -j ", drop, "\n");
    }
    return text + "COMMIT\n";
  }

  // Packets of all rules of `table` whose text contains each of `parts`, in both families.
  static uint64_t Packets(const std::string& table, const std::vector<std::string>& parts) {
    uint64_t packets = 0;
    bool found = false;
    for (const char* const program : {"iptables", "ip6tables"}) {
      const ProgramResult saved =
          RunProgram({absl::StrCat(program, "-", NameOf(GetParam()), "-save"), "-c", "-t", table});
      EXPECT_EQ(saved.exit_code, 0) << saved;
      // "[PACKETS:BYTES] -A ..."
      for (const std::string& line : std::vector<std::string>(absl::StrSplit(saved.out, '\n'))) {
        if (!absl::StartsWith(line, "[")) continue;
        if (!std::all_of(parts.begin(), parts.end(),
                         [&](const std::string& part) { return absl::StrContains(line, part); })) {
          continue;
        }
        found = true;
        packets += std::strtoull(line.c_str() + 1, nullptr, /*base=*/10);
      }
    }
    EXPECT_TRUE(found) << "no such rule in " << table;
    return packets;
  }
};

// Both families, UDP and TCP.
constexpr uint64_t kCallsOfAWay = 4;

class LabelPacketsTest : public LabelTest {
 protected:
  void SetUp() override {
    LabelTest::SetUp();
    world_.emplace(std::vector<uint16_t>{kMasqueradedPort, kDroppedPort, kPlainPort});
    ASSERT_FALSE(HasFailure());
    for (const uint16_t port : {kMasqueradedPort, kDroppedPort, kPlainPort}) {
      ASSERT_EQ(world_->Ask(kAllWays, port, kPatience), TunnelWorld::Unchanged(kAllWays, port));
    }
  }

  void Label() const {
    SyncWith(/*cleanup=*/true, /*labels=*/true);
    Load(Component("KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
  }

  std::optional<TunnelWorld> world_;
};

TEST_P(LabelPacketsTest, LabelledConnectionsAreMasqueradedOrDroppedOnEveryWay) {
  for (const bool cleanup : {true, false}) {
    SyncWith(cleanup, /*labels=*/true);
    if (cleanup) Load(Component("KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
    EXPECT_EQ(world_->Ask(kAllWays, kMasqueradedPort, kPatience),
              TunnelWorld::Masqueraded(kAllWays, kMasqueradedPort));
    EXPECT_EQ(world_->Ask(kAllWays, kDroppedPort, kDroppedByThen),
              TunnelWorld::Nothing(kAllWays, kDroppedPort));
    EXPECT_EQ(world_->Ask(kAllWays, kPlainPort, kPatience),
              TunnelWorld::Unchanged(kAllWays, kPlainPort));
  }
  EXPECT_EQ(Packets("filter", {"-A KUBELET-FIREWALL"}), 2 * kAllWays.size() * kCallsOfAWay);
}

// An answer that comes has been translated back. nat sees the first packet alone.
TEST_P(LabelPacketsTest, RepliesAndLaterPacketsOfAConnectionAreTreatedAsTheFirst) {
  Label();
  // All stay open: a later call from the port of a closed one would belong to its connection.
  std::vector<std::map<std::string, EchoCall>> all_calls;
  for (const auto& [port, expected] :
       {std::pair(kMasqueradedPort, TunnelWorld::Masqueraded(kAllWays, kMasqueradedPort)),
        std::pair(kPlainPort, TunnelWorld::Unchanged(kAllWays, kPlainPort))}) {
    auto& calls = all_calls.emplace_back(world_->Open(kAllWays, port));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(EchoCall::AskAll(calls, kPatience), expected) << i;
  }
  EXPECT_EQ(Packets("nat", {"-A COMPONENT", "KUBELET-MARK-MASQ"}), kAllWays.size() * kCallsOfAWay);
  // After the rules are removed, existing connections continue as they began; new ones do not.
  auto calls = world_->Open(kAllWays, kMasqueradedPort);
  const Answers masqueraded = TunnelWorld::Masqueraded(kAllWays, kMasqueradedPort);
  ASSERT_EQ(EchoCall::AskAll(calls, kPatience), masqueraded);
  Load("*nat\n-F COMPONENT\nCOMMIT\n");
  EXPECT_EQ(EchoCall::AskAll(calls, kPatience), masqueraded);
  EXPECT_EQ(world_->Ask(kAllWays, kMasqueradedPort, kPatience),
            TunnelWorld::Unchanged(kAllWays, kMasqueradedPort));
}

INSTANTIATE_TEST_SUITE_P(On, LabelPacketsTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

// ---- a pod's packets in a VXLAN tunnel: what is meant for the inner packet, and is seen on the
// outer one too (kubernetes #78948) ----
//
// The kernel hands the mark that a packet has when it enters the tunnel on to the packet around it;
// the connection of that one is another, and its labels too.

// Counts outer packets, by what they carry, at both hooks that they pass. (The tunnel's own are
// IPv4's; the other family counts none.)
std::string RoundObserver() {
  constexpr const char* kRows[][2] = {{"outer", ""},
                                      {"outer marked", "-m mark ! --mark 0x0/0xffffffff"},
                                      {"outer drop mark", "-m mark --mark 0x8000/0x8000"},
                                      {"outer label 114", "-m connlabel --label 114"},
                                      {"outer label 115", "-m connlabel --label 115"}};
  std::string text = "*mangle\n";
  for (const char* const chain : {"OUTPUT", "POSTROUTING"}) {
    for (const auto& [comment, match] : kRows) {
      absl::StrAppend(&text, "-A ", chain, " -p udp --dport ", kVxlanPort, " ", match,
                      " -m comment --comment \"", comment, ".\"\n");
    }
  }
  // So that a label that is there is known to be counted.
  absl::StrAppend(&text, "-A POSTROUTING -o ", kTunnelInterface,
                  " -m connlabel --label 114 -m comment --comment \"inner label 114.\"\n");
  return text + "COMMIT\n";
}

class LabelTunnelTest : public LabelPacketsTest {
 protected:
  // Outer packets at `chain` that carry `what`.
  static uint64_t Outer(const std::string& chain, const std::string& what) {
    return Packets("mangle",
                   {absl::StrCat("-A ", chain, " "), absl::StrCat("\"outer", what, ".\"")});
  }
  Answers Ask(uint16_t port, absl::Duration patience = kPatience) const {
    return world_->Ask(kTunnel, port, patience);
  }
  static Answers Unchanged(uint16_t port) { return TunnelWorld::Unchanged(kTunnel, port); }
  static Answers Nothing() { return TunnelWorld::Nothing(kTunnel, kDroppedPort); }

  static inline const std::vector<Way> kTunnel = {Way::kTunnelled};
};

// Nothing clears the drop mark, so what is dropped is the tunnel's packet, by the node's own
// traffic's rule, and the IPv6 ones by IPv4's.
TEST_P(LabelTunnelTest, TheDropMarkOfAnInnerPacketDropsTheOuterOne) {
  SyncWith(/*cleanup=*/false, /*labels=*/false);
  Load(Component("KUBE-MARK-MASQ", "KUBE-MARK-DROP"));
  Load(RoundObserver());
  EXPECT_EQ(Ask(kDroppedPort, kDroppedByThen), Nothing());
  EXPECT_EQ(Outer("OUTPUT", " drop mark"), kCallsOfAWay);
  EXPECT_EQ(Outer("POSTROUTING", " drop mark"), 0);
  EXPECT_EQ(Packets("filter", {"-A KUBE-FIREWALL", "0x8000/0x8000"}), kCallsOfAWay);
}

TEST_P(LabelTunnelTest, OuterPacketsCarryNoMarkAndNoLabelWhereTheConnectionIsLabelled) {
  for (const bool cleanup : {false, true}) {
    SyncWith(cleanup, /*labels=*/true);
    if (!cleanup) Load(Component("KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
    if (!cleanup) Load(RoundObserver());
    EXPECT_EQ(Ask(kMasqueradedPort), TunnelWorld::Masqueraded(kTunnel, kMasqueradedPort));
    EXPECT_EQ(Ask(kDroppedPort, kDroppedByThen), Nothing());
    EXPECT_EQ(Ask(kPlainPort), Unchanged(kPlainPort));
  }
  // No packet for the dropped port has left; all others have.
  EXPECT_GE(Outer("OUTPUT", ""), 2 * 2 * 2 * kCallsOfAWay);
  for (const char* const chain : {"OUTPUT", "POSTROUTING"}) {
    for (const char* const what : {" marked", " label 114", " label 115"}) {
      EXPECT_EQ(Outer(chain, what), 0) << chain << what;
    }
  }
  EXPECT_GT(Packets("mangle", {"inner label 114"}), 2 * kCallsOfAWay) << "all of the connection";
  EXPECT_GE(Packets("filter", {"-A KUBELET-FIREWALL"}), 2 * kCallsOfAWay) << "before the tunnel";
  // A rule that ends POSTROUTING before: labels do not masquerade either, and leak nothing.
  Load(absl::StrCat("*nat\n-I POSTROUTING -o ", kTunnelInterface, " -j ACCEPT\nCOMMIT\n"));
  EXPECT_EQ(Ask(kMasqueradedPort), Unchanged(kMasqueradedPort));
  EXPECT_EQ(Outer("OUTPUT", " marked") + Outer("OUTPUT", " label 114"), 0);
}

INSTANTIATE_TEST_SUITE_P(On, LabelTunnelTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

// Packets that never cease, while ConnLabelMarking is switched on and off and what is stale is
// retired: a component jumps, so that what it has labelled never gets through, and nothing that is
// not labelled is ever lost.

constexpr int kPerSecond = 1000;
// Packets that were on their way when a rule changed are through by then.
constexpr absl::Duration kOnTheWay = absl::Milliseconds(50);

// Counts what came to the node before iptables sees it, and what left it after all of iptables'
// hooks.
constexpr char kObserver[] = R"(
table inet observer {
  counter drop_came { }
  counter plain_came { }
  counter drop_left { }
  counter plain_left { }
  chain came {
    type filter hook prerouting priority -400
    iifname "outside" udp dport 7002 counter name drop_came
    iifname "outside" udp dport 7003 counter name plain_came
  }
  chain left {
    type filter hook postrouting priority 400
    udp dport 7002 counter name drop_left
    udp dport 7003 counter name plain_left
  }
}
)";

class LabelFlipPacketsTest : public LabelTest {
 protected:
  static bool Exists(const std::string& table, const std::string& chain) {
    return Of(IpFamily::kIpv4).Run({"-t", table, "-S", chain}).exit_code == 0;
  }
  void WriteGate(bool on) const {
    std::ofstream(file_.path()) << kConfigHead
                                << "featureGates: {ConnLabelMarking: " << (on ? "true" : "false")
                                << "}\n";
  }
  // Waits until it is done in the kernel: no rule claims KUBELET-MARK-MASQ while the gate is off.
  void Flip(bool on) const {
    WriteGate(on);
    ASSERT_TRUE(WaitUntil([&] { return Exists("nat", "KUBELET-MARK-MASQ") == on; })) << on;
  }

  const TemporaryFile file_{kConfigHead};
  const NoCniUser no_cni_;
};

// The jump keeps the chain that labels, and so the one that acts on the label.
TEST_P(LabelFlipPacketsTest, NothingIsLetThroughByTheGateWhereAComponentJumps) {
  const PacketWorld world;
  SetSysctl("netfilter/nf_conntrack_udp_timeout", "2");
  ASSERT_EQ(RunProgram({"nft", "-f", "-"}, kObserver).exit_code, 0);
  WriteGate(/*on=*/true);
  StartOnly({"--config=" + file_.path(), "--stale-chains=retire",
             "--cni-conf-dir=" + no_cni_.root(), "--iptables-sync-period=1s",
             absl::StrCat("--iptables-mode=", NameOf(GetParam()))});
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  Load(Component("RETURN", "KUBELET-MARK-DROP"));
  std::vector<std::unique_ptr<PacketSender>> streams;
  {
    const InNetns outside(world.client());
    for (const uint16_t port : {kDroppedPort, kPlainPort}) {
      streams.push_back(
          std::make_unique<PacketSender>(PacketWorld::ForwardedPath(port), kPerSecond));
    }
  }
  absl::SleepFor(kOnTheWay);
  for (int i = 0; i < 2 && !HasFatalFailure(); ++i) {
    Flip(/*on=*/false);
    EXPECT_TRUE(Exists("filter", "KUBELET-FIREWALL"));
    const uint64_t came = ObserverCounters().at("drop_came");
    EXPECT_TRUE(WaitUntil([&] { return ObserverCounters().at("drop_came") > came + 50; }));
    Flip(/*on=*/true);
  }
  uint64_t sent = 0;
  for (const auto& stream : streams) sent = stream->Stop();
  absl::SleepFor(kOnTheWay);
  const std::map<std::string, uint64_t> all = ObserverCounters();
  EXPECT_EQ(all.at("drop_left"), 0);
  EXPECT_GT(all.at("plain_came"), sent * 9 / 10) << "a queue ran over";
  EXPECT_EQ(all.at("plain_left"), all.at("plain_came"));

  Load(
      "*nat\n-D PREROUTING -j COMPONENT\n-D OUTPUT -j COMPONENT\n-F COMPONENT\n-X COMPONENT\n"
      "COMMIT\n");
  Flip(/*on=*/false);
  EXPECT_TRUE(WaitUntil([&] { return !Exists("filter", "KUBELET-FIREWALL"); }))
      << "no component jumps any more";
}

INSTANTIATE_TEST_SUITE_P(On, LabelFlipPacketsTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
