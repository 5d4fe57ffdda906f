// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/retirement.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent::retirement_test {
namespace {

// "-X KUBE-MARK-MASQ" with its table: "ip nat KUBE-MARK-MASQ: -X KUBE-MARK-MASQ".
std::set<std::string> Gone(const Retirement& retirement) {
  std::set<std::string> gone;
  for (const Change& change : retirement.changes) {
    gone.insert(absl::StrCat(netlink::ToString(netlink::ChainOf(change.operation)), ": ",
                             netlink::ToString(change.operation)));
  }
  return gone;
}

std::string PlaceOf(const netlink::ChainId& chain) {
  return absl::StrCat(netlink::TableName(chain.table), "/", chain.name);
}

// The chains that are removed, "nat/KUBE-MARK-MASQ".
std::set<std::string> ChainsGone(const Retirement& retirement) {
  std::set<std::string> gone;
  for (const Change& change : retirement.changes) {
    if (!std::holds_alternative<netlink::DeleteChain>(change.operation)) continue;
    gone.insert(PlaceOf(netlink::ChainOf(change.operation)));
  }
  return gone;
}

// What stays, and by which claims: "nat/KUBE-MARK-MASQ kubeProxy, ...", sorted. Canaries, which all
// stay for the same reason, are left out.
std::string KeptBy(const Retirement& retirement) {
  std::map<std::string, std::set<std::string>> kept;
  for (const Claimed& one : retirement.kept) {
    if (one.item.chain.name == kCanaryChain) continue;
    const bool rule = one.item.text[0] == '-';
    std::set<std::string>& claims = kept[PlaceOf(one.item.chain) + (rule ? " rule" : "")];
    std::set<std::string> texts;
    for (const Claim& claim : one.claims) {
      EXPECT_NE(claim.text, "");
      EXPECT_TRUE(texts.insert(claim.text).second) << "listed twice: " << claim.text;
      claims.insert(std::string(ClaimKindName(claim.kind)));
    }
  }
  return absl::StrJoin(kept, ", ", [](std::string* out, const auto& one) {
    absl::StrAppend(out, one.first, " ", absl::StrJoin(one.second, " "));
  });
}

// With kube-proxy's services, and a jump to them.
Observed& Serving(Observed& observed, Family family = Family::kIPv4) {
  return observed.Chain(Nat("KUBE-SERVICES", family))
      .Chain(Nat("OUTPUT", family), {JumpTo("KUBE-SERVICES", "kubernetes service portals")});
}

using Prepare = std::function<void(Observed&, Dependents&)>;

Prepare JumpedTo(const netlink::ChainId& chain) {
  return [chain](Observed&, Dependents& dependents) {
    dependents.references = {{chain, "ip nat MINE", "-A MINE -j X"}};
  };
}
Prepare NamedByCni(const std::string& chain) {
  return [chain](Observed&, Dependents& dependents) {
    dependents.cni.references = {{"/etc/cni/net.d/10-net.conflist", "portmap", chain}};
  };
}
Prepare Holds(const netlink::ChainId& chain, const std::vector<RuleContent>& rules = {}) {
  return [chain, rules](Observed& observed, Dependents&) { observed.Chain(chain, rules); };
}
Prepare SetBy(Marking setter) {
  setter.from = "ip mangle MINE";
  setter.rule = "-A MINE -j MARK";
  return [setter](Observed&, Dependents& dependents) {
    dependents.mark_setters = {setter};
    dependents.label_setters = {setter};
  };
}
netlink::ConnLabelSet Labels(const std::vector<size_t>& labels) {
  netlink::ConnLabelSet set;
  for (const size_t label : labels) set.set(label);
  return set;
}
Prepare Both(const Prepare& first, const Prepare& second) {
  return [first, second](Observed& observed, Dependents& dependents) {
    first(observed, dependents);
    second(observed, dependents);
  };
}
void Serves(Observed& observed, Dependents& /*dependents*/) { Serving(observed); }

const std::vector<std::string> kRetirable = {"filter/KUBELET-FIREWALL", "nat/KUBE-MARK-DROP",
                                             "nat/KUBE-MARK-MASQ",      "nat/KUBE-POSTROUTING",
                                             "nat/KUBELET-MARK-DROP",   "nat/KUBELET-MARK-MASQ",
                                             "nat/KUBELET-POSTROUTING"};
const std::set<std::string> kAllOfNat = {"nat/KUBE-MARK-DROP", "nat/KUBE-MARK-MASQ",
                                         "nat/KUBE-POSTROUTING"};
constexpr char kDropMarkRule[] =
    "ip filter KUBE-FIREWALL: -D KUBE-FIREWALL -m comment --comment \"kubernetes firewall for "
    "dropping marked packets\" -m mark --mark 0x8000/0x8000 -j DROP";

struct ClaimCase {
  std::string name;
  Prepare prepare;
  // What else there is of marks and labels is removed.
  std::string kept = "";
};

// What legacy mode with ConnLabelMarking left, where cleanup mode without it follows.
TEST(ClaimTest, KeepsWhatIsClaimedAndNothingElse) {
  const std::string masquerades = ", nat/KUBE-POSTROUTING markedPackets";
  const std::string drops = "filter/KUBE-FIREWALL rule markedPackets";
  const std::string drops_label = "filter/KUBELET-FIREWALL labelledPackets";
  const std::string masquerades_label = "nat/KUBELET-POSTROUTING labelledPackets";
  const std::string of_kube_proxy =
      "nat/KUBE-MARK-MASQ kubeProxy, nat/KUBE-POSTROUTING kubeProxy markedPackets";
  const std::string of_old_kube_proxy =
      "filter/KUBE-FIREWALL rule kubeProxy markedPackets, nat/KUBE-MARK-DROP kubeProxy, " +
      of_kube_proxy;
  const ClaimCase rows[] = {
      {"no other users", [](Observed&, Dependents&) {}},
      // Marks.
      {"a rule jumps to the masquerade mark", JumpedTo(Nat("KUBE-MARK-MASQ")),
       "nat/KUBE-MARK-MASQ foreignJump" + masquerades},
      {"a rule jumps to the drop mark", JumpedTo(Nat("KUBE-MARK-DROP")),
       drops + ", nat/KUBE-MARK-DROP foreignJump"},
      {"a rule in a marking chain that stays sets the drop bit",
       Holds(Nat("KUBE-MARK-MASQ"), {SetBit(14), SetBit(15), ForeignLog()}),
       drops + ", nat/KUBE-MARK-MASQ foreignRule" + masquerades},
      {"a chain holds a foreign rule", Holds(Nat("KUBE-MARK-MASQ"), {SetBit(14), ForeignLog()}),
       "nat/KUBE-MARK-MASQ foreignRule" + masquerades},
      {"a CNI configuration names the chain", NamedByCni("KUBE-MARK-MASQ"),
       "nat/KUBE-MARK-MASQ cniConfig" + masquerades},
      {"CNI configurations cannot be read",
       [](Observed&, Dependents& dependents) { dependents.cni.problems = {"Permission denied"}; },
       drops + ", " + drops_label + ", nat/KUBE-MARK-DROP cniConfig, nat/KUBE-MARK-MASQ cniConfig" +
           masquerades + ", nat/KUBELET-MARK-DROP cniConfig, nat/KUBELET-MARK-MASQ cniConfig, " +
           masquerades_label},
      {"kube-proxy before 1.25 needs the drop mark", Serves, of_old_kube_proxy},
      {"its services in table nat were flushed", Holds(Filter("KUBE-SERVICES")), of_old_kube_proxy},
      {"kube-proxy since 1.25 drops without it", Both(Serves, Holds(Filter("KUBE-PROXY-FIREWALL"))),
       of_kube_proxy},
      {"kube-proxy of IPVS mode before 1.25",
       Both(Serves, Both(Holds(Nat("KUBE-LOAD-BALANCER")),
                         Holds(Nat("KUBE-FIREWALL"), {JumpTo("KUBE-MARK-DROP")}))),
       of_old_kube_proxy},
      {"kube-proxy could not clean up",
       Both(Holds(Nat("KUBE-SERVICES")), Holds(Filter("KUBE-PROXY-FIREWALL"))),
       "nat/KUBE-MARK-MASQ kubeProxyRemains, nat/KUBE-POSTROUTING kubeProxyRemains markedPackets"},
      {"kube-proxy cleaned up and left its canary", Holds(Nat("KUBE-PROXY-CANARY")),
       "filter/KUBE-FIREWALL rule kubeProxyRemains markedPackets, nat/KUBE-MARK-DROP "
       "kubeProxyRemains, nat/KUBE-MARK-MASQ kubeProxyRemains, nat/KUBE-POSTROUTING "
       "kubeProxyRemains markedPackets"},
      {"a rule sets the masquerade bit", SetBy({.bits = 0x4000}),
       "nat/KUBE-POSTROUTING markedPackets"},
      {"a rule sets the drop bit", SetBy({.bits = 0x8000}), drops},
      {"a rule sets other bits", SetBy({.bits = 0xffff3fff})},
      // A tunnel keeps the mark, and not the label, of the packets that it carries.
      {"a rule of IPv6 sets the bits", SetBy({.bits = 0xffffffff, .ipv4 = false}),
       drops + masquerades},
      {"a rule jumps to the drop mark of IPv6",
       Both(Holds(Nat("KUBE-MARK-DROP", Family::kIPv6), {SetBit(15)}),
            JumpedTo(Nat("KUBE-MARK-DROP", Family::kIPv6))),
       drops},
      {"no rule jumps to the drop mark of IPv6",
       Holds(Nat("KUBE-MARK-DROP", Family::kIPv6), {SetBit(15)})},
      {"the bit of the rule counts, not the configured one",
       Both(Holds(Nat("KUBE-POSTROUTING"), {ReturnUnmarked(20), ClearBit(20), MasqueradeAll(0)}),
            SetBy({.bits = 0x100000})),
       "nat/KUBE-POSTROUTING markedPackets"},
      // Labels.
      {"a rule jumps to the masquerade label", JumpedTo(Nat("KUBELET-MARK-MASQ")),
       "nat/KUBELET-MARK-MASQ foreignJump, " + masquerades_label},
      {"a rule jumps to the drop label", JumpedTo(Nat("KUBELET-MARK-DROP")),
       drops_label + ", nat/KUBELET-MARK-DROP foreignJump"},
      {"a rule jumps in the other family", JumpedTo(Nat("KUBELET-MARK-DROP", Family::kIPv6))},
      {"a rule jumps to the firewall", JumpedTo(Filter("KUBELET-FIREWALL")),
       "filter/KUBELET-FIREWALL foreignJump"},
      {"a labelling chain holds a foreign rule",
       Holds(Nat("KUBELET-MARK-MASQ"), {SetLabel(114), ForeignLog()}),
       "nat/KUBELET-MARK-MASQ foreignRule, " + masquerades_label},
      {"a rule sets the masquerade label", SetBy({.labels = Labels({114})}), masquerades_label},
      {"a rule sets the drop label", SetBy({.labels = Labels({115})}), drops_label},
      {"a rule sets other labels", SetBy({.labels = Labels({113, 116, 0})})},
      {"a rule of IPv6 sets the label", SetBy({.labels = Labels({114}), .ipv4 = false})},
      {"the label of the rule counts, not the configured one",
       Both(Holds(Filter("KUBELET-FIREWALL"), {DropLabelled(7)}), SetBy({.labels = Labels({7})})),
       drops_label},
      {"a label that is set where it is acted on, and not tested",
       Both(Holds(Nat("KUBELET-POSTROUTING"),
                  {MasqueradeLabelled(114), SetLabel(3), MasqueradeAll(0)}),
            SetBy({.labels = Labels({3, 0})})),
       "nat/KUBELET-POSTROUTING foreignRule"},
      {"a CNI configuration names the masquerade label", NamedByCni("KUBELET-MARK-MASQ"),
       "nat/KUBELET-MARK-MASQ cniConfig, " + masquerades_label},
      {"a CNI configuration names the drop label", NamedByCni("KUBELET-MARK-DROP"),
       drops_label + ", nat/KUBELET-MARK-DROP cniConfig"},
  };
  for (const ClaimCase& row : rows) {
    SCOPED_TRACE(row.name);
    Observed observed = Made(Wanting(Mode::kLegacy, kIPv4Only, {}, ConnLabels{}));
    Dependents dependents;
    row.prepare(observed, dependents);
    const Retirement retirement = PlanFor(Cleanup(), observed, dependents);
    EXPECT_EQ(KeptBy(retirement), row.kept);
    std::set<std::string> going;
    for (const std::string& chain : kRetirable) {
      if (!absl::StrContains(row.kept, chain + " ")) going.insert(chain);
    }
    EXPECT_EQ(ChainsGone(retirement), going);
    EXPECT_EQ(Gone(retirement).count(kDropMarkRule),
              absl::StrContains(row.kept, "filter/KUBE-FIREWALL rule") ? 0U : 1U);
    for (const Change& change : retirement.changes) {
      const netlink::ChainId& chain = netlink::ChainOf(change.operation);
      if (std::holds_alternative<netlink::DeleteChain>(change.operation)) {
        EXPECT_EQ(change.reason, IsLabelChain(chain)
                                     ? "stale: ConnLabelMarking is off, and unused"
                                     : "stale: not part of cleanup mode, and unused");
        continue;
      }
      // The jumps to what stays, stay.
      const auto& rule = std::get<netlink::DeleteRule>(change.operation);
      if (const auto* jump = std::get_if<netlink::Jump>(&rule.rule.target)) {
        EXPECT_EQ(going.count(absl::StrCat(netlink::TableName(chain.table), "/", jump->chain)), 1U);
      }
    }
  }
}

TEST(ClaimTest, NamesTheLabelsThatOthersSetUpToBothEnds) {
  const ConnLabels ends = {.masquerade = 0, .drop = 127};
  Observed observed = Made(Wanting(Mode::kCleanup, kIPv4Only, {}, ends));
  Dependents dependents;
  SetBy({.labels = netlink::AllConnLabels()})(observed, dependents);
  std::vector<std::string> texts;
  for (const Claimed& one : PlanFor(Cleanup(), observed, dependents).kept) {
    texts.push_back(one.claims.front().text);
  }
  EXPECT_THAT(texts, UnorderedElementsAre(
                         "acts on label 0, which ip mangle MINE may set: -A MINE -j MARK",
                         "acts on label 127, which ip mangle MINE may set: -A MINE -j MARK"));
}

TEST(ClaimTest, AReasonNamesTheFamilyOnlyIfItIsTheOtherOne) {
  Observed observed = Residue();
  observed.Chain(Nat("KUBE-MARK-DROP", Family::kIPv6), {SetBit(15)});
  Dependents dependents;
  const auto reason = [&](const netlink::ChainId& used) {
    dependents.references.push_back({used, "MINE", "-A MINE -j KUBE-MARK-DROP"});
    for (const Claimed& one : PlanFor(Cleanup(), observed, dependents).kept) {
      if (one.item.chain.name == kFirewallChain) return ToString(one.claims);
    }
    return std::string();
  };
  EXPECT_EQ(reason(Nat("KUBE-MARK-DROP", Family::kIPv6)),
            "acts on what ip6 nat/KUBE-MARK-DROP marks, which stays");
  EXPECT_EQ(reason(Nat("KUBE-MARK-DROP")), "acts on what nat/KUBE-MARK-DROP marks, which stays");
}

TEST(ClaimTest, AStaleItemNamesTheGateOrTheMissingLabels) {
  const PolicyInput with = Wanting(Mode::kCleanup, kIPv4Only, {}, ConnLabels{});
  Observed observed = Made(with);
  observed.Chain(Nat("KUBE-SERVICES"));
  std::map<std::string, int> reasons;
  for (const ExistingItem& one : ComputeDiff(Cleanup(), observed.snapshot()).stale) {
    ++reasons[one.reason.substr(0, one.reason.find(';'))];
  }
  EXPECT_THAT(reasons, UnorderedElementsAre(Pair("stays with its chain", 4),
                                            Pair("stale, kept: ConnLabelMarking is off", 4 + 4)));
  const RuleSupport support = {.conn_labels = false};
  const Diff impossible = ComputeDiff(with, observed.snapshot(), support);
  ASSERT_FALSE(impossible.stale.empty());
  EXPECT_THAT(impossible.stale[0].reason,
              StartsWith("stale, kept: this node has no connection labels"));
}

TEST(RetirementTest, AMarkingChainClaimsTheBitsThatItSetsOnly) {
  const MarkBits bits = {.masquerade = 14, .drop = 0};
  Observed observed = Made(Legacy(bits));
  observed.Chain(Nat("KUBE-MARK-MASQ"), {SetBit(14), ForeignLog()});
  EXPECT_EQ(KeptBy(PlanFor(Cleanup(), observed)),
            "nat/KUBE-MARK-MASQ foreignRule, nat/KUBE-POSTROUTING markedPackets");
}

TEST(RetirementTest, TakesAChainWithoutItsBaseChain) {
  netlink::Snapshot snapshot = Residue().snapshot();
  snapshot.chains.erase(Nat("POSTROUTING"));
  const Diff diff = ComputeDiff(Cleanup(), snapshot);
  EXPECT_THAT(ChainsGone(PlanRetirement(Cleanup(), snapshot, diff, {}, {})),
              Contains("nat/KUBE-POSTROUTING"));
}

TEST(RetirementTest, LeavesABaseChainOfAnotherProgramThatHasOneOfTheNames) {
  Observed observed = Residue();
  observed.Chain(Nat("KUBE-MARK-DROP"), {SetBit(15)}, /*hooked=*/true)
      .Chain(Filter("KUBE-FIREWALL"), {DropMarked(15)}, /*hooked=*/true);
  const std::set<std::string> gone = Gone(PlanFor(Cleanup(), observed));
  EXPECT_THAT(gone, Not(IsEmpty()));
  EXPECT_THAT(gone, Not(Contains(AnyOf(HasSubstr("KUBE-MARK-DROP"), HasSubstr("KUBE-FIREWALL:")))));
}

TEST(RetirementTest, TakesRulesAndJumpsBeforeChainsAndNoBaseChainOrMartianRule) {
  const Retirement retirement = PlanFor(Cleanup(), Residue(), {}, {.canaries = true});
  bool chain_seen = false;
  for (const Change& change : retirement.changes) {
    const bool chain = std::holds_alternative<netlink::DeleteChain>(change.operation);
    EXPECT_TRUE(chain || !chain_seen) << netlink::ToString(change.operation);
    chain_seen |= chain;
  }
  EXPECT_TRUE(chain_seen);
  const std::set<std::string> gone = Gone(retirement);
  EXPECT_THAT(gone, Contains("ip nat POSTROUTING: -D POSTROUTING -m comment --comment \"kubernetes "
                             "postrouting rules\" -j KUBE-POSTROUTING"));
  EXPECT_THAT(gone,
              Not(Contains(AnyOf(HasSubstr("block incoming localnet"), HasSubstr("-X INPUT"),
                                 HasSubstr("-X POSTROUTING"), HasSubstr("-j KUBE-FIREWALL")))));
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
      EXPECT_EQ(KeptBy(retirement), "") << bit;
    }
  }
}

