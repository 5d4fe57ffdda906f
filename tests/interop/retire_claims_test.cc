// SPDX-License-Identifier: Apache-2.0
//
// Every program, except kube-proxy, that may depend on a chain of kubelet's, with its real rules:
// what it uses stays unchanged, and the rest is removed. The same of the chains of
// ConnLabelMarking, once that gate is off.
#include <tuple>

#include "tests/interop/retire_fixture.h"
#include "tests/support/rows.h"

namespace kipt::testing {
namespace {

enum class By {
  kManaged,  // iptables of the managed mode
  kOther,    // of the other one
  kNft,      // nft itself
  kCni,      // a file in the CNI configuration directory
};

struct Claimant {
  const char* name;
  // Commands; or a file.
  std::vector<std::string> does;
  // Of kubelet's nat: what it keeps, and why.
  Kept keeps = {};
  By by = By::kManaged;
  // Of the chains of labels, and not of kubelet's.
  bool of_labels = false;
};

// Its IPv6 namesake is claimed, too.
Kept OfBothFamilies(const Kept& kept) {
  Kept both = kept;
  for (const auto& [name, kinds] : kept) both[absl::StrCat("ip6", name.substr(2))] = kinds;
  if (kept.count("ip filter KUBE-FIREWALL rule") != 0) {
    both["ip6 filter KUBE-FIREWALL"] = {"markedPackets"};
  }
  return both;
}

// A tunnel carries a mark into the other family, so what acts on it stays in both.
const Kept kMasquerades = OfBothFamilies({{"ip nat KUBE-POSTROUTING", {"markedPackets"}}});
const Kept kDrops = OfBothFamilies({{"ip filter KUBE-FIREWALL rule", {"markedPackets"}}});

// And the chain that marks.
Kept With(const std::string& chain, const std::string& why, Kept kept) {
  kept[chain] = {why};
  return kept;
}
Kept Masquerade(const std::string& why) { return With("ip nat KUBE-MARK-MASQ", why, kMasquerades); }
Kept MasqueradeLabel(const std::string& why) {
  return With("ip nat KUBELET-MARK-MASQ", why,
              {{"ip nat KUBELET-POSTROUTING", {"labelledPackets"}}});
}
Kept Drop(const std::string& why) { return With("ip nat KUBE-MARK-DROP", why, kDrops); }

std::string Conflist(const std::string& chain) {
  return absl::StrCat(R"({"cniVersion": "0.3.1", "name": "net", "plugins": [{"type": "bridge"},
  {"type": "portmap", "externalSetMarkChain": ")",
                      chain, R"("}]})");
}

