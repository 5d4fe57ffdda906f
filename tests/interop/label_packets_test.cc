// SPDX-License-Identifier: Apache-2.0
//
// What becomes of packets whose connection a component had labelled, on each way through the node,
// beside what becomes of those that it had marked.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/interop/label_fixture.h"
#include "tests/interop/packet_world.h"
#include "tests/interop/tunnel_world.h"

namespace kipt::testing {
namespace {

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
    SyncWith({.cleanup = true, .labels = true});
    Load(Component("KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
  }

  std::optional<TunnelWorld> world_;
};

TEST_P(LabelPacketsTest, LabelledConnectionsAreMasqueradedOrDroppedOnEveryWay) {
  for (const bool cleanup : {true, false}) {
    SyncWith({.cleanup = cleanup, .labels = true});
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
  // The rules are gone, the connections go on as they began; new ones do not.
  auto calls = world_->Open(kAllWays, kMasqueradedPort);
  const Answers masqueraded = TunnelWorld::Masqueraded(kAllWays, kMasqueradedPort);
  ASSERT_EQ(EchoCall::AskAll(calls, kPatience), masqueraded);
  Change({"-t", "nat", "-F", "COMPONENT"});
  EXPECT_EQ(EchoCall::AskAll(calls, kPatience), masqueraded);
  EXPECT_EQ(world_->Ask(kAllWays, kMasqueradedPort, kPatience),
            TunnelWorld::Unchanged(kAllWays, kMasqueradedPort));
}

INSTANTIATE_TEST_SUITE_P(On, LabelPacketsTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

// Packets that never cease, while ConnLabelMarking is switched on and off and what is stale is
// retired: nothing that is labelled for dropping gets through while it is on, and nothing that is
// not labelled is ever lost.

constexpr int kPerSecond = 1000;
constexpr int kFlips = 2;  // off and on again
// Packets that were on their way when a rule changed are through by then.
constexpr absl::Duration kOnTheWay = absl::Milliseconds(50);
constexpr absl::Duration kWatched = absl::Milliseconds(150);
// Of 150 that are sent while it is watched.
constexpr uint64_t kEnough = 50;

// What came to the node before iptables sees it, and what left it behind all of iptables' hooks.
constexpr char kWitness[] = R"(
table inet observer {
  counter masquerade_came { }
  counter drop_came { }
  counter plain_came { }
  counter masquerade_left { }
  counter drop_left { }
  counter plain_left { }
  counter left_as_it_came { }
  chain came {
    type filter hook prerouting priority -400
    iifname "outside" udp dport 7001 counter name masquerade_came
    iifname "outside" udp dport 7002 counter name drop_came
    iifname "outside" udp dport 7003 counter name plain_came
  }
  chain left {
    type filter hook postrouting priority 400
    udp dport 7001 counter name masquerade_left
    udp dport 7001 ip saddr 10.77.1.2 counter name left_as_it_came
    udp dport 7002 counter name drop_left
    udp dport 7003 counter name plain_left
  }
}
)";
using Counters = std::map<std::string, uint64_t>;

// Of a while, beginning when what is on its way is through.
Counters Watch() {
  absl::SleepFor(kOnTheWay);
  const Counters before = Witnessed();
  EXPECT_EQ(before.size(), 7U);
  absl::SleepFor(kWatched);
  Counters counters = Witnessed();
  for (auto& [name, count] : counters) count -= before.at(name);
  return counters;
}

class LabelFlipPacketsTest : public LabelTest {
 protected:
  void SetUp() override {
    LabelTest::SetUp();
    world_.emplace();
    SetSysctl("netfilter/nf_conntrack_udp_timeout", "2");
    ASSERT_EQ(RunProgram({"nft", "-f", "-"}, kWitness).exit_code, 0);
  }

  void WriteGate(bool on) const {
    std::ofstream(file_.path()) << kConfigHead
                                << "featureGates: " << Gates{.cleanup = true, .labels = on}.Yaml()
                                << "\n";
  }
  void StartDaemonWithGateOn() {
    WriteGate(/*on=*/true);
    StartOnly({"--config=" + file_.path(), "--stale-chains=retire",
               "--cni-conf-dir=" + no_cni_.root(), "--iptables-sync-period=1s",
               absl::StrCat("--iptables-mode=", NameOf(GetParam()))});
    ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  }
  static bool Stands(const std::string& table, const std::string& chain) {
    const Iptables iptables = {.mode = GetParam()};
    return iptables.Run({"-t", table, "-S", chain}).exit_code == 0;
  }
  // Waits until it is done in the kernel: nobody claims KUBELET-MARK-MASQ in these tests while the
  // gate is off. The firewall is the first that comes, and the last that goes.
  void FlipDaemon(bool on, bool firewall_goes) const {
    WriteGate(on);
    ASSERT_TRUE(WaitUntil([&] {
      return Stands("nat", "KUBELET-MARK-MASQ") == on &&
             (on || !firewall_goes || !Stands("filter", "KUBELET-FIREWALL"));
    })) << on;
  }

  static void RemoveComponent() {
    Load(
        "*nat\n-D PREROUTING -j COMPONENT\n-D OUTPUT -j COMPONENT\n-F COMPONENT\n-X COMPONENT\n"
        "COMMIT\n");
  }

  void StartSending() {
    const InNetns outside(world_->client());
    for (const uint16_t port : {kMasqueradedPort, kDroppedPort, kPlainPort}) {
      streams_.push_back(
          std::make_unique<PacketSender>(PacketWorld::ForwardedPath(port), kPerSecond));
    }
  }
  // Stops; what the node lost of what was not labelled.
  void ExpectNoPlainPacketWasLost() {
    uint64_t sent = 0;
    for (const auto& stream : streams_) sent = stream->Stop();
    absl::SleepFor(kOnTheWay);
    const Counters all = Witnessed();
    EXPECT_GT(all.at("plain_came"), sent * 9 / 10) << "a queue ran over";
    EXPECT_EQ(all.at("plain_left"), all.at("plain_came"));
    RecordProperty("Plain", absl::StrCat(all.at("plain_left"), " of ", sent));
    RecordProperty("ToBeDropped", absl::StrCat(all.at("drop_left"), " of ", all.at("drop_came")));
  }

  static void ExpectLabelsAct(const Counters& seen) {
    EXPECT_GT(seen.at("drop_came"), kEnough);
    EXPECT_EQ(seen.at("drop_left"), 0);
    EXPECT_GT(seen.at("masquerade_left"), kEnough);
    EXPECT_EQ(seen.at("left_as_it_came"), 0);
  }
  static void ExpectNobodyActs(const Counters& seen) {
    EXPECT_GT(seen.at("drop_left"), kEnough);
    EXPECT_GT(seen.at("left_as_it_came"), kEnough);
  }

  const TemporaryFile file_{kConfigHead};
  const TemporaryTree no_cni_;
  std::optional<PacketWorld> world_;
  std::vector<std::unique_ptr<PacketSender>> streams_;
};

TEST_P(LabelFlipPacketsTest, TheDaemonDropsWhatIsLabelledWheneverTheGateIsOn) {
  StartDaemonWithGateOn();
  StartSending();
  for (int i = 0; i < kFlips && !HasFatalFailure(); ++i) {
    Load(Component("KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
    ExpectLabelsAct(Watch());
    RemoveComponent();
    FlipDaemon(/*on=*/false, /*firewall_goes=*/true);
    ExpectNobodyActs(Watch());
    FlipDaemon(/*on=*/true, /*firewall_goes=*/true);
  }
  ExpectNoPlainPacketWasLost();
}

// Whose jump keeps the chain that labels, and so the one that acts on the label.
TEST_P(LabelFlipPacketsTest, NothingIsLetThroughByTheGateWhereAComponentJumps) {
  StartDaemonWithGateOn();
  Load(Component("RETURN", "KUBELET-MARK-DROP"));
  StartSending();
  absl::SleepFor(kOnTheWay);
  const uint64_t before = Witnessed().at("drop_left");
  for (int i = 0; i < kFlips && !HasFatalFailure(); ++i) {
    FlipDaemon(/*on=*/false, /*firewall_goes=*/false);
    EXPECT_TRUE(Stands("filter", "KUBELET-FIREWALL"));
    EXPECT_GT(Watch().at("drop_came"), kEnough);
    FlipDaemon(/*on=*/true, /*firewall_goes=*/false);
  }
  EXPECT_EQ(Witnessed().at("drop_left"), before);
  ExpectNoPlainPacketWasLost();
}

INSTANTIATE_TEST_SUITE_P(On, LabelFlipPacketsTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
