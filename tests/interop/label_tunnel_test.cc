// SPDX-License-Identifier: Apache-2.0
//
// A pod's packets in a VXLAN tunnel: what is meant for the inner packet and is seen on the outer
// one too (kubernetes #78948), counted. The kernel hands the mark that a packet has when it enters
// the tunnel on to the packet around it; the connection of that one is another, and its labels too.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/interop/label_fixture.h"
#include "tests/interop/tunnel_world.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

const std::vector<Way> kTunnel = {Way::kTunnelled};
// Both families, UDP and TCP.
constexpr uint64_t kCalls = 4;

// Counts outer packets, by what they carry, at both hooks that they pass. (The tunnel's own are
// IPv4's; the other family counts none.)
std::string RoundObserver() {
  struct Row {
    const char* comment;
    const char* match;
  };
  constexpr Row kRows[] = {{"outer", ""},
                           {"outer marked", "-m mark ! --mark 0x0/0xffffffff"},
                           {"outer masquerade mark", "-m mark --mark 0x4000/0x4000"},
                           {"outer drop mark", "-m mark --mark 0x8000/0x8000"},
                           {"outer label 114", "-m connlabel --label 114"},
                           {"outer label 115", "-m connlabel --label 115"}};
  std::string text = "*mangle\n";
  for (const char* const chain : {"OUTPUT", "POSTROUTING"}) {
    for (const Row& row : kRows) {
      absl::StrAppend(&text, "-A ", chain, " -p udp --dport ", kVxlanPort, " ", row.match,
                      " -m comment --comment \"", row.comment, ".\"\n");
    }
  }
  // So that a label that is there is known to be counted.
  absl::StrAppend(&text, "-A POSTROUTING -o ", kTunnelInterface,
                  " -m connlabel --label 114 -m comment --comment \"inner label 114.\"\n");
  return text + "COMMIT\n";
}

class LabelTunnelTest : public LabelTest {
 protected:
  void SetUp() override {
    LabelTest::SetUp();
    world_.emplace(std::vector<uint16_t>{kMasqueradedPort, kDroppedPort, kPlainPort});
    ASSERT_FALSE(HasFailure());
    ASSERT_EQ(world_->Ask(kTunnel, kPlainPort, kPatience),
              TunnelWorld::Unchanged(kTunnel, kPlainPort));
  }

  // Outer packets at `chain` that carry `what`.
  static uint64_t Outer(const std::string& chain, const std::string& what) {
    return Packets("mangle",
                   {absl::StrCat("-A ", chain, " "), absl::StrCat("\"outer", what, ".\"")});
  }
  Answers Ask(uint16_t port, absl::Duration patience = kPatience) const {
    return world_->Ask(kTunnel, port, patience);
  }
  static Answers Masqueraded() { return TunnelWorld::Masqueraded(kTunnel, kMasqueradedPort); }
  static Answers Unchanged(uint16_t port) { return TunnelWorld::Unchanged(kTunnel, port); }
  static Answers Nothing() { return TunnelWorld::Nothing(kTunnel, kDroppedPort); }

  std::optional<TunnelWorld> world_;
};

// What leaks of the masquerade mark: the rule that clears it (kubelet 1.19) is in KUBE-POSTROUTING,
// and helps where that is reached.
TEST_P(LabelTunnelTest, OuterPacketsCarryNoMasqueradeMarkWhereKubePostroutingClearsIt) {
  SyncWith({});
  Load(Component("COMPONENT", "KUBE-MARK-MASQ", "KUBE-MARK-DROP"));
  Load(RoundObserver());
  EXPECT_EQ(Ask(kMasqueradedPort), Masqueraded());
  EXPECT_GE(Outer("OUTPUT", ""), 2 * kCalls);
  EXPECT_EQ(Outer("OUTPUT", " marked"), 0);
}

// Nothing clears the drop mark, so what is dropped is the tunnel's packet, by the node's own
// traffic's rule, and the IPv6 ones by IPv4's.
TEST_P(LabelTunnelTest, TheDropMarkOfAnInnerPacketDropsTheOuterOne) {
  SyncWith({});
  Load(Component("COMPONENT", "KUBE-MARK-MASQ", "KUBE-MARK-DROP"));
  Load(RoundObserver());
  EXPECT_EQ(Ask(kDroppedPort, kDroppedByThen), Nothing());
  EXPECT_EQ(Outer("OUTPUT", " drop mark"), kCalls);
  EXPECT_EQ(Outer("POSTROUTING", " drop mark"), 0);
  EXPECT_EQ(Packets("filter", {"-A KUBE-FIREWALL", "0x8000/0x8000"}), kCalls);
  // One step further: with that rule gone they are on their way.
  Change({"-D", "OUTPUT", "-j", "KUBE-FIREWALL"});
  EXPECT_EQ(Ask(kDroppedPort), Unchanged(kDroppedPort));
  EXPECT_EQ(Outer("POSTROUTING", " drop mark"), kCalls);
}