const Claimant kClaimants[] = {
    {"AForeignJumpToTheMasqueradeMark",
     List("-t nat -N MINE", "-t nat -A MINE -s 10.0.0.0/8 -j KUBE-MARK-MASQ"),
     Masquerade("foreignJump")},
    {"AForeignJumpToTheDropMark",
     List("-t nat -N MINE", "-t nat -A MINE -s 10.0.0.0/8 -g KUBE-MARK-DROP"), Drop("foreignJump")},
    {"AnotherJumpToPostrouting",
     List("-t nat -A POSTROUTING -o eth9 -j KUBE-POSTROUTING"),
     {{"ip nat KUBE-POSTROUTING", {"foreignJump"}}}},
    {"AForeignRuleInTheChain", List("-t nat -I KUBE-MARK-MASQ -p udp -j RETURN"),
     Masquerade("foreignRule")},
    {"AForeignRuleThatSetsTheMasqueradeBit",
     List("-t mangle -A PREROUTING -i eth9 -j MARK --set-xmark 0x4001/0x4001"), kMasquerades},
    {"ARuleOfTheOtherModeThatSetsTheDropBit",
     List("-t mangle -A PREROUTING -i eth9 -j MARK --or-mark 0x8000"), kDrops, By::kOther},
    {"AJumpOfTheOtherModeToItsOwnDropMark",
     List("-t nat -N KUBE-MARK-DROP", "-t nat -A KUBE-MARK-DROP -j MARK --or-mark 0x8000",
          "-t nat -A PREROUTING -p udp --dport 6000 -j KUBE-MARK-DROP"),
     kDrops, By::kOther},
    {"ARuleOfNftablesThatSetsTheMasqueradeBit",
     List("add table ip mine", "add chain ip mine c", "add rule ip mine c meta mark set 0x4000"),
     kMasquerades, By::kNft},
    {"ARuleOfBothFamiliesThatMaySetAnyBit",
     List("add table inet mine", "add chain inet mine c",
          "add rule inet mine c meta mark set ct mark"),
     OfBothFamilies({{"ip nat KUBE-POSTROUTING", {"markedPackets"}},
                     {"ip filter KUBE-FIREWALL rule", {"markedPackets"}}}),
     By::kNft},
    {"ATableOfBothFamiliesThatIsNotKubeProxys",
     List("add table inet kube-proxy", "add chain inet kube-proxy c",
          "add rule inet kube-proxy c meta mark set 0x4000"),
     kMasquerades, By::kNft},
    {"KubeProxysNftablesMode",
     List("add table ip6 kube-proxy", "add chain ip6 kube-proxy c",
          "add rule ip6 kube-proxy c meta mark set 0x4000"),
     Kept(), By::kNft},
    {"ACniConfigurationThatNamesTheChain", List(Conflist("KUBE-MARK-MASQ")),
     With("ip6 nat KUBE-MARK-MASQ", "cniConfig", Masquerade("cniConfig")), By::kCni},
    {"WhatKubeProxysCleanupLeft",
     List("-t mangle -N KUBE-PROXY-CANARY", "-t nat -N KUBE-PROXY-CANARY",
          "-t filter -N KUBE-PROXY-CANARY"),
     {{"ip nat KUBE-MARK-MASQ", {"kubeProxyRemains"}},
      {"ip nat KUBE-MARK-DROP", {"kubeProxyRemains"}},
      {"ip nat KUBE-POSTROUTING", {"kubeProxyRemains", "markedPackets"}},
      {"ip filter KUBE-FIREWALL rule", {"kubeProxyRemains", "markedPackets"}},
      {"ip6 nat KUBE-POSTROUTING", {"markedPackets"}},
      {"ip6 filter KUBE-FIREWALL", {"markedPackets"}},
      {"ip6 filter KUBE-FIREWALL rule", {"markedPackets"}}}},
    {"AChainOfTypeNatWhereOnlyKubeletsRulesTrackConnections",
     List("add table ip6 mine", "add chain ip6 mine c '{ type nat hook prerouting priority -90; }'",
          "add rule ip6 mine c udp dport 5000 drop"),
     With("ip6 nat KUBE-POSTROUTING", "connectionTracking", Kept()), By::kNft},
    {"AChainOfTypeNatNextToARuleThatTracksConnections",
     List("add table ip6 mine", "add chain ip6 mine c '{ type nat hook prerouting priority -90; }'",
          "add rule ip6 mine c ct state new drop"),
     Kept(), By::kNft},
    {"ARuleThatSetsAnotherBit",
     List("-t mangle -A PREROUTING -i eth9 -j MARK --set-xmark 0x2000/0x2000")},
    // ---- of labels ----
    {"NoUserOfLabels", List(), {}, By::kManaged, true},
    {"AForeignJumpToTheMasqueradeLabel",
     List("-t nat -N MINE", "-t nat -A MINE -s 10.0.0.0/8 -j KUBELET-MARK-MASQ"),
     MasqueradeLabel("foreignJump"), By::kManaged, true},
    {"AForeignRuleInTheChainOfALabel", List("-t nat -I KUBELET-MARK-MASQ -p udp -j RETURN"),
     MasqueradeLabel("foreignRule"), By::kManaged, true},
    {"AForeignRuleThatSetsTheDropLabel",
     List("-t mangle -A PREROUTING -i eth9 -m connlabel --label 115 --set"),
     With("ip filter KUBELET-FIREWALL", "labelledPackets", Kept()), By::kManaged, true},
    {"ARuleThatSetsAnotherLabel",
     List("-t mangle -A PREROUTING -i eth9 -m connlabel --label 50 --set"), Kept(), By::kManaged,
     true},
    {"ARuleOfNftablesThatMaySetAnyLabel",
     List("add table ip mine", "add chain ip mine c", "add rule ip mine c ct label set 3"),
     {{"ip nat KUBELET-POSTROUTING", {"labelledPackets"}},
      {"ip filter KUBELET-FIREWALL", {"labelledPackets"}}},
     By::kNft,
     true},
    {"ACniConfigurationThatNamesTheChainOfALabel", List(Conflist("KUBELET-MARK-MASQ")),
     OfBothFamilies(MasqueradeLabel("cniConfig")), By::kCni, true},
};

