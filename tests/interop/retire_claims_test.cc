// SPDX-License-Identifier: Apache-2.0
//
// Everybody who may depend on a chain of kubelet's, kube-proxy aside, as they really are: what they
// use stays as it is found, and the rest goes.
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/retire_fixture.h"
#include "tests/support/matchers.h"
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
};

// "acts on what is marked", and the chain that marks.
Kept Masquerade(const std::string& why) {
  return {{"ip nat KUBE-MARK-MASQ", {why}}, {"ip nat KUBE-POSTROUTING", {"markedPackets"}}};
}
Kept Drop(const std::string& why) {
  return {{"ip nat KUBE-MARK-DROP", {why}}, {"ip filter KUBE-FIREWALL rule", {"markedPackets"}}};
}
// Its IPv6 namesake is claimed, too.
Kept OfBothFamilies(const Kept& kept) {
  Kept both = kept;
  for (const auto& [name, kinds] : kept) both[absl::StrCat("ip6", name.substr(2))] = kinds;
  if (kept.count("ip filter KUBE-FIREWALL rule") != 0) {
    both["ip6 filter KUBE-FIREWALL"] = {"markedPackets"};
  }
  return both;
}

constexpr char kConflist[] = R"({
  "cniVersion": "0.3.1",
  "name": "net",
  "plugins": [
    {"type": "bridge"},
    {"type": "portmap", "capabilities": {"portMappings": true},
     "externalSetMarkChain": "KUBE-MARK-MASQ"}
  ]
})";

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
     List("-t mangle -A PREROUTING -i eth9 -j MARK --set-xmark 0x4001/0x4001"),
     {{"ip nat KUBE-POSTROUTING", {"markedPackets"}}}},
    {"ARuleOfTheOtherModeThatSetsTheDropBit",
     List("-t mangle -A PREROUTING -i eth9 -j MARK --or-mark 0x8000"),
     {{"ip filter KUBE-FIREWALL rule", {"markedPackets"}}},
     By::kOther},
    {"AJumpOfTheOtherModeToItsOwnDropMark",
     List("-t nat -N KUBE-MARK-DROP", "-t nat -A KUBE-MARK-DROP -j MARK --or-mark 0x8000",
          "-t nat -A PREROUTING -p udp --dport 6000 -j KUBE-MARK-DROP"),
     {{"ip filter KUBE-FIREWALL rule", {"markedPackets"}}},
     By::kOther},
    {"ARuleOfNftablesThatSetsTheMasqueradeBit",
     List("add table ip mine", "add chain ip mine c", "add rule ip mine c meta mark set 0x4000"),
     {{"ip nat KUBE-POSTROUTING", {"markedPackets"}}},
     By::kNft},
    {"ARuleOfBothFamiliesThatMaySetAnyBit",
     List("add table inet mine", "add chain inet mine c",
          "add rule inet mine c meta mark set ct mark"),
     OfBothFamilies({{"ip nat KUBE-POSTROUTING", {"markedPackets"}},
                     {"ip filter KUBE-FIREWALL rule", {"markedPackets"}}}),
     By::kNft},
    {"ACniConfigurationThatNamesTheChain", List(kConflist), OfBothFamilies(Masquerade("cniConfig")),
     By::kCni},
    {"WhatKubeProxysCleanupLeft",
     List("-t mangle -N KUBE-PROXY-CANARY", "-t nat -N KUBE-PROXY-CANARY",
          "-t filter -N KUBE-PROXY-CANARY"),
     {{"ip nat KUBE-MARK-MASQ", {"kubeProxyRemains"}},
      {"ip nat KUBE-MARK-DROP", {"kubeProxyRemains"}},
      {"ip nat KUBE-POSTROUTING", {"kubeProxyRemains", "markedPackets"}},
      {"ip filter KUBE-FIREWALL rule", {"kubeProxyRemains", "markedPackets"}}}},
    {"ARuleThatSetsAnotherBit",
     List("-t mangle -A PREROUTING -i eth9 -j MARK --set-xmark 0x2000/0x2000")},
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

