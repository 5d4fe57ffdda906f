// SPDX-License-Identifier: Apache-2.0
//
// kube-proxy of every generation next to kubelet's leftovers: what is removed when the gate is
// switched on, what stays and by which claim, in whichever order the three come. Other programs'
// rules are never touched.
#include <tuple>

#include "tests/interop/retire_fixture.h"

namespace kipt::testing {
namespace {

// What it needs of what kubelet made.
enum class Generation {
  kNeedsDropMark,  // up to 1.24: jumps to KUBE-MARK-DROP; filter KUBE-FIREWALL acts on the mark
  kDropsByItself,  // since 1.25: filter KUBE-PROXY-FIREWALL
  kNeedsNothing,   // none, or the nftables mode
};

struct Ruleset {
  const char* name = "";
  const char* version = "";  // as KubeProxySave takes it; empty: none
  Generation generation = Generation::kNeedsNothing;
  // Does not make KUBE-MARK-DROP, without which nothing of nat loads.
  bool needs_drop_chain = false;
  // Empties IPv4's KUBE-FIREWALL, which removes the rule that drops marked packets.
  bool empties_firewall = false;
  // Jumps to KUBE-MARK-MASQ in IPv6, too.
  bool ipv6_services = false;
  // Has a rule of its own in KUBE-POSTROUTING.
  bool own_postrouting = false;
};

constexpr Ruleset kRulesets[] = {
    {.name = "KubeProxy1_17",
     .version = "1.17",
     .generation = Generation::kNeedsDropMark,
     .needs_drop_chain = true},
    {.name = "KubeProxy1_24", .version = "1.24", .generation = Generation::kNeedsDropMark},
    {.name = "KubeProxy1_25", .version = "1.25", .generation = Generation::kDropsByItself},
    {.name = "KubeProxy1_28",
     .version = "1.28",
     .generation = Generation::kDropsByItself,
     .empties_firewall = true},
    {.name = "IpvsBefore1_25",
     .version = "ipvs-1.23",
     .generation = Generation::kNeedsDropMark,
     .ipv6_services = true,
     .own_postrouting = true},
    {.name = "IpvsSince1_25",
     .version = "ipvs-1.28",
     .generation = Generation::kDropsByItself,
     .ipv6_services = true,
     .own_postrouting = true},
    {.name = "NoKubeProxy"},
};

enum class Order {
  kProxyThenKubelet,      // before the gate flips, kube-proxy the first to write
  kKubeletThenProxy,      // between what kubelet left and the agent's first sync
  kBetweenFlipAndRetire,  // the gate has flipped, stale chains still exist
};
constexpr Order kOrders[] = {Order::kProxyThenKubelet, Order::kKubeletThenProxy,
                             Order::kBetweenFlipAndRetire};
constexpr const char* kOrderNames[] = {"ProxyThenKubelet", "KubeletThenProxy",
                                       "BetweenFlipAndRetire"};

class RetireRulesetsTest
    : public RetireTest,
      public ::testing::WithParamInterface<std::tuple<Ruleset, IptablesMode, Order>> {
 protected:
  static const Ruleset& Row() { return std::get<0>(GetParam()); }
  static IptablesMode Mode() { return std::get<1>(GetParam()); }
  static Order When() { return std::get<2>(GetParam()); }
  static Iptables Of(IpFamily family) { return {.family = family, .mode = Mode()}; }
  static bool Claims() { return Row().generation != Generation::kNeedsNothing; }

  // Loads the ruleset of both families.
  static void Load() {
    for (const IpFamily family : kBothFamilies) {
      if (!Claims()) return;
      const ProgramResult result = LoadKubeProxy(Row().version, Of(family));
      EXPECT_EQ(result.exit_code, 0) << result;
    }
  }
  // What of what exists is removed.
  static Lines Removed(IpFamily family) {
    if (Row().generation == Generation::kNeedsDropMark) return {};
    if (Row().generation == Generation::kNeedsNothing) return WholeResidue(family);
    Lines removed = DropResidue();
    const bool emptied = Row().empties_firewall && When() != Order::kProxyThenKubelet;
    if (emptied && family == IpFamily::kIpv4) {
      std::erase_if(removed, [](const std::string& line) { return line.find("filter: ") == 0; });
    }
    return removed;
  }
  // Jumps are surveyed only if there is something to retire. (`surveyed`)
  static Kept Stays(bool surveyed) {
    Kept kept;
    if (!Claims()) return kept;
    for (const std::string family : {"ip ", "ip6 "}) {
      const bool six = family == "ip6 ";
      std::set<std::string> masq = {"kubeProxy"};
      if (surveyed && (!six || Row().ipv6_services)) masq.insert("foreignJump");
      std::set<std::string> postrouting = {"kubeProxy", "markedPackets"};
      if (Row().own_postrouting) postrouting.insert("foreignRule");
      kept[family + "nat KUBE-MARK-MASQ"] = masq;
      kept[family + "nat KUBE-POSTROUTING"] = postrouting;
      const bool drop_mark = Row().generation == Generation::kNeedsDropMark;
      if (drop_mark) kept[family + "nat KUBE-MARK-DROP"] = {"kubeProxy"};
      const std::set<std::string> firewall =
          drop_mark ? std::set<std::string>{"kubeProxy", "markedPackets"}
                    : std::set<std::string>{"kubeProxy"};
      if (drop_mark) kept[family + "filter KUBE-FIREWALL rule"] = firewall;
      // IPv4's chain is desired, so only IPv6's can be stale.
      if (six) kept["ip6 filter KUBE-FIREWALL"] = firewall;
    }
    return kept;
  }
  void Prepare() {
    AddThirdParty(Mode());
    if (When() == Order::kProxyThenKubelet) {
      // 1.17 finds the chain that an earlier kubelet made.
      for (const IpFamily family : kBothFamilies) {
        if (Row().needs_drop_chain) Of(family).Run({"-t", "nat", "-N", "KUBE-MARK-DROP"});
      }
      Load();
    }
    LeaveResidue(Mode());
    if (When() == Order::kKubeletThenProxy) Load();
    if (When() == Order::kBetweenFlipAndRetire) {
      SyncAndKeep(Mode());
      Load();
    }
  }
};

TEST_P(RetireRulesetsTest, RemovesExactlyWhatIsUnclaimed) {
  Prepare();
  std::map<IpFamily, Lines> before;
  std::map<IpFamily, Lines> base_chains;
  for (const IpFamily family : kBothFamilies) {
    before[family] = LinesOf(Of(family));
    base_chains[family] = BaseChainsOf(Of(family));
  }
  const Retired retired = SyncAndRetire(Mode());
  EXPECT_EQ(retired.result.exit_code, kExitOk) << retired.result;
  bool any_removed = false;
  for (const IpFamily family : kBothFamilies) {
    SCOPED_TRACE(family == IpFamily::kIpv4 ? "IPv4" : "IPv6");
    const Lines after = LinesOf(Of(family));
    EXPECT_EQ(Without(before[family], after), Removed(family));
    EXPECT_THAT(Without(after, before[family]), IsEmpty());
    EXPECT_THAT(Without(base_chains[family], BaseChainsOf(Of(family))), IsEmpty());
    if (Claims()) {
      const Lines proxy = LinesIn(KubeProxySave(Row().version, Of(family)));
      EXPECT_THAT(Without(proxy, after), IsEmpty()) << "kube-proxy's";
    }
    any_removed |= !Removed(family).empty();
  }
  EXPECT_EQ(retired.kept, Stays(any_removed)) << retired.result;

  const Retired again = SyncAndRetire(Mode());
  EXPECT_EQ(again.all_changes, 0) << again.result;
  EXPECT_EQ(again.result.exit_code, kExitOk);
}

INSTANTIATE_TEST_SUITE_P(All, RetireRulesetsTest,
                         ::testing::Combine(::testing::ValuesIn(kRulesets),
                                            ::testing::ValuesIn(kBothModes),
                                            ::testing::ValuesIn(kOrders)),
                         [](const auto& row) {
                           return absl::StrCat(
                               std::get<0>(row.param).name, TestNameOf(std::get<1>(row.param)),
                               kOrderNames[static_cast<size_t>(std::get<2>(row.param))]);
                         });

}  // namespace
}  // namespace kipt::testing
