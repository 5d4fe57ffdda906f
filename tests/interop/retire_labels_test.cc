// SPDX-License-Identifier: Apache-2.0
//
// The gate ConnLabelMarking goes off: its chains go, but for what somebody uses.
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/retire_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

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

const char* const kConflist = R"({"cniVersion": "0.3.1", "name": "net", "plugins": [
  {"type": "portmap", "externalSetMarkChain": "KUBELET-MARK-MASQ"}]})";

const User kUsers[] = {
    {"Nobody"},
    {"AForeignJumpToMasquerade",
     {"-t nat -N MINE", "-t nat -A MINE -s 10.0.0.0/8 -j KUBELET-MARK-MASQ"},
     {{"ip nat KUBELET-MARK-MASQ", {"foreignJump"}},
      {"ip nat KUBELET-POSTROUTING", {"labelledPackets"}}}},
    {"AForeignGotoToDrop",
     {"-t nat -A PREROUTING -s 10.0.0.0/8 -g KUBELET-MARK-DROP"},
     {{"ip nat KUBELET-MARK-DROP", {"foreignJump"}},
      {"ip filter KUBELET-FIREWALL", {"labelledPackets"}}}},
    {"AForeignRuleInTheChain",
     {"-t nat -I KUBELET-MARK-MASQ -p udp -j RETURN"},
     {{"ip nat KUBELET-MARK-MASQ", {"foreignRule"}},
      {"ip nat KUBELET-POSTROUTING", {"labelledPackets"}}}},
    {"AForeignRuleThatSetsTheDropLabel",
     {"-t mangle -A PREROUTING -i eth9 -m connlabel --label 115 --set"},
     {{"ip filter KUBELET-FIREWALL", {"labelledPackets"}}}},
    {"ARuleThatSetsAnotherLabel",
     {"-t mangle -A PREROUTING -i eth9 -m connlabel --label 50 --set"}},
    {"ARuleThatTestsTheLabel",
     {"-t mangle -A PREROUTING -i eth9 -m connlabel --label 115 -j ACCEPT"}},
    {"ARuleOfNftablesThatMaySetAnyLabel",
     {"nft add table ip mine", "nft add chain ip mine c", "nft add rule ip mine c ct label set 3"},
     {{"ip nat KUBELET-POSTROUTING", {"labelledPackets"}},
      {"ip filter KUBELET-FIREWALL", {"labelledPackets"}}}},
    {"ARuleThatSetsMarks", {"-t mangle -A PREROUTING -j MARK --or-mark 0xffffffff"}},
    {"KubeProxysChains", {"-t nat -N KUBE-SERVICES", "-t filter -N KUBE-SERVICES"}},
    {"ACniConfigurationThatNamesTheChain",
     {},
     {{"ip nat KUBELET-MARK-MASQ", {"cniConfig"}},
      {"ip nat KUBELET-POSTROUTING", {"labelledPackets"}},
      {"ip6 nat KUBELET-MARK-MASQ", {"cniConfig"}},
      {"ip6 nat KUBELET-POSTROUTING", {"labelledPackets"}}},
     kConflist},
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

class RetireLabelsByHandTest : public RetireTest,
                               public ::testing::WithParamInterface<IptablesMode> {};

TEST_P(RetireLabelsByHandTest, TakesAllOfThemInBothFamiliesAndLegacyModeToo) {
  const std::string mode = absl::StrCat("--iptables-mode=", NameOf(GetParam()));
  const std::string legacy = "IPTablesOwnershipCleanup=false";
  const ProgramResult made = Agent({"sync", mode, absl::StrCat(kGateOn, ",", legacy),
                                    "--iptables-masquerade-label=0", "--iptables-drop-label=127"});
  ASSERT_EQ(made.exit_code, kExitOk) << made;
  const std::string gates = absl::StrCat("--feature-gates=", legacy);
  const Retired retired = RunRetire(GetParam(), {"--yes", gates});
  EXPECT_EQ(retired.result.exit_code, kExitOk) << retired.result;
  EXPECT_THAT(retired.kept, IsEmpty());
  EXPECT_EQ(retired.changes, 2 * 12);
  for (const IpFamily family : kBothFamilies) {
    EXPECT_THAT(LabelLines({.family = family, .mode = GetParam()}), IsEmpty());
  }
  const ProgramResult left = Agent({"plan", mode, gates});
  EXPECT_EQ(left.exit_code, kExitOk) << left;
}

INSTANTIATE_TEST_SUITE_P(Modes, RetireLabelsByHandTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