TEST_P(RetireClaimsTest, KeepsWhatItUsesAndNothingElse) {
  const Claimant& claimant = std::get<0>(GetParam());
  LeaveResidue(Mode());
  Claim(claimant);
  SyncAndKeep(Mode());
  std::map<IpFamily, Lines> before;
  for (const IpFamily family : kBothFamilies) {
    before[family] = LinesOf({.family = family, .mode = Mode()});
  }

  const Retired retired = SyncAndRetire(Mode());
  EXPECT_EQ(retired.result.exit_code, kExitOk) << retired.result;
  EXPECT_EQ(retired.kept, claimant.keeps) << retired.result;
  for (const IpFamily family : kBothFamilies) {
    const bool six = family == IpFamily::kIpv6;
    const Iptables iptables = {.family = family, .mode = Mode()};
    // A line of kubelet's stays if its chain does; the rules of filter's by themselves.
    const auto kept = [&](const std::string& name) {
      return claimant.keeps.count(absl::StrCat(six ? "ip6 " : "ip ", name)) != 0;
    };
    Lines expected = WholeResidue(family);
    std::erase_if(expected, [&](const std::string& line) {
      for (const std::string chain : {"KUBE-MARK-MASQ", "KUBE-MARK-DROP", "KUBE-POSTROUTING"}) {
        if (line.find(chain) != std::string::npos) return kept(absl::StrCat("nat ", chain));
      }
      if (line.find("dropping marked") != std::string::npos) {
        return kept("filter KUBE-FIREWALL rule");
      }
      return kept("filter KUBE-FIREWALL");
    });
    EXPECT_EQ(Without(before[family], LinesOf(iptables)), expected) << (six ? "IPv6" : "IPv4");
    EXPECT_THAT(Without(LinesOf(iptables), before[family]), IsEmpty());
  }
  EXPECT_EQ(SyncAndRetire(Mode()).all_changes, 0);
}

INSTANTIATE_TEST_SUITE_P(All, RetireClaimsTest,
                         ::testing::Combine(::testing::ValuesIn(kClaimants),
                                            ::testing::ValuesIn(kBothModes)),
                         [](const auto& row) {
                           return absl::StrCat(std::get<0>(row.param).name,
                                               TestNameOf(std::get<1>(row.param)));
                         });

// ---- The gate ConnLabelMarking is turned off: its chains are removed, except those in use ----

constexpr char kGateOn[] = "--feature-gates=ConnLabelMarking=true";

struct User {
  const char* name;
  // The program, behind "iptables-nft" or "iptables-legacy" of the managed mode where it starts
  // with "-t".
  std::vector<std::string> does = {};
  Kept keeps = {};
  // A CNI configuration's text.
  const char* conflist = nullptr;
};

const char* const kLabelConflist = R"({"cniVersion": "0.3.1", "name": "net", "plugins": [
  {"type": "portmap", "externalSetMarkChain": "KUBELET-MARK-MASQ"}]})";

const User kUsers[] = {
    {"Nobody"},
    {"AForeignJumpToMasquerade",
     List("-t nat -N MINE", "-t nat -A MINE -s 10.0.0.0/8 -j KUBELET-MARK-MASQ"),
     {{"ip nat KUBELET-MARK-MASQ", {"foreignJump"}},
      {"ip nat KUBELET-POSTROUTING", {"labelledPackets"}}}},
    {"AForeignRuleInTheChain",
     List("-t nat -I KUBELET-MARK-MASQ -p udp -j RETURN"),
     {{"ip nat KUBELET-MARK-MASQ", {"foreignRule"}},
      {"ip nat KUBELET-POSTROUTING", {"labelledPackets"}}}},
    {"AForeignRuleThatSetsTheDropLabel",
     List("-t mangle -A PREROUTING -i eth9 -m connlabel --label 115 --set"),
     {{"ip filter KUBELET-FIREWALL", {"labelledPackets"}}}},
    {"ARuleThatSetsAnotherLabel",
     List("-t mangle -A PREROUTING -i eth9 -m connlabel --label 50 --set")},
    {"ARuleOfNftablesThatMaySetAnyLabel",
     List("nft add table ip mine", "nft add chain ip mine c",
          "nft add rule ip mine c ct label set 3"),
     {{"ip nat KUBELET-POSTROUTING", {"labelledPackets"}},
      {"ip filter KUBELET-FIREWALL", {"labelledPackets"}}}},
    {"ACniConfigurationThatNamesTheChain",
     List(),
     {{"ip nat KUBELET-MARK-MASQ", {"cniConfig"}},
      {"ip nat KUBELET-POSTROUTING", {"labelledPackets"}},
      {"ip6 nat KUBELET-MARK-MASQ", {"cniConfig"}},
      {"ip6 nat KUBELET-POSTROUTING", {"labelledPackets"}}},
     kLabelConflist},
};

