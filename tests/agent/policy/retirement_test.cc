// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/retirement.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/policy/rule_forms.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent::retirement_test {
namespace {

using Kept = std::map<std::string, std::set<std::string>>;

// "-X KUBE-MARK-MASQ" with its table: "ip nat KUBE-MARK-MASQ: -X KUBE-MARK-MASQ".
std::set<std::string> Gone(const Retirement& retirement) {
  std::set<std::string> gone;
  for (const Change& change : retirement.changes) {
    gone.insert(absl::StrCat(netlink::ToString(netlink::ChainOf(change.operation)), ": ",
                             netlink::ToString(change.operation)));
  }
  return gone;
}

// The chains that go, "nat/KUBE-MARK-MASQ".
std::set<std::string> ChainsGone(const Retirement& retirement) {
  std::set<std::string> gone;
  for (const Change& change : retirement.changes) {
    if (!std::holds_alternative<netlink::DeleteChain>(change.operation)) continue;
    const netlink::ChainId& chain = netlink::ChainOf(change.operation);
    gone.insert(absl::StrCat(netlink::TableName(chain.table), "/", chain.name));
  }
  return gone;
}

// What stays, and by which claims: {"nat/KUBE-MARK-MASQ", {"kubeProxy"}}. Rules with their text.
Kept KeptBy(const Retirement& retirement) {
  Kept kept;
  for (const Claimed& one : retirement.kept) {
    const netlink::ChainId& chain = one.standing.chain;
    std::string name = absl::StrCat(netlink::TableName(chain.table), "/", chain.name);
    if (one.standing.text[0] == '-') absl::StrAppend(&name, " rule");
    for (const Claim& claim : one.claims) {
      EXPECT_NE(claim.text, "");
      kept[name].insert(std::string(ClaimKindName(claim.kind)));
    }
  }
  return kept;
}

// With kube-proxy's services, and a jump to them.
Observed& Serving(Observed& observed, Family family = Family::kIPv4) {
  return observed.Chain(Nat("KUBE-SERVICES", family))
      .Chain(Nat("OUTPUT", family), {JumpTo("KUBE-SERVICES", "kubernetes service portals")});
}

struct ClaimCase {
  std::string name;
  std::function<void(Observed&, Dependents&)> prepare;
  Kept kept;
  std::set<std::string> chains_gone = {"nat/KUBE-MARK-DROP"};
  // The rule that drops marked packets goes.
  bool drop_mark_rule_goes = true;
};

const Kept kCanaries = {{"mangle/KUBE-KUBELET-CANARY", {"liveKubelet"}},
                        {"nat/KUBE-KUBELET-CANARY", {"liveKubelet"}},
                        {"filter/KUBE-KUBELET-CANARY", {"liveKubelet"}}};

const std::set<std::string> kAllOfNat = {"nat/KUBE-MARK-DROP", "nat/KUBE-MARK-MASQ",
                                         "nat/KUBE-POSTROUTING"};

Marking Setter(uint32_t bits) {
  return {.from = "ip mangle FOREIGN", .rule = "-A FOREIGN -j MARK", .bits = bits};
}

TEST(ClaimTest, KeepsWhatIsClaimedAndNothingElse) {
  const ClaimCase rows[] = {
      {"NobodyUsesAnything", [](Observed&, Dependents&) {}, {}, kAllOfNat},
      {"AForeignRuleJumpsToTheMasqueradeMark",
       [](Observed&, Dependents& dependents) {
         dependents.references = {
             {Nat("KUBE-MARK-MASQ"), "ip nat CNI-DN-1", "-A CNI-DN-1 -j KUBE-MARK-MASQ"}};
       },
       {{"nat/KUBE-MARK-MASQ", {"foreignJump"}}, {"nat/KUBE-POSTROUTING", {"markedPackets"}}}},
      {"AForeignRuleJumpsToTheDropMark",
       [](Observed&, Dependents& dependents) {
         dependents.references = {
             {Nat("KUBE-MARK-DROP"), "ip nat MINE", "-A MINE -j KUBE-MARK-DROP"}};
       },
       {{"nat/KUBE-MARK-DROP", {"foreignJump"}}, {"filter/KUBE-FIREWALL rule", {"markedPackets"}}},
       {"nat/KUBE-MARK-MASQ", "nat/KUBE-POSTROUTING"},
       false},
      {"ARuleInAMarkingChainThatStaysSetsTheDropBit",
       [](Observed& observed, Dependents&) {
         observed.Chain(Nat("KUBE-MARK-MASQ"), {SetBit(14), SetBit(15), ForeignLog()});
       },
       {{"nat/KUBE-MARK-MASQ", {"foreignRule"}},
        {"nat/KUBE-POSTROUTING", {"markedPackets"}},
        {"filter/KUBE-FIREWALL rule", {"markedPackets"}}},
       {"nat/KUBE-MARK-DROP"},
       false},
      {"AChainHoldsAForeignRule",
       [](Observed& observed, Dependents&) {
         observed.Chain(Nat("KUBE-MARK-MASQ"), {SetBit(14), ForeignLog()});
       },
       {{"nat/KUBE-MARK-MASQ", {"foreignRule"}}, {"nat/KUBE-POSTROUTING", {"markedPackets"}}}},
      {"ACniConfigurationNamesTheChain",
       [](Observed&, Dependents& dependents) {
         dependents.cni.references = {
             {"/etc/cni/net.d/10-net.conflist", "portmap", "KUBE-MARK-MASQ"}};
       },
       {{"nat/KUBE-MARK-MASQ", {"cniConfig"}}, {"nat/KUBE-POSTROUTING", {"markedPackets"}}}},
      {"CniConfigurationsCannotBeRead",
       [](Observed&, Dependents& dependents) {
         dependents.cni.problems = {"/etc/cni/net.d: Permission denied"};
       },
       {{"nat/KUBE-MARK-MASQ", {"cniConfig"}},
        {"nat/KUBE-MARK-DROP", {"cniConfig"}},
        {"nat/KUBE-POSTROUTING", {"markedPackets"}},
        {"filter/KUBE-FIREWALL rule", {"markedPackets"}}},
       {},
       false},
      {"KubeProxyBefore125NeedsTheDropMark",
       [](Observed& observed, Dependents&) { Serving(observed); },
       {{"nat/KUBE-MARK-MASQ", {"kubeProxy"}},
        {"nat/KUBE-MARK-DROP", {"kubeProxy"}},
        {"nat/KUBE-POSTROUTING", {"kubeProxy", "markedPackets"}},
        {"filter/KUBE-FIREWALL rule", {"kubeProxy", "markedPackets"}}},
       {},
       false},
      {"KubeProxySince125DropsByItself",
       [](Observed& observed, Dependents&) {
         Serving(observed).Chain(Filter("KUBE-PROXY-FIREWALL"));
       },
       {{"nat/KUBE-MARK-MASQ", {"kubeProxy"}},
        {"nat/KUBE-POSTROUTING", {"kubeProxy", "markedPackets"}}}},
      {"KubeProxyOfIpvsModeBefore125",
       [](Observed& observed, Dependents&) {
         Serving(observed)
             .Chain(Nat("KUBE-LOAD-BALANCER"))
             .Chain(Nat("KUBE-FIREWALL"), {JumpTo("KUBE-MARK-DROP")});
       },
       {{"nat/KUBE-MARK-MASQ", {"kubeProxy"}},
        {"nat/KUBE-MARK-DROP", {"kubeProxy"}},
        {"nat/KUBE-POSTROUTING", {"kubeProxy", "markedPackets"}},
        {"filter/KUBE-FIREWALL rule", {"kubeProxy", "markedPackets"}}},
       {},
       false},
      {"KubeProxyCouldNotCleanUp",
       [](Observed& observed, Dependents&) {
         observed.Chain(Nat("KUBE-SERVICES")).Chain(Filter("KUBE-PROXY-FIREWALL"));
       },
       {{"nat/KUBE-MARK-MASQ", {"kubeProxyRemains"}},
        {"nat/KUBE-POSTROUTING", {"kubeProxyRemains", "markedPackets"}}}},
      {"KubeProxyCleanedUpAndLeftItsCanary",
       [](Observed& observed, Dependents&) { observed.Chain(Nat("KUBE-PROXY-CANARY")); },
       {{"nat/KUBE-MARK-MASQ", {"kubeProxyRemains"}},
        {"nat/KUBE-MARK-DROP", {"kubeProxyRemains"}},
        {"nat/KUBE-POSTROUTING", {"kubeProxyRemains", "markedPackets"}},
        {"filter/KUBE-FIREWALL rule", {"kubeProxyRemains", "markedPackets"}}},
       {},
       false},
      {"AForeignRuleSetsTheMasqueradeBit",
       [](Observed&, Dependents& dependents) { dependents.mark_setters = {Setter(0x4000)}; },
       {{"nat/KUBE-POSTROUTING", {"markedPackets"}}},
       {"nat/KUBE-MARK-DROP", "nat/KUBE-MARK-MASQ"}},
      {"AForeignRuleSetsTheDropBit",
       [](Observed&, Dependents& dependents) { dependents.mark_setters = {Setter(0x8000)}; },
       {{"filter/KUBE-FIREWALL rule", {"markedPackets"}}},
       kAllOfNat,
       false},
      {"AForeignRuleSetsOtherBits",
       [](Observed&, Dependents& dependents) { dependents.mark_setters = {Setter(0xffff3fff)}; },
       {},
       kAllOfNat},
      {"AForeignRuleOfIPv6SetsTheBits",
       [](Observed&, Dependents& dependents) {
         dependents.mark_setters = {Setter(0xffffffff)};
         dependents.mark_setters[0].ipv4 = false;
       },
       {},
       kAllOfNat},
      {"TheBitOfTheRuleCountsNotTheConfiguredOne",
       [](Observed& observed, Dependents& dependents) {
         observed.Chain(Nat("KUBE-POSTROUTING"),
                        {ReturnUnmarked(20), ClearBit(20), MasqueradeAll(0)});
         dependents.mark_setters = {Setter(0x100000)};
       },
       {{"nat/KUBE-POSTROUTING", {"markedPackets"}}},
       {"nat/KUBE-MARK-DROP", "nat/KUBE-MARK-MASQ"}},
  };
  for (const ClaimCase& row : rows) {
    SCOPED_TRACE(row.name);

    Observed observed = Residue();
    Dependents dependents;
    row.prepare(observed, dependents);
    const Retirement retirement = PlanFor(Cleanup(), observed, dependents);
    EXPECT_EQ(ChainsGone(retirement), row.chains_gone);
    Kept expected = row.kept;
    expected.insert(kCanaries.begin(), kCanaries.end());
    EXPECT_EQ(KeptBy(retirement), expected);
    EXPECT_EQ(Gone(retirement)
                  .count("ip filter KUBE-FIREWALL: -D KUBE-FIREWALL -m comment --comment "
                         "\"kubernetes firewall for dropping marked packets\" -m mark "
                         "--mark 0x8000/0x8000 -j DROP"),
              row.drop_mark_rule_goes ? 1U : 0U);
  }
}

TEST(RetirementTest, AMarkingChainClaimsTheBitsThatItSetsOnly) {
  const MarkBits bits = {.masquerade = 14, .drop = 0};
  Observed observed = Made(Legacy(bits));
  observed.Chain(Nat("KUBE-MARK-MASQ"), {SetBit(14), ForeignLog()});
  const Kept kept = KeptBy(PlanFor(Cleanup(), observed));
  EXPECT_EQ(kept.count("nat/KUBE-MARK-MASQ"), 1U);
  EXPECT_EQ(kept.count("filter/KUBE-FIREWALL rule"), 0U);
}

TEST(RetirementTest, TakesAChainWhoseBaseChainIsGone) {
  netlink::Snapshot snapshot = Residue().snapshot();
  snapshot.chains.erase(Nat("POSTROUTING"));
  const Diff diff = ComputeDiff(Cleanup(), snapshot);
  EXPECT_THAT(ChainsGone(PlanRetirement(Cleanup(), snapshot, diff, {}, {})),
              Contains("nat/KUBE-POSTROUTING"));
}

TEST(RetirementTest, SaysEachClaimOnce) {
  Observed observed = Residue();
  Serving(observed);
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only);
  for (const Claimed& one : PlanFor(off, observed, {}, {.when_off = true}).kept) {
    std::set<std::string> texts;
    for (const Claim& claim : one.claims) texts.insert(claim.text);
    EXPECT_EQ(texts.size(), one.claims.size()) << one.standing.text;
  }
}