TEST_P(LabelTunnelTest, OuterPacketsCarryNoMarkAndNoLabelWhereTheConnectionIsLabelled) {
  for (const bool cleanup : {false, true}) {
    SyncWith({.cleanup = cleanup, .labels = true});
    if (!cleanup) Load(Component("COMPONENT", "KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
    if (!cleanup) Load(RoundObserver());
    EXPECT_EQ(Ask(kMasqueradedPort), Masqueraded()) << cleanup;
    EXPECT_EQ(Ask(kDroppedPort, kDroppedByThen), Nothing()) << cleanup;
    EXPECT_EQ(Ask(kPlainPort), Unchanged(kPlainPort)) << cleanup;
  }
  // No packet for the dropped port has left; all others have.
  EXPECT_GE(Outer("OUTPUT", ""), 2 * 2 * 2 * kCalls);
  for (const char* const chain : {"OUTPUT", "POSTROUTING"}) {
    for (const char* const what : {" marked", " label 114", " label 115"}) {
      EXPECT_EQ(Outer(chain, what), 0) << chain << what;
    }
  }
  EXPECT_GT(Packets("mangle", {"inner label 114"}), 2 * kCalls) << "all of the connection have it";
  EXPECT_GE(Packets("filter", {"-A KUBELET-FIREWALL"}), 2 * kCalls) << "before the tunnel";
}

// The same rule that decides first: then labels do not masquerade either, and leak nothing.
TEST_P(LabelTunnelTest, OuterPacketsCarryNoMarkAndNoLabelWhereKubeletPostroutingIsNotReached) {
  SyncWith({.labels = true});
  Load(Component("COMPONENT", "KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
  Change({"-t", "nat", "-I", "POSTROUTING", "-o", kTunnelInterface, "-j", "ACCEPT"});
  Load(RoundObserver());
  EXPECT_EQ(Ask(kMasqueradedPort), Unchanged(kMasqueradedPort));
  EXPECT_GE(Outer("OUTPUT", ""), 2 * kCalls);
  EXPECT_EQ(Outer("OUTPUT", " marked"), 0);
  EXPECT_EQ(Outer("OUTPUT", " label 114"), 0);
  EXPECT_EQ(Packets("nat", {"-A KUBELET-POSTROUTING", "-j MASQUERADE"}), 0);
}

INSTANTIATE_TEST_SUITE_P(On, LabelTunnelTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

// Labels next to other users of the node: a second component that has its own, and one that uses
// all of the mark.

constexpr uint16_t kOthersMasqueradedPort = 7004;
constexpr uint16_t kOthersDroppedPort = 7005;
constexpr uint16_t kWeMasqueradeTheyDropPort = 7006;
constexpr uint16_t kTheyMasqueradeWeDropPort = 7007;

// How many first packets of connections one component's rules have matched.
struct Acted {
  uint64_t masqueraded = 0;
  uint64_t dropped = 0;

  bool operator==(const Acted&) const = default;
};
void PrintTo(const Acted& acted, std::ostream* stream) {
  *stream << acted.masqueraded << " masqueraded, " << acted.dropped << " dropped";
}
// One port of each component's, on all ways, both families, UDP and TCP. What is for the node does
// not leave it, and is not masqueraded.
constexpr Acted kOnce = {.masqueraded = 4 * 2 * 2, .dropped = 5 * 2 * 2};

// The same as kubelet's chains, of somebody else, with labels 20 and 21.
constexpr char kOther[] = R"(*nat
:OTHER-MARK-MASQ - [0:0]
:OTHER-MARK-DROP - [0:0]
:OTHER-POSTROUTING - [0:0]
-A OTHER-MARK-MASQ -m connlabel --label 20 --set
-A OTHER-MARK-DROP -m connlabel --label 21 --set
-A OTHER-POSTROUTING -m connlabel --label 20 -j MASQUERADE --random-fully
ADD POSTROUTING -j OTHER-POSTROUTING
COMMIT
*filter
:OTHER-FIREWALL - [0:0]
-A OTHER-FIREWALL -m connlabel --label 21 -j DROP
ADD INPUT -j OTHER-FIREWALL
ADD FORWARD -j OTHER-FIREWALL
ADD OUTPUT -j OTHER-FIREWALL
COMMIT
)";

class LabelCompanyTest : public LabelTest {
 protected:
  void SetUp() override {
    LabelTest::SetUp();
    const std::vector<uint16_t> ports = {
        kMasqueradedPort,         kDroppedPort,       kPlainPort,
        kOthersMasqueradedPort,   kOthersDroppedPort, kWeMasqueradeTheyDropPort,
        kTheyMasqueradeWeDropPort};
    world_.emplace(ports);
    ASSERT_FALSE(HasFailure());
    for (const uint16_t port : ports) {
      ASSERT_EQ(Ask(port, kPatience), TunnelWorld::Unchanged(kAllWays, port));
    }
  }

  Answers Ask(uint16_t port, absl::Duration patience) const {
    return world_->Ask(kAllWays, port, patience);
  }
  // All at the same time.
  Answers Ask(const std::vector<uint16_t>& ports, absl::Duration patience) const {
    std::map<std::string, EchoCall> calls;
    for (const uint16_t port : ports) calls.merge(world_->Open(kAllWays, port));
    return EchoCall::AskAll(calls, patience);
  }

  static void LoadOther(const std::string& add) {
    Load(absl::StrReplaceAll(kOther, {{"ADD", add}}));
    Load(Component("THEIRS", "OTHER-MARK-MASQ", "OTHER-MARK-DROP", kOthersMasqueradedPort,
                   kOthersDroppedPort));
    // Both components have something to say about these.
    Load(Component("THEIRS-TOO", "OTHER-MARK-MASQ", "OTHER-MARK-DROP", kTheyMasqueradeWeDropPort,
                   kWeMasqueradeTheyDropPort));
    Load(Component("OURS-TOO", "KUBELET-MARK-MASQ", "KUBELET-MARK-DROP", kWeMasqueradeTheyDropPort,
                   kTheyMasqueradeWeDropPort));
  }
  static std::vector<std::string> OthersRules() {
    std::vector<std::string> rules = Rules("nat", {"OTHER"});
    for (const std::string& rule : Rules("filter", {"OTHER"})) rules.push_back(rule);
    return rules;
  }
  // What the rules that act on labels have matched: "KUBELET" or "OTHER".
  static Acted ActedBy(const std::string& whose) {
    return {.masqueraded = Packets("nat", {"-A " + whose + "-POSTROUTING", "-j MASQUERADE"}),
            .dropped = Packets("filter", {"-A " + whose + "-FIREWALL", "-j DROP"})};
  }

  // `add` is how the other component puts its jumps into built-in chains: -I or -A.
  void ExpectNoInterference(const std::string& add) const {
    constexpr Gates kGates = {.cleanup = true, .labels = true};
    SyncWith(kGates);
    Load(Component("OURS", "KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
    LoadOther(add);
    const std::vector<std::string> others = OthersRules();
    ASSERT_EQ(others.size(), 2 * 16U) << "in both families";
    ExpectNothingPlannedWith(kGates);

    EXPECT_EQ(Ask(kMasqueradedPort, kPatience),
              TunnelWorld::Masqueraded(kAllWays, kMasqueradedPort));
    EXPECT_EQ(Ask(kDroppedPort, kDroppedByThen), TunnelWorld::Nothing(kAllWays, kDroppedPort));
    EXPECT_EQ(ActedBy("KUBELET"), kOnce);
    EXPECT_EQ(ActedBy("OTHER"), Acted{});
    EXPECT_EQ(Ask(kOthersMasqueradedPort, kPatience),
              TunnelWorld::Masqueraded(kAllWays, kOthersMasqueradedPort));
    EXPECT_EQ(Ask(kOthersDroppedPort, kDroppedByThen),
              TunnelWorld::Nothing(kAllWays, kOthersDroppedPort));
    EXPECT_EQ(ActedBy("KUBELET"), kOnce);
    EXPECT_EQ(ActedBy("OTHER"), kOnce);

    Answers together = TunnelWorld::Masqueraded(kAllWays, kMasqueradedPort);
    together.merge(TunnelWorld::Masqueraded(kAllWays, kOthersMasqueradedPort));
    together.merge(TunnelWorld::Nothing(kAllWays, kDroppedPort));
    together.merge(TunnelWorld::Nothing(kAllWays, kOthersDroppedPort));
    together.merge(TunnelWorld::Nothing(kAllWays, kWeMasqueradeTheyDropPort));
    together.merge(TunnelWorld::Nothing(kAllWays, kTheyMasqueradeWeDropPort));
    together.merge(TunnelWorld::Unchanged(kAllWays, kPlainPort));
    EXPECT_EQ(Ask({kMasqueradedPort, kOthersMasqueradedPort, kDroppedPort, kOthersDroppedPort,
                   kWeMasqueradeTheyDropPort, kTheyMasqueradeWeDropPort, kPlainPort},
                  kDroppedByThen),
              together);

    SyncWith(kGates);
    EXPECT_EQ(OthersRules(), others);
    ExpectNothingPlannedWith(kGates);
  }

  // Every packet has all 32 bits when it comes in, and when it is sent from here.
  static void SetAllBits() {
    Load("*raw\n-A PREROUTING -j MARK --set-xmark 0xffffffff/0xffffffff\nCOMMIT\n");
    Load(
        "*mangle\n-A OUTPUT -j MARK --set-xmark 0xffffffff/0xffffffff\n"
        "-A POSTROUTING -m mark --mark 0xffffffff/0xffffffff -m comment --comment observer\n"
        "-A INPUT -m mark --mark 0xffffffff/0xffffffff -m comment --comment observer\nCOMMIT\n");
  }

  std::optional<TunnelWorld> world_;
};

TEST_P(LabelCompanyTest, AComponentWithItsOwnLabelsAndJumpsAboveOursDoesNotInterfere) {
  ExpectNoInterference("-I");
}

TEST_P(LabelCompanyTest, AComponentWithItsOwnLabelsAndJumpsBelowOursDoesNotInterfere) {
  ExpectNoInterference("-A");
}

// The control of both: with a label of ours it would.
TEST_P(LabelCompanyTest, AComponentThatTakesOurLabelsIsSeen) {
  SyncWith({.cleanup = true, .labels = true});
  LoadOther("-I");
  Load("*nat\n-I OTHER-MARK-DROP -m connlabel --label 115 --set\nCOMMIT\n");
  Load("*filter\n-F OTHER-FIREWALL\nCOMMIT\n");
  EXPECT_EQ(Ask(kOthersDroppedPort, kDroppedByThen),
            TunnelWorld::Nothing(kAllWays, kOthersDroppedPort));
  EXPECT_EQ(Packets("filter", {"-A KUBELET-FIREWALL", "-j DROP"}), kOnce.dropped);
}

TEST_P(LabelCompanyTest, AllBitsOfTheMarkAreFreeInCleanupMode) {
  SyncWith({.cleanup = true, .labels = true});
  SetAllBits();
  EXPECT_EQ(Ask(kPlainPort, kPatience), TunnelWorld::Unchanged(kAllWays, kPlainPort));
  EXPECT_GE(Packets("mangle", {"-A POSTROUTING", "observer"}), 2 * kOnce.dropped);
  EXPECT_GE(Packets("mangle", {"-A INPUT", "observer"}), kOnce.dropped / 4);
  for (const char* const table : {"filter", "nat"}) {
    EXPECT_EQ(Packets(table, {"-A KUBE"}), 0) << "rules in our chains, of " << table;
  }
  Load(Component("OURS", "KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
  EXPECT_EQ(Ask(kMasqueradedPort, kPatience), TunnelWorld::Masqueraded(kAllWays, kMasqueradedPort));
  EXPECT_EQ(Ask(kDroppedPort, kDroppedByThen), TunnelWorld::Nothing(kAllWays, kDroppedPort));
  EXPECT_EQ(Ask(kPlainPort, kPatience), TunnelWorld::Unchanged(kAllWays, kPlainPort));
  EXPECT_EQ(ActedBy("KUBELET"), kOnce);
}

// The control: there two of them are taken. (What the tunnel sends is sent from here, too.)
TEST_P(LabelCompanyTest, AllBitsOfTheMarkAreNotFreeInLegacyMode) {
  SyncWith({.cleanup = false, .labels = true});
  SetAllBits();
  Answers expected = TunnelWorld::Nothing(kAllWays, kPlainPort);
  for (const auto& [name, answer] : TunnelWorld::Masqueraded({Way::kForwarded}, kPlainPort)) {
    expected[name] = answer;
  }
  EXPECT_EQ(Ask(kPlainPort, kDroppedByThen), expected);
}

INSTANTIATE_TEST_SUITE_P(On, LabelCompanyTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