// "nat: -A POSTROUTING ... -j KUBELET-POSTROUTING".
Lines LabelLines(const Iptables& iptables) {
  Lines lines = LinesOf(iptables);
  std::erase_if(lines, [](const std::string& line) {
    return line.find("KUBELET-") == std::string::npos || line.find("MINE") != std::string::npos ||
           line.find("KUBE-KUBELET-") != std::string::npos;
  });
  return lines;
}

class RetireLabelsTest : public RetireTest,
                         public ::testing::WithParamInterface<std::tuple<User, IptablesMode>> {
 protected:
  static IptablesMode Mode() { return std::get<1>(GetParam()); }

  void Use(const User& user) const {
    if (user.conflist != nullptr) tree().Write("net.d/10-net.conflist", user.conflist);
    for (const std::string& command : user.does) {
      const bool iptables = command[0] == '-';
      Output({"sh", "-c",
              iptables ? absl::StrCat("iptables-", NameOf(Mode()), " ", command) : command});
    }
  }
};

TEST_P(RetireLabelsTest, KeepsWhatIsUsedAndNothingElse) {
  const User& user = std::get<0>(GetParam());
  const std::string mode = absl::StrCat("--iptables-mode=", NameOf(Mode()));
  const ProgramResult made = Agent({"sync", mode, kGateOn});
  ASSERT_EQ(made.exit_code, kExitOk) << made;
  Use(user);
  std::map<IpFamily, Lines> before;
  for (const IpFamily family : kBothFamilies) {
    before[family] = LabelLines({.family = family, .mode = Mode()});
    // Four chains, a rule in each, and four jumps; and what was put among them.
    EXPECT_GE(before[family].size(), 12U);
  }
  // While the gate is on nothing of it is stale.
  EXPECT_EQ(SyncAndRetire(Mode(), {kGateOn}).all_changes, 0);

  const Retired retired = SyncAndRetire(Mode());
  EXPECT_EQ(retired.result.exit_code, kExitOk) << retired.result;
  EXPECT_EQ(retired.kept, user.keeps) << retired.result;
  for (const IpFamily family : kBothFamilies) {
    const std::string prefix = family == IpFamily::kIpv4 ? "ip " : "ip6 ";
    Lines expected = before[family];
    std::erase_if(expected, [&](const std::string& line) {
      for (const char* chain : {"nat KUBELET-MARK-MASQ", "nat KUBELET-MARK-DROP",
                                "nat KUBELET-POSTROUTING", "filter KUBELET-FIREWALL"}) {
        const std::string name = std::string(chain).substr(std::string(chain).find(' ') + 1);
        if (line.find(name) != std::string::npos) {
          return user.keeps.count(absl::StrCat(prefix, chain)) == 0;
        }
      }
      return false;
    });
    EXPECT_EQ(LabelLines({.family = family, .mode = Mode()}), expected) << prefix;
  }
  EXPECT_EQ(SyncAndRetire(Mode()).all_changes, 0);
}

INSTANTIATE_TEST_SUITE_P(All, RetireLabelsTest,
                         ::testing::Combine(::testing::ValuesIn(kUsers),
                                            ::testing::ValuesIn(kBothModes)),
                         [](const auto& row) {
                           return absl::StrCat(std::get<0>(row.param).name,
                                               TestNameOf(std::get<1>(row.param)));
                         });

}  // namespace
}  // namespace kipt::testing