TEST(RetirementTest, TakesRulesAndJumpsBeforeChains) {
  const Retirement retirement = PlanFor(Cleanup(), Residue());
  bool chain_seen = false;
  for (const Change& change : retirement.changes) {
    const bool chain = std::holds_alternative<netlink::DeleteChain>(change.operation);
    EXPECT_TRUE(chain || !chain_seen) << netlink::ToString(change.operation);
    chain_seen |= chain;
  }
  EXPECT_TRUE(chain_seen);
  EXPECT_THAT(Gone(retirement),
              Contains("ip nat POSTROUTING: -D POSTROUTING -m comment --comment \"kubernetes "
                       "postrouting rules\" -j KUBE-POSTROUTING"));
}

TEST(RetirementTest, NeverTouchesABaseChainOrTheMartianRule) {
  for (const std::string& line : Gone(PlanFor(Cleanup(), Residue(), {}, {.canaries = true}))) {
    EXPECT_THAT(line, Not(HasSubstr("block incoming localnet")));
    EXPECT_THAT(line, Not(HasSubstr("-X INPUT")));
    EXPECT_THAT(line, Not(HasSubstr("-X POSTROUTING")));
    EXPECT_THAT(line, Not(HasSubstr("-j KUBE-FIREWALL")));
  }
}