TEST(RetirementTest, TakesCanariesOnlyOnAnOperatorsRequest) {
  const std::vector<Claimed> kept = PlanFor(Cleanup(), Residue()).kept;
  ASSERT_THAT(kept, SizeIs(3));
  for (const Claimed& canary : kept) {
    EXPECT_EQ(canary.item.chain.name, kCanaryChain);
    EXPECT_EQ(canary.claims[0].kind, ClaimKind::kLiveKubelet);
    EXPECT_THAT(canary.claims[0].text, HasSubstr("`retire --yes` removes it"));
  }
  const Retirement retirement = PlanFor(Cleanup(), Residue(), {}, {.canaries = true});
  EXPECT_THAT(ChainsGone(retirement),
              ::testing::IsSupersetOf({"mangle/KUBE-KUBELET-CANARY", "nat/KUBE-KUBELET-CANARY",
                                       "filter/KUBE-KUBELET-CANARY"}));
}

TEST(RetirementTest, LeavesAFamilyAloneThatIsNotInPlace) {
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

TEST(RetirementTest, KeepsTheHintsAsLongAsAnotherUsesTheMode) {
  const PolicyInput off = Wanting(Mode::kOff, netlink::kFamilies, {});
  const Observed observed = Made(Wanting(Mode::kCleanup, netlink::kFamilies, {}));
  Dependents others;
  others.rule_of_others = "ip filter MINE: -A MINE -j DROP";
  const Retirement kept = PlanFor(off, observed, others, {.when_off = true});
  EXPECT_EQ(ChainsGone(kept), std::set<std::string>{"filter/KUBE-FIREWALL"});
  ASSERT_EQ(kept.kept.size(), 2U) << "of each family";
  EXPECT_EQ(KeptBy(kept), "mangle/KUBE-IPTABLES-HINT hintReaders");
  EXPECT_THAT(ToString(kept.kept[0].claims), HasSubstr("-A MINE -j DROP"));
  // A chain of kubelet's that stays is such a user, too.
  Dependents martians;
  martians.route_localnet.interfaces = {"all"};
  EXPECT_EQ(KeptBy(PlanFor(off, observed, martians, {.when_off = true})),
            "filter/KUBE-FIREWALL martians, mangle/KUBE-IPTABLES-HINT hintReaders");
  EXPECT_EQ(
      ChainsGone(PlanFor(off, observed, {}, {.when_off = true})).count("mangle/KUBE-IPTABLES-HINT"),
      1U);
  // A hint of a mode that is not managed is misleading.
  EXPECT_THAT(PlanFor(off, observed, others, {.when_off = true, .hints = true}).kept, IsEmpty());
}

TEST(RetirementTest, OfModeOffTakesNothingUnlessRequestedAndGivesTheReason) {
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  EXPECT_EQ(PlanFor(off, Residue()), Retirement{});
  const Retirement all = PlanFor(off, Residue(), {}, {.canaries = true, .when_off = true});
  EXPECT_THAT(ChainsGone(all),
              ::testing::IsSupersetOf({"mangle/KUBE-IPTABLES-HINT", "filter/KUBE-FIREWALL"}));
  for (const Change& change : all.changes) {
    if (!std::holds_alternative<netlink::DeleteChain>(change.operation)) continue;
    EXPECT_EQ(change.reason, "stale: kubelet's chains are not desired, and unused");
  }
}

TEST(RetirementTest, KeepsTheMartianRuleWhereNeighboursWouldReachLocalhost) {
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  Dependents dependents;
  dependents.route_localnet.interfaces = {"all"};
  const Retirement retirement = PlanFor(off, Residue(), dependents, {.when_off = true});
  EXPECT_THAT(KeptBy(retirement), StartsWith("filter/KUBE-FIREWALL martians"));
  // Its unused rules are removed nevertheless.
  EXPECT_EQ(Gone(retirement).size(),
            Gone(PlanFor(off, Residue(), {}, {.when_off = true})).size() - 4);
}

TEST(RetirementTest, KeepsTheFirstChainThatTracksConnectionsWhereOnlyKubeletsDo) {
  const struct {
    Mode mode;
    Family family;
    const char* kept;
  } rows[] = {
      {Mode::kCleanup, Family::kIPv4, ""},
      {Mode::kOff, Family::kIPv4, "filter/KUBE-FIREWALL connectionTracking"},
      {Mode::kCleanup, Family::kIPv6, "nat/KUBE-POSTROUTING connectionTracking"},
      {Mode::kOff, Family::kIPv6, "nat/KUBE-POSTROUTING connectionTracking"},
  };
  for (const auto& row : rows) {
    const Family families[] = {row.family};
    const Observed observed = Made(Wanting(Mode::kLegacy, families, {}));
    Dependents dependents;
    dependents.untracked[row.family] = "ip nat MINE: -A MINE -j DROP";
    const RetirementOptions options = {.when_off = true, .hints = true};
    const PolicyInput input = Wanting(row.mode, families, {});
    EXPECT_EQ(KeptBy(PlanFor(input, observed, dependents, options)), row.kept);
    dependents.untracked = {{row.family == Family::kIPv4 ? Family::kIPv6 : Family::kIPv4, "x"}};
    EXPECT_EQ(KeptBy(PlanFor(input, observed, dependents, options)), "");
  }
  EXPECT_EQ(KeptBy(PlanFor(Wanting(Mode::kOff, kIPv4Only, {}),
                           Observed().Chain(Nat("KUBELET-POSTROUTING"), {MasqueradeLabelled(114)}),
                           {.untracked = {{Family::kIPv4, "x"}}}, {.when_off = true})),
            "nat/KUBELET-POSTROUTING connectionTracking");
}

TEST(RetirementTest, OfAFirewallThatOthersUseTakesTheUnusedRule) {
  // kube-proxy since 1.27 has a KUBE-FIREWALL in IPv6, too, and its jumps.
  const Family six[] = {Family::kIPv6};
  Observed observed = Made(Wanting(Mode::kLegacy, six, {}));
  Serving(observed, Family::kIPv6).Chain(Filter("KUBE-PROXY-FIREWALL", Family::kIPv6));
  const Retirement retirement = PlanFor(Wanting(Mode::kCleanup, six, {}), observed);
  EXPECT_THAT(Gone(retirement), Contains(HasSubstr("-D KUBE-FIREWALL")));
  EXPECT_THAT(Gone(retirement), Not(Contains(HasSubstr("-D INPUT"))));
  EXPECT_THAT(KeptBy(retirement), StartsWith("filter/KUBE-FIREWALL kubeProxy, "));
}

TEST(RetirementTest, ReportsWhetherKubeProxyKeepsWhatStays) {
  Observed observed = Residue();
  Serving(observed);
  const std::vector<Claimed> kept = PlanFor(Cleanup(), observed).kept;
  EXPECT_THAT(kept, Not(IsEmpty()));
  for (const Claimed& one : kept) {
    const bool shared =
        one.item.chain.name == kMarkMasqChain || one.item.chain.name == kPostroutingChain;
    EXPECT_EQ(one.of_kube_proxy, shared) << one.item.text;
  }
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

TEST(RetirementReasonsTest, ANativeTableThatPendsUnsettlesIPv4Only) {
  Diff diff;
  diff.changes.push_back({netlink::PutNativeTable{NativeMartians()}, "put"});
  const PolicyInput desired = Wanting(Mode::kCleanup, netlink::kFamilies, {});
  EXPECT_EQ(PlanRetirement(desired, {}, diff, {}, {}).unsettled,
            std::vector<Family>{Family::kIPv4});
}

TEST(RetirementReasonsTest, OnlyWhatIsRemovedIsNotListedAsStale) {
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

TEST(RetirementReasonsTest, TheRemovedNativeTableIsOursAndOfModeOff) {
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
  EXPECT_TRUE(
      PlanRetirement(off, {}, diff, {.untracked = {{Family::kIPv4, "x"}}}, options).empty());
  // If a family is managed, sync removes the table; if not, the table stays.
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
