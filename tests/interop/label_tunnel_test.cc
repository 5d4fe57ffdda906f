// SPDX-License-Identifier: Apache-2.0
//
// A pod's packets in a VXLAN tunnel: what is meant for the inner packet and is seen on the outer
// one too (kubernetes #78948), counted. The kernel hands the mark that a packet has when it enters
// the tunnel on to the packet around it; the connection of that one is another, and its labels too.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/label_fixture.h"
#include "tests/interop/tunnel_world.h"

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
  Load(Component("KUBE-MARK-MASQ", "KUBE-MARK-DROP"));
  Load(RoundObserver());
  EXPECT_EQ(Ask(kMasqueradedPort), Masqueraded());
  EXPECT_GE(Outer("OUTPUT", ""), 2 * kCalls);
  EXPECT_EQ(Outer("OUTPUT", " marked"), 0);
}

// Nothing clears the drop mark, so what is dropped is the tunnel's packet, by the node's own
// traffic's rule, and the IPv6 ones by IPv4's.
TEST_P(LabelTunnelTest, TheDropMarkOfAnInnerPacketDropsTheOuterOne) {
  SyncWith({});
  Load(Component("KUBE-MARK-MASQ", "KUBE-MARK-DROP"));
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
    if (!cleanup) Load(Component("KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
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
  Load(Component("KUBELET-MARK-MASQ", "KUBELET-MARK-DROP"));
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

}  // namespace
}  // namespace kipt::testing