TEST(RetirementTest, TakesEveryFormThatAKubeletWroteSince117) {
  for (const int bit : {0, 14, 20, 31}) {
    for (const std::vector<RuleContent>& postrouting : std::vector<std::vector<RuleContent>>{
             {MasqueradeMarked(bit)},
             {MasqueradeMarkedPlain(bit)},
             {ReturnUnmarked(bit), ClearBit(bit), MasqueradeAllPlain(bit)},
             {ReturnUnmarked(bit), ClearBit(bit), MasqueradeAll(bit)},
             {MasqueradeMarked(bit), ReturnUnmarked(bit), ClearBit(bit), MasqueradeAll(bit)}}) {
      Observed observed = Residue();
      observed.Chain(Nat("KUBE-POSTROUTING"), postrouting)
          .Chain(Nat("KUBE-MARK-MASQ"), {SetBit(bit), SetBit(bit)})
          .Chain(Nat("KUBE-MARK-DROP"), {SetBit(bit)})
          .Chain(Filter("KUBE-FIREWALL"), {DropMartians(0), DropMarked(bit), DropMarked(bit)});
      const Retirement retirement = PlanFor(Cleanup(), observed);
      EXPECT_EQ(ChainsGone(retirement), kAllOfNat) << bit;
      EXPECT_EQ(KeptBy(retirement), kCanaries) << bit;
    }
  }
}

