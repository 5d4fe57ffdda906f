// SPDX-License-Identifier: Apache-2.0
//
// What becomes of packets whose connection a component had labelled, on each way through the node,
// beside what becomes of those that it had marked.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/label_fixture.h"
#include "tests/interop/tunnel_world.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

// Both families, UDP and TCP.
constexpr uint64_t kCallsOfAWay = 4;
// A SYN that was not answered is sent again after a second.
constexpr absl::Duration kSentAgainByThen = absl::Milliseconds(1300);

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

  void Label(bool cleanup) const {
    SyncWith({.cleanup = cleanup, .labels = true});
    Load(Component("COMPONENT", "KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
  }
  // `end`: --dport, or --sport for what answers.
  static std::string ForPlainPort(const char* table, const char* chain, const char* rest,
                                  const char* end = "--dport") {
    std::string text = absl::StrCat("*", table, "\n");
    for (const char* const protocol : {"udp", "tcp"}) {
      absl::StrAppend(&text, "-A ", chain, " -p ", protocol, " ", end, " ", kPlainPort, " ", rest,
                      "\n");
    }
    return text + "COMMIT\n";
  }
  static uint64_t Labelled(const char* chain) { return Packets("nat", {"-A COMPONENT", chain}); }
  static uint64_t DroppedByLabel() { return Packets("filter", {"-A KUBELET-FIREWALL"}); }

  std::optional<TunnelWorld> world_;
};

TEST_P(LabelPacketsTest, LabelledConnectionsAreMasqueradedOrDroppedOnEveryWay) {
  for (const bool cleanup : {true, false}) {
    SyncWith({.cleanup = cleanup, .labels = true});
    if (cleanup) Load(Component("COMPONENT", "KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
    EXPECT_EQ(world_->Ask(kAllWays, kMasqueradedPort, kPatience),
              TunnelWorld::Masqueraded(kAllWays, kMasqueradedPort));
    EXPECT_EQ(world_->Ask(kAllWays, kDroppedPort, kDroppedByThen),
              TunnelWorld::Nothing(kAllWays, kDroppedPort));
    EXPECT_EQ(world_->Ask(kAllWays, kPlainPort, kPatience),
              TunnelWorld::Unchanged(kAllWays, kPlainPort));
  }
  EXPECT_EQ(DroppedByLabel(), 2 * kAllWays.size() * kCallsOfAWay);
}

// The yardstick. Forwarded packets are the difference: KUBE-FIREWALL does not see them, and of
// those into the tunnel it drops what is around them (label_tunnel_test.cc).
TEST_P(LabelPacketsTest, MarkedPacketsAreTreatedTheSameButForwardedOnesAreNotDropped) {
  SyncWith({});
  Load(Component("COMPONENT", "KUBE-MARK-MASQ", "KUBE-MARK-DROP"));
  EXPECT_EQ(world_->Ask(kAllWays, kMasqueradedPort, kPatience),
            TunnelWorld::Masqueraded(kAllWays, kMasqueradedPort));
  Answers dropped = TunnelWorld::Nothing(kAllWays, kDroppedPort);
  for (const auto& [name, answer] :
       TunnelWorld::Unchanged({Way::kForwarded, Way::kFromTunnel}, kDroppedPort)) {
    dropped[name] = answer;
  }
  EXPECT_EQ(world_->Ask(kAllWays, kDroppedPort, kDroppedByThen), dropped);
  EXPECT_EQ(world_->Ask(kAllWays, kPlainPort, kPatience),
            TunnelWorld::Unchanged(kAllWays, kPlainPort));
}

// An answer that comes has been translated back. nat sees the first packet alone.
TEST_P(LabelPacketsTest, RepliesAndLaterPacketsOfAConnectionAreTreatedAsTheFirst) {
  Label(/*cleanup=*/true);
  // All stay open: a later call from the port of a closed one would belong to its connection.
  std::vector<std::map<std::string, EchoCall>> all_calls;
  for (const auto& [port, expected] :
       {std::pair(kMasqueradedPort, TunnelWorld::Masqueraded(kAllWays, kMasqueradedPort)),
        std::pair(kPlainPort, TunnelWorld::Unchanged(kAllWays, kPlainPort))}) {
    auto& calls = all_calls.emplace_back(world_->Open(kAllWays, port));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(EchoCall::AskAll(calls, kPatience), expected) << i;
  }
  EXPECT_EQ(Labelled("KUBELET-MARK-MASQ"), kAllWays.size() * kCallsOfAWay);
  // The rules are gone, the connections go on as they began; new ones do not.
  auto calls = world_->Open(kAllWays, kMasqueradedPort);
  const Answers masqueraded = TunnelWorld::Masqueraded(kAllWays, kMasqueradedPort);
  ASSERT_EQ(EchoCall::AskAll(calls, kPatience), masqueraded);
  Change({"-t", "nat", "-F", "COMPONENT"});
  EXPECT_EQ(EchoCall::AskAll(calls, kPatience), masqueraded);
  EXPECT_EQ(world_->Ask(kAllWays, kMasqueradedPort, kPatience),
            TunnelWorld::Unchanged(kAllWays, kMasqueradedPort));
}

// What is dropped leaves no connection behind: each packet is a first one, and labelled anew.
TEST_P(LabelPacketsTest, EachPacketOfADroppedConnectionIsDropped) {
  Label(/*cleanup=*/true);
  const Answers nothing = TunnelWorld::Nothing(kAllWays, kDroppedPort);
  auto calls = world_->Open(kAllWays, kDroppedPort);
  EXPECT_EQ(EchoCall::AskAll(calls, kDroppedByThen), nothing);
  EXPECT_EQ(EchoCall::AskAll(calls, kSentAgainByThen), nothing);
  // Two datagrams, or a SYN that was sent again, or more where the machine is slow.
  EXPECT_GE(DroppedByLabel(), 2 * kAllWays.size() * kCallsOfAWay);
  EXPECT_EQ(Labelled("KUBELET-MARK-DROP"), DroppedByLabel());
  // Without the rule the same ones come through: TCP's SYN is sent again, UDP's program asks again.
  Change({"-t", "nat", "-F", "COMPONENT"});
  EXPECT_EQ(EchoCall::AskAll(calls, kPatience), TunnelWorld::Unchanged(kAllWays, kDroppedPort));
}

// A label that another table's rule sets reaches a connection in the middle of its life, which a
// jump from nat does not, and stays.
TEST_P(LabelPacketsTest, AConnectionLabelledInTheMiddleIsDroppedFromThenOnAndNoOther) {
  Label(/*cleanup=*/true);
  const std::vector<Way> ways = {Way::kToNode, Way::kForwarded, Way::kTunnelled};
  const Answers unchanged = TunnelWorld::Unchanged(ways, kPlainPort);
  const Answers nothing = TunnelWorld::Nothing(ways, kPlainPort);
  auto before = world_->Open(ways, kPlainPort);
  auto labelled = world_->Open(ways, kPlainPort);
  ASSERT_EQ(EchoCall::AskAll(before, kPatience), unchanged);
  ASSERT_EQ(EchoCall::AskAll(labelled, kPatience), unchanged);

  Load(ForPlainPort("nat", "COMPONENT", "-j KUBELET-MARK-DROP"));
  EXPECT_EQ(EchoCall::AskAll(labelled, kPatience), unchanged) << "nat does not see them any more";
  Change({"-t", "nat", "-F", "COMPONENT"});

  Load(ForPlainPort("mangle", "PREROUTING", "-m connlabel --label 115 --set"));
  EXPECT_EQ(EchoCall::AskAll(labelled, kDroppedByThen), nothing);
  Change({"-t", "mangle", "-F", "PREROUTING"});
  EXPECT_EQ(EchoCall::AskAll(labelled, kDroppedByThen), nothing) << "the label stays";
  EXPECT_EQ(EchoCall::AskAll(before, kPatience), unchanged);
  EXPECT_EQ(world_->Ask(ways, kPlainPort, kPatience), unchanged);
}

// What asks passes, so only what answers is there to be dropped: on its way in, out or through.
TEST_P(LabelPacketsTest, AnswersOfAConnectionLabelledOnTheWayBackAreDropped) {
  Label(/*cleanup=*/true);
  const Answers nothing = TunnelWorld::Nothing(kAllWays, kPlainPort);
  auto before = world_->Open(kAllWays, kPlainPort);
  ASSERT_EQ(EchoCall::AskAll(before, kPatience), TunnelWorld::Unchanged(kAllWays, kPlainPort));
  ASSERT_EQ(DroppedByLabel(), 0);
  for (const char* const chain : {"PREROUTING", "OUTPUT"}) {
    Load(ForPlainPort("mangle", chain, "-m connlabel --label 115 --set", "--sport"));
  }
  EXPECT_EQ(EchoCall::AskAll(before, kDroppedByThen), nothing);
  EXPECT_GE(DroppedByLabel(), kAllWays.size() * kCallsOfAWay);
  const uint64_t answers = Packets("mangle", {"--sport", "connlabel"});
  EXPECT_GE(answers, kAllWays.size() * kCallsOfAWay) << "each question was answered";
  // New ones: of TCP nothing but the handshake, whose answer is an answer too.
  EXPECT_EQ(world_->Ask(kAllWays, kPlainPort, kDroppedByThen), nothing);
  EXPECT_GE(Packets("mangle", {"--sport", "connlabel"}), answers + kAllWays.size() * kCallsOfAWay);
}

INSTANTIATE_TEST_SUITE_P(On, LabelPacketsTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