class RetireClaimsTest : public RetireTest,
                         public ::testing::WithParamInterface<std::tuple<Claimant, IptablesMode>> {
 protected:
  static IptablesMode Mode() { return std::get<1>(GetParam()); }

  void Claim(const Claimant& claimant) {
    if (claimant.by == By::kCni) {
      tree().Write("net.d/10-net.conflist", claimant.does[0]);
      return;
    }
    for (const std::string& command : claimant.does) {
      IptablesMode mode = Mode();
      if (claimant.by == By::kOther) {
        mode = mode == IptablesMode::kNft ? IptablesMode::kLegacy : IptablesMode::kNft;
      }
      const std::string program =
          claimant.by == By::kNft ? "nft" : absl::StrCat("iptables-", NameOf(mode));
      Output({"sh", "-c", absl::StrCat(program, " ", command)});
    }
  }
};

// A line of kubelet's stays if its chain does; each rule of filter is decided separately.
bool Stays(const std::string& line, const std::string& family, const Kept& keeps) {
  const auto kept = [&](const std::string& name) {
    return keeps.count(absl::StrCat(family, " ", name)) != 0;
  };
  for (const std::string chain : {"-MARK-MASQ", "-MARK-DROP", "-POSTROUTING"}) {
    for (const std::string owner : {"KUBE", "KUBELET"}) {
      if (absl::StrContains(line, owner + chain)) return kept("nat " + owner + chain);
    }
  }
  if (absl::StrContains(line, "KUBELET-FIREWALL")) return kept("filter KUBELET-FIREWALL");
  if (absl::StrContains(line, "dropping marked")) return kept("filter KUBE-FIREWALL rule");
  return kept("filter KUBE-FIREWALL");
}

// Four chains, a rule in each, and four jumps; and what was put among them.
Lines OfLabels(Lines lines) {
  std::erase_if(lines, [](const std::string& line) {
    return !absl::StrContains(line, " KUBELET-") && !absl::StrContains(line, ":KUBELET-");
  });
  std::erase_if(lines, [](const std::string& line) { return absl::StrContains(line, "MINE"); });
  EXPECT_GE(lines.size(), 12U);
  return lines;
}

TEST_P(RetireClaimsTest, KeepsWhatItUsesAndNothingElse) {
  constexpr char kGateOn[] = "--feature-gates=ConnLabelMarking=true";
  const Claimant& claimant = std::get<0>(GetParam());
  if (claimant.of_labels) {
    // While the gate is on nothing of it is stale.
    SyncAndRetire(Mode(), {kGateOn});
    Claim(claimant);
    EXPECT_EQ(SyncAndRetire(Mode(), {kGateOn}).all_changes, 0);
  } else {
    LeaveResidue(Mode());
    Claim(claimant);
    SyncAndKeep(Mode());
  }
  std::map<IpFamily, Lines> before;
  for (const IpFamily family : kBothFamilies) {
    before[family] = LinesOf({.family = family, .mode = Mode()});
  }

  const Retired retired = SyncAndRetire(Mode());
  EXPECT_EQ(retired.result.exit_code, kExitOk) << retired.result;
  EXPECT_EQ(retired.kept, claimant.keeps) << retired.result;
  for (const IpFamily family : kBothFamilies) {
    const std::string name = family == IpFamily::kIpv4 ? "ip" : "ip6";
    const Lines after = LinesOf({.family = family, .mode = Mode()});
    Lines expected = claimant.of_labels ? OfLabels(before[family]) : WholeResidue(family);
    std::erase_if(expected,
                  [&](const std::string& line) { return Stays(line, name, claimant.keeps); });
    EXPECT_EQ(Without(before[family], after), expected) << name;
    EXPECT_THAT(Without(after, before[family]), IsEmpty());
  }
  EXPECT_EQ(SyncAndRetire(Mode()).all_changes, 0);
}

INSTANTIATE_TEST_SUITE_P(All, RetireClaimsTest,
                         ::testing::Combine(::testing::ValuesIn(kClaimants),
                                            ::testing::ValuesIn(kBothModes)),
                         RowAndModeName<Claimant>);

}  // namespace
}  // namespace kipt::testing