TEST(RetirementTest, TakesAChainWhoseRulesLostTheirMatches) {
  Observed observed = Residue();
  observed.Chain(Nat("KUBE-POSTROUTING"), {BareReturn(), ClearBit(14), MasqueradeAll(0)});
  EXPECT_THAT(ChainsGone(PlanFor(Cleanup(), observed)), Contains("nat/KUBE-POSTROUTING"));
}

TEST(RetirementTest, TakesCanariesOnlyOnAnOperatorsWord) {
  EXPECT_EQ(KeptBy(PlanFor(Cleanup(), Residue())), kCanaries);
  const Retirement retirement = PlanFor(Cleanup(), Residue(), {}, {.canaries = true});
  EXPECT_THAT(ChainsGone(retirement),
              ::testing::IsSupersetOf({"mangle/KUBE-KUBELET-CANARY", "nat/KUBE-KUBELET-CANARY",
                                       "filter/KUBE-KUBELET-CANARY"}));
}

TEST(RetirementTest, LeavesAFamilyAloneInWhichNotAllThatIsWantedStands) {
  Observed observed = Residue();
  observed.Chain(Filter("INPUT"), {});  // the jump is missing
  const Retirement retirement = PlanFor(Cleanup(), observed);
  EXPECT_TRUE(retirement.empty());
  EXPECT_THAT(retirement.unsettled, ElementsAre(Family::kIPv4));
}

// Another run may manage it, in another iptables mode.
TEST(RetirementTest, TakesNothingOfAFamilyThatIsNotAskedFor) {
  const Observed observed = Made(Wanting(Mode::kLegacy, netlink::kFamilies, {}));
  EXPECT_EQ(PlanFor(Legacy(), observed), Retirement{});
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  const Retirement all = PlanFor(off, observed, {}, {.canaries = true, .when_off = true});
  EXPECT_FALSE(all.empty());
  for (const Change& change : all.changes) {
    EXPECT_EQ(netlink::ChainOf(change.operation).family, Family::kIPv4);
  }
}

TEST(RetirementTest, KeepsTheHintsAsLongAsAnybodyElseUsesTheMode) {
  const PolicyInput off = Wanting(Mode::kOff, netlink::kFamilies, {});
  const Observed observed = Made(Wanting(Mode::kCleanup, netlink::kFamilies, {}));
  Dependents others;
  others.rule_of_others = "ip filter MINE: -A MINE -j DROP";
  const Retirement kept = PlanFor(off, observed, others, {.when_off = true});
  EXPECT_EQ(ChainsGone(kept), std::set<std::string>{"filter/KUBE-FIREWALL"});
  ASSERT_EQ(kept.kept.size(), 2U) << "of each family";
  EXPECT_EQ(KeptBy(kept)["mangle/KUBE-IPTABLES-HINT"], std::set<std::string>{"hintReaders"});
  EXPECT_THAT(ToString(kept.kept[0].claims), HasSubstr("-A MINE -j DROP"));
  // What of kubelet's stays is such a user, too.
  Dependents martians;
  martians.route_localnet.interfaces = {"all"};
  EXPECT_EQ(
      KeptBy(PlanFor(off, observed, martians, {.when_off = true}))["mangle/KUBE-IPTABLES-HINT"],
      std::set<std::string>{"hintReaders"});
  EXPECT_EQ(
      ChainsGone(PlanFor(off, observed, {}, {.when_off = true})).count("mangle/KUBE-IPTABLES-HINT"),
      1U);
  // Of a mode that is not managed it misleads.
  EXPECT_THAT(PlanFor(off, observed, others, {.when_off = true, .hints = true}).kept, IsEmpty());
}

TEST(RetirementTest, OfModeOffTakesNothingUnlessItIsToldTo) {
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  EXPECT_TRUE(PlanFor(off, Residue()).empty());
  EXPECT_THAT(PlanFor(off, Residue()).kept, IsEmpty());
  EXPECT_THAT(ChainsGone(PlanFor(off, Residue(), {}, {.canaries = true, .when_off = true})),
              ::testing::IsSupersetOf({"mangle/KUBE-IPTABLES-HINT", "filter/KUBE-FIREWALL"}));
}

TEST(RetirementTest, KeepsTheMartianRuleWhereNeighboursWouldReachLocalhost) {
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  Dependents dependents;
  dependents.route_localnet.interfaces = {"all"};
  const Retirement retirement = PlanFor(off, Residue(), dependents, {.when_off = true});
  EXPECT_EQ(KeptBy(retirement)["filter/KUBE-FIREWALL"], std::set<std::string>{"martians"});
  // Those of its rules that nobody needs go all the same.
  EXPECT_EQ(Gone(retirement).size(),
            Gone(PlanFor(off, Residue(), {}, {.when_off = true})).size() - 4);
}

TEST(RetirementTest, OfAFirewallThatOthersUseTakesTheRuleThatNobodyNeeds) {
  // kube-proxy since 1.27 has a KUBE-FIREWALL in IPv6, too, and its jumps.
  const Family six[] = {Family::kIPv6};
  Observed observed = Made(Wanting(Mode::kLegacy, six, {}));
  Serving(observed, Family::kIPv6).Chain(Filter("KUBE-PROXY-FIREWALL", Family::kIPv6));
  const Retirement retirement = PlanFor(Wanting(Mode::kCleanup, six, {}), observed);
  EXPECT_THAT(Gone(retirement), Contains(HasSubstr("-D KUBE-FIREWALL")));
  EXPECT_THAT(Gone(retirement), Not(Contains(HasSubstr("-D INPUT"))));
  EXPECT_EQ(KeptBy(retirement)["filter/KUBE-FIREWALL"], std::set<std::string>{"kubeProxy"});
}

TEST(RetirementTest, NumbersRulesAsTheyAreWhenTheirTurnComes) {
  Observed observed = Residue();
  observed.Chain(Nat("POSTROUTING"),
                 {ForeignAccept(), JumpTo("KUBE-POSTROUTING", std::string(kPostroutingComment)),
                  ForeignLog(), JumpTo("KUBE-POSTROUTING", std::string(kPostroutingComment))});
  std::vector<int> numbers;
  for (const Change& change : PlanFor(Cleanup(), observed).changes) {
    const auto* rule = std::get_if<netlink::DeleteRule>(&change.operation);
    if (rule != nullptr && rule->chain.name == "POSTROUTING") numbers.push_back(rule->number);
  }
  EXPECT_EQ(numbers, (std::vector<int>{2, 3}));
}

TEST(RetirementTest, SaysOfWhatIsStaleWhyItStays) {
  Observed observed = Residue();
  Serving(observed);
  const Diff diff = ComputeDiff(Cleanup(), observed.snapshot());
  const std::vector<ExistingItem> stale = WithClaims(diff.stale, PlanFor(Cleanup(), observed));
  int told = 0;
  for (const ExistingItem& standing : stale) {
    if (standing.text != ":KUBE-MARK-DROP - [0:0]") continue;
    EXPECT_EQ(standing.reason, "stale, kept: kube-proxy uses it: KUBE-SERVICES exists");
    ++told;
  }
  EXPECT_EQ(told, 1);
  for (const Claimed& one : PlanFor(Cleanup(), observed).kept) {
    const bool shared =
        one.standing.chain.name == kMarkMasqChain || one.standing.chain.name == kPostroutingChain;
    EXPECT_EQ(one.of_kube_proxy, shared) << one.standing.text;
  }
  EXPECT_LT(
      WithClaims(ComputeDiff(Cleanup(), Residue().snapshot()).stale, PlanFor(Cleanup(), Residue()))
          .size(),
      stale.size());
}

TEST(RetirementTest, KnowsWithoutASurveyWhereNothingCanGo) {
  Observed observed = Residue();
  Serving(observed);
  const auto may = [](const PolicyInput& desired, const Observed& seen) {
    return MayRetire(desired, seen.snapshot(), ComputeDiff(desired, seen.snapshot()), {});
  };
  EXPECT_FALSE(may(Cleanup(), observed));
  EXPECT_TRUE(may(Cleanup(), Residue()));
  EXPECT_FALSE(may(Legacy(), Residue()));
}

// ---- What is said of what goes and of what stays; the native table. ----

// The reasons of the chains that go.
std::set<std::string> WhyChainsGo(const Retirement& retirement) {
  std::set<std::string> reasons;
  for (const Change& change : retirement.changes) {
    if (!std::holds_alternative<netlink::DeleteChain>(change.operation)) continue;
    reasons.insert(change.reason);
  }
  return reasons;
}

TEST(RetirementReasonsTest, SaysWhyAChainGoes) {
  using ::testing::ElementsAre;
  EXPECT_THAT(WhyChainsGo(PlanFor(Cleanup(), Residue())),
              ElementsAre("stale: not part of cleanup mode, and unused"));
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  EXPECT_THAT(WhyChainsGo(PlanFor(off, Residue(), {}, {.when_off = true})),
              ElementsAre("stale: kubelet's chains are not desired, and unused"));
}

TEST(RetirementReasonsTest, ANativeTableThatPendsUnsettlesIPv4Only) {
  Diff diff;
  diff.changes.push_back({netlink::PutNativeTable{NativeMartians()}, "put"});
  const PolicyInput desired = Wanting(Mode::kCleanup, netlink::kFamilies, {});
  EXPECT_EQ(PlanRetirement(desired, {}, diff, {}, {}).unsettled,
            std::vector<Family>{Family::kIPv4});
}

TEST(RetirementReasonsTest, OnlyWhatGoesIsLeftOutOfWhatIsStale) {
  const netlink::ChainId masq = Nat("KUBE-MARK-MASQ");
  Retirement retirement;
  retirement.changes = {{netlink::DeleteChain{masq}, "why"}};
  retirement.kept = {{{Nat("KUBE-POSTROUTING"), "kept", "r"}, {{ClaimKind::kKubeProxy, "claim"}}}};
  const std::vector<ExistingItem> stale =
      WithClaims({{masq, ":KUBE-MARK-MASQ - [0:0]", "a"},
                  {masq, "another text", "b"},
                  {Nat("OTHER"), ":KUBE-MARK-MASQ - [0:0]", "c"},
                  {Nat("KUBE-POSTROUTING"), "kept", "d"},
                  {Nat("KUBE-POSTROUTING"), "not kept", "e"},
                  {Nat("OTHER"), "kept", "f"}},
                 retirement);
  std::vector<std::string> reasons;
  for (const ExistingItem& one : stale) reasons.push_back(one.reason);
  EXPECT_EQ(reasons, (std::vector<std::string>{"b", "c", "stale, kept: claim", "e", "f"}));
}

TEST(RetirementReasonsTest, TheNativeTableThatGoesIsOursAndOfModeOff) {
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  const Diff diff = ComputeDiff(off, Observed().Native().snapshot());
  ASSERT_EQ(diff.stale.size(), 1);
  const RetirementOptions options = {.when_off = true};
  Dependents dependents;
  const auto taken = std::get<netlink::DeleteNativeTable>(
      PlanRetirement(off, {}, diff, dependents, options).changes.at(0).operation);
  EXPECT_EQ(taken.family, Family::kIPv4);
  EXPECT_EQ(taken.name, kNativeTable);
  EXPECT_EQ(ToTransaction(PlanRetirement(off, {}, diff, dependents, options).changes, 1)
                .operations.size(),
            1U);
  Diff with_more = diff;
  with_more.stale.push_back({Nat("KUBE-MARK-MASQ"), ":KUBE-MARK-MASQ - [0:0]", "stale, kept"});
  EXPECT_EQ(PlanRetirement(off, {}, with_more, dependents, options).changes.size(), 1U);
  dependents.route_localnet.interfaces = {"eth0"};
  EXPECT_TRUE(PlanRetirement(off, {}, diff, dependents, options).empty());
  // Of a family that is managed, sync takes it; of one that is not, nobody does.
  dependents.route_localnet = {};
  const Family six[] = {Family::kIPv6};
  for (const Mode mode : {Mode::kCleanup, Mode::kLegacy, Mode::kOff}) {
    const PolicyInput of_six = Wanting(mode, six, {});
    EXPECT_TRUE(PlanRetirement(of_six, {}, diff, dependents, options).empty());
  }
  EXPECT_TRUE(PlanRetirement(Cleanup(), {}, diff, dependents, options).empty());
  EXPECT_TRUE(PlanRetirement(Legacy(), {}, diff, dependents, options).empty());
}

}  // namespace
}  // namespace kipt::agent::retirement_test
