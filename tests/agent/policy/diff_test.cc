// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/diff.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "agent/policy/nft_copies.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/rows.h"

namespace kipt::agent::diff_test {
namespace {

std::vector<std::string> Conditions(const Diff& diff) {
  std::vector<std::string> names;
  for (const Finding& finding : diff.findings) {
    names.push_back(std::string(ConditionName(finding.condition)) +
                    (finding.repaired ? " repaired" : ""));
  }
  return names;
}

std::vector<std::string> Texts(const std::vector<ExistingItem>& existing) {
  std::vector<std::string> lines;
  for (const ExistingItem& one : existing) lines.push_back(one.text);
  return lines;
}

// ---- one chain of ours: the observed rules of KUBE-POSTROUTING, and the changes ----

struct PostroutingCase {
  std::string name;
  std::vector<RuleContent> rules;
  std::vector<std::string> operations = {};
  std::vector<std::string> conditions = {};
  bool claimed = false;
};

const char kReturn[] = "-m mark ! --mark 0x4000/0x4000 -j RETURN";
const char kXor[] = "-j MARK --set-xmark 0x4000/0x0";
const char kMasquerade[] =
    "-m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE "
    "--random-fully";

std::string Append(const std::string& rule) { return "-A KUBE-POSTROUTING " + rule; }
std::string Insert(int number, const std::string& rule) {
  return "-I KUBE-POSTROUTING " + std::to_string(number) + " " + rule;
}
std::string Remove(const std::string& rule) { return "-D KUBE-POSTROUTING " + rule; }

const RuleContent kR = ReturnUnmarked(14);
const RuleContent kX = ClearBit(14);
const RuleContent kM = MasqueradeAll(0);

const netlink::Rule kOtherMark = SettingMark(0x300000, 0x300000);
const netlink::Rule kSomeMasquerade = {.source = netlink::PrefixMatch{.negated = true},
                                       .target = netlink::Masquerade{}};
const netlink::OpaqueRule kSomeMarked = {.text = "-p tcp -j MARK", .marks = {.cleared = 0x4000}};

netlink::OpaqueRule CopyOf(netlink::Rule rule) {
  rule.comment.clear();
  return {.text = "copy", .marks = netlink::MarksOf(rule), .known = rule, .translated = true};
}

netlink::OpaqueRule Hairpin(const char* set) {
  return {.text = "x", .target = "MASQUERADE", .set = set, .set_directions = "dst,dst,src"};
}

TEST(PostroutingTest, IsPutInOrder) {
  const PostroutingCase rows[] = {
      {"Empty", List(), List(Append(kReturn), Append(kXor), Append(kMasquerade))},
      // "Append if missing", as kubelet does, would put RETURN after MASQUERADE.
      {"TheReturnIsLost", List(kX, kM), List(Insert(1, kReturn)), List("DamagedRule repaired")},
      {"TheMiddleIsLost", List(kR, kM), List(Insert(2, kXor))},
      {"TheEndIsLost", List(kR, kX), List(Append(kMasquerade))},
      {"Reversed", List(kM, kX, kR),
       List(Append(kXor), Append(kMasquerade), Remove(kMasquerade), Remove(kXor)),
       List("DamagedRule repaired")},
      {"ADuplicate", List(kR, kX, kM, kM), List(Remove(kMasquerade))},
      {"EverythingTwice", List(kR, kX, kM, kR, kX, kM),
       List(Remove(kReturn), Remove(kXor), Remove(kMasquerade))},
      {"AForeignRuleAfterOurs", List(kR, kX, kM, ForeignAccept())},
      {"AForeignRuleBeforeOurs", List(ForeignAccept(), kR, kX, kM), List(), List("PrecedingRule")},
      {"AForeignRuleAmongOurs", List(kR, ForeignAccept(), kX, kM), List(), List("PrecedingRule")},
      {"AForeignRuleAlone", List(ForeignAccept()),
       List(Insert(1, kReturn), Insert(2, kXor), Insert(3, kMasquerade))},
      {"AForeignRuleBeforeHalfOfOurs", List(ForeignAccept(), kR, kX), List(Append(kMasquerade)),
       List("PrecedingRule")},
      {"AForeignRuleThatAcceptsAllBeforeOurs", List(ForeignAcceptAll(), kR, kX, kM),
       List(Insert(1, kReturn), Insert(2, kXor), Insert(3, kMasquerade), Remove(kReturn),
            Remove(kXor), Remove(kMasquerade))},
      {"AForeignMarkWhereTheMarkIsTested", List(SettingMark(0x4000, 0x4000), kR, kX, kM), List(),
       List("PrecedingRule")},
      {"AReturnAgainBelowAForeignMark", List(kR, kX, RestoredMark(), kR, kM), List(Remove(kReturn)),
       List("PrecedingRule")},
      {"AnXorAgainBelowAForeignMark", List(kR, kX, RestoredMark(), kX, kM), List(Remove(kXor)),
       List("PrecedingRule")},
      {"AForeignMarkThatReplacesTheOneTested", List(SettingMark(0x1, 0xffffffff), kR, kX, kM),
       List(Insert(1, kReturn), Insert(2, kXor), Insert(3, kMasquerade), Remove(kReturn),
            Remove(kXor), Remove(kMasquerade))},
      {"AForeignRuleThatDecidesNothing", List(ForeignLog(), kR, kX, kM)},
      {"AForeignMarkOfAnotherBit", List(kOtherMark, kR, kX, kM)},
      {"AForeignMasqueradeOfSomeAddresses", List(kSomeMasquerade, kR, kX, kM), List(),
       List("PrecedingRule")},
      {"CopiesOfWhichTheLastLostItsTarget",
       List(CopyOf(ReturnUnmarked(14)), CopyOf(ClearBit(14)),
            CopyOf({.target = netlink::NoTarget{}})),
       List(Append(kReturn), Append(kXor), Append(kMasquerade), Remove(kReturn), Remove(kXor),
            Remove("-j MASQUERADE --random-fully"))},
      {"CopiesWhereKubeProxyLives",
       List(CopyOf(ReturnUnmarked(14)), CopyOf(ClearBit(14)), CopyOf(MasqueradeAll(0))), List(),
       List(), true},
      {"AHairpinOfIpvsMode", List(Hairpin("KUBE-LOOP-BACK"), kR, kX, kM)},
      {"AHairpinOfAnotherSet", List(Hairpin("OTHER"), kR, kX, kM), List(), List("PrecedingRule")},
      {"AForeignMarkForSomePackets", List(kSomeMarked, kR, kX, kM), List(), List("PrecedingRule")},
      {"AForeignJump", List(JumpTo("X"), kR, kX, kM), List(), List("PrecedingRule")},
      {"TheSingleRuleOf117", List(MasqueradeMarked(14)),
       List(Append(kReturn), Append(kXor), Append(kMasquerade),
            Remove("-m comment --comment \"kubernetes service traffic requiring "
                   "SNAT\" -m mark --mark 0x4000/0x4000 -j MASQUERADE "
                   "--random-fully"))},
      {"TheSingleRuleOf117WhereKubeProxyKeepsIt", List(MasqueradeMarked(14)), List(),
       List("OlderFormKept"), true},
      {"WithoutRandomFully", List(kR, kX, MasqueradeAllPlain(0)),
       List(Append(kMasquerade),
            Remove("-m comment --comment \"kubernetes service traffic requiring "
                   "SNAT\" -j MASQUERADE"))},
      {"WithoutRandomFullyWhereKubeProxyKeepsIt", List(kR, kX, MasqueradeAllPlain(0)), List(),
       List("OlderFormKept"), true},
      {"AnotherBit", List(ReturnUnmarked(20), ClearBit(20), kM),
       List(Insert(3, kReturn), Insert(4, kXor),
            Remove("-m mark ! --mark 0x100000/0x100000 -j RETURN"),
            Remove("-j MARK --set-xmark 0x100000/0x0"))},
      {"AnotherBitWhereKubeProxyKeepsIt", List(ReturnUnmarked(20), ClearBit(20), kM), List(),
       List("BitConflict"), true},
      {"KubeProxysHairpinRuleAboveAWholeSet", List(HairpinMasquerade(), kR, kX, kM), List(), List(),
       true},
      {"KubeProxysHairpinRuleAboveASetOfAnotherBit",
       List(HairpinMasquerade(), ReturnUnmarked(20), ClearBit(20), kM), List(), List("BitConflict"),
       true},
      {"KubeProxysHairpinRuleAboveAnOlderForm", List(HairpinMasquerade(), MasqueradeMarked(14)),
       List(), List("OlderFormKept"), true},
      {"KubeProxysHairpinRuleAboveHalfASet", List(HairpinMasquerade(), kR, kX),
       List(Append(kMasquerade)), List(), true},
      {"KubeProxysHairpinRuleAlone", List(HairpinMasquerade()),
       List(Append(kReturn), Append(kXor), Append(kMasquerade)), List(), true},
      {"AForeignRuleAmongOursWhereKubeProxyLives", List(kR, ForeignAccept(), kX, kM), List(),
       List("PrecedingRule"), true},
      {"AForeignRuleBelowOursWhereKubeProxyLives", List(kR, kX, kM, ForeignAccept()), List(),
       List(), true},
      {"AForeignRuleBelowHalfOfOursWhereKubeProxyLives", List(kR, ForeignAccept()),
       List(Append(kXor), Append(kMasquerade)), List(), true},
      {"AForeignRuleAloneWhereKubeProxyLives", List(ForeignAccept()),
       List(Append(kReturn), Append(kXor), Append(kMasquerade)), List("PrecedingRule"), true},
      {"AForeignRuleThatAcceptsAllWhereKubeProxyLives", List(ForeignAcceptAll(), kR, kX, kM),
       List(), List("ShadowedRules"), true},
      {"AForeignRuleThatAcceptsAllAboveAnotherBit",
       List(ForeignAcceptAll(), ReturnUnmarked(20), ClearBit(20), kM), List(),
       List("BitConflict", "ShadowedRules"), true},
      {"AForeignMasqueradeOfSomeAddressesAboveAnotherBit",
       List(kSomeMasquerade, ReturnUnmarked(20), ClearBit(20), kM), List(),
       List("BitConflict", "PrecedingRule"), true},
      // Leftovers of a kubelet with bit 14, after the rules of a kube-proxy with bit 20.
      {"AnotherBitAndResidueOfOursWhereKubeProxyKeepsIt",
       List(ReturnUnmarked(20), ClearBit(20), kM, kR, kX), List(), List("BitConflict"), true},
      // Not a working set: kube-proxy's next sync will rewrite it, ours works until then.
      {"HalfOfAnotherBitWhereKubeProxyKeepsIt", List(ReturnUnmarked(20)),
       List(Insert(1, kReturn), Insert(2, kXor), Insert(3, kMasquerade)), List(), true},
      {"EmptyWhereKubeProxyKeepsIt", List(),
       List(Append(kReturn), Append(kXor), Append(kMasquerade)), List(), true},
      {"AReturnThatLostItsMatch", List(BareReturn(), kX, kM),
       List(Insert(2, kReturn), Remove("-j RETURN")),
       List("DamagedRule repaired", "DamagedRule repaired")},
      {"AReturnThatLostItsMatchBeforeAWholeSet", List(BareReturn(), kR, kX, kM),
       List(Remove("-j RETURN")), List("DamagedRule repaired")},
      {"ABareReturnAtTheEndIsHarmless", List(kR, kX, kM, BareReturn())},
      {"TheSingleRuleOf117ThatLostItsMatch", List(kM), List(Insert(1, kReturn), Insert(2, kXor)),
       List("DamagedRule repaired")},
      {"AMasqueradeThatNothingGuardsAfterASetThatKubeProxyKeeps", List(MasqueradeMarked(14), kM),
       List(Insert(1, kReturn), Insert(2, kXor), Insert(3, kMasquerade), Remove(kMasquerade)),
       List("DamagedRule repaired"), true},
      {"AReturnThatLostItsMatchWhereKubeProxyKeepsTheRest",
       List(BareReturn(), ReturnUnmarked(20), ClearBit(20), kM), List(Remove("-j RETURN")),
       List("DamagedRule repaired", "BitConflict"), true},
  };
  for (const PostroutingCase& row : rows) {
    SCOPED_TRACE(row.name);
    Observed observed = Made(Legacy());
    observed.Chain(Nat("KUBE-POSTROUTING"), row.rules);
    if (row.claimed) observed.Chain(Nat("KUBE-SERVICES"));
    const Diff diff = ComputeDiff(Legacy(), observed.snapshot());
    EXPECT_EQ(Operations(diff), row.operations);
    EXPECT_EQ(Conditions(diff), row.conditions);
  }
  Observed two = Made(Legacy());
  two.Chain(Nat("KUBE-POSTROUTING"), List(ForeignAccept(), ForeignAccept(), kR, kX, kM));
  EXPECT_THAT(ComputeDiff(Legacy(), two.snapshot()).findings.front().message,
              HasSubstr("-p tcp -j ACCEPT\" and 1 more above these rules decide first about"));
}

// ---- one chain of the other ones: what it holds, and what must be done ----

struct ChainCase {
  std::string name;
  PolicyInput desired;
  netlink::ChainId chain;
  std::vector<RuleContent> rules;
  std::vector<std::string> operations = {};
  std::vector<std::string> conditions = {};
  bool claimed = false;  // kube-proxy's services exist
};

const netlink::ChainId kFirewall = Filter("KUBE-FIREWALL");
const std::string kMartians =
    "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet "
    "connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";
const std::string kMarked =
    "-m comment --comment \"kubernetes firewall for dropping marked packets\"";
const std::string kDropMarked = kMarked + " -m mark --mark 0x8000/0x8000 -j DROP";
const netlink::OpaqueRule kRejectAll = {
    .text = "-j REJECT", .unconditional = true, .terminal = true, .drops = true};
const netlink::OpaqueRule kSocketMark = {
    .text = "-m socket --restore-skmark", .decides = false, .marks = {.set = netlink::kAllMarks}};
const netlink::Rule kClearAll = SettingMark(0, 0xffffffff);

void ExpectDiffs(absl::Span<const ChainCase> rows) {
  for (const ChainCase& row : rows) {
    SCOPED_TRACE(row.name);
    Observed observed = Made(row.desired);
    observed.Chain(row.chain, row.rules);
    if (row.claimed) observed.Chain(Nat("KUBE-SERVICES"));
    const Diff diff = ComputeDiff(row.desired, observed.snapshot());
    EXPECT_EQ(Operations(diff), row.operations);
    EXPECT_EQ(Conditions(diff), row.conditions);
    // What is not repaired needs an administrator.
    for (const Finding& finding : diff.findings) {
      EXPECT_EQ(NeedsAttention(finding), !finding.repaired);
    }
  }
}

TEST(DiffTest, PutsEachChainInOrder) {
  const ChainCase rows[] = {
      // KUBE-FIREWALL: the order does not count, drops must be conditional.
      {"both orders are right", Legacy(), kFirewall, List(DropMarked(15), DropMartians(0))},
      {"kube-proxy wiped the rule of the drop mark", Legacy(), kFirewall, List(DropMartians(0)),
       List("-A KUBE-FIREWALL " + kDropMarked), List(), true},
      {"the martian rule alone is missing", Legacy(), kFirewall, List(DropMarked(15)),
       List("-A KUBE-FIREWALL " + kMartians)},
      {"the rule of the drop mark alone is missing", Legacy(), kFirewall, List(DropMartians(0)),
       List("-A KUBE-FIREWALL " + kDropMarked)},
      {"a missing drop comes before a foreign rule that may accept", Cleanup(), kFirewall,
       List(ForeignLog(), ForeignAccept()), List("-I KUBE-FIREWALL 2 " + kMartians)},
      // kube-proxy never writes that rule, so only we keep it in step with KUBE-MARK-DROP.
      {"the drop mark of another bit is replaced even where kube-proxy lives", Legacy(), kFirewall,
       List(DropMartians(0), DropMarked(5)),
       List("-A KUBE-FIREWALL " + kDropMarked,
            "-D KUBE-FIREWALL " + kMarked + " -m mark --mark 0x20/0x20 -j DROP"),
       List(), true},
      {"damage in a chain that is not ours is reported and stays", Cleanup(),
       Nat("KUBE-POSTROUTING"), List(BareReturn(), MasqueradeAll(0)), List(),
       List("DamagedRule", "DamagedRule")},
      // KUBE-MARK-MASQ and KUBE-MARK-DROP.
      {"a rule that clears the mark again is reported and stays", Legacy(), Nat("KUBE-MARK-DROP"),
       List(SetBit(15), kClearAll), List(), List("VoidedMark")},
      {"another program's mark is set and cleared", Legacy(), Nat("KUBE-MARK-MASQ"),
       List(SetBit(14), SettingMark(0x60, 0x60), SettingMark(0, 0x60))},
      {"another program's mark and ours are cleared", Legacy(), Nat("KUBE-MARK-MASQ"),
       List(SetBit(14), SettingMark(0, 0x4020)), List(), List("VoidedMark")},
      {"no mode promises the mark that is cleared", Cleanup(), Nat("KUBE-MARK-DROP"),
       List(SetBit(15), kClearAll)},
      {"another masquerade bit is replaced where no kube-proxy lives", Legacy(),
       Nat("KUBE-MARK-MASQ"), List(SetBit(20)),
       List("-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
            "-D KUBE-MARK-MASQ -j MARK --set-xmark 0x100000/0x100000")},
      {"kube-proxy 1.20 to 1.24 leaves KUBE-MARK-DROP empty", Legacy(), Nat("KUBE-MARK-DROP"),
       List(), List("-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000"), List(), true},
      // Repair must not make a foreign rule effective that only changes the mark.
      {"a mark below a rule that clears it", Legacy(), Nat("KUBE-MARK-DROP"),
       List(kClearAll, SetBit(15))},
      {"a mark that is missing below a rule that clears it", Legacy(), Nat("KUBE-MARK-MASQ"),
       List(kClearAll, ForeignAccept()),
       List("-I KUBE-MARK-MASQ 2 -j MARK --set-xmark 0x4000/0x4000")},
      {"a mark below one that a connection had", Legacy(), Nat("KUBE-MARK-DROP"),
       List(RestoredMark(), SetBit(15))},
      {"a drop below a rule that may set or clear its mark", Legacy(), kFirewall,
       List(RestoredMark(), DropMarked(15), DropMartians(0)),
       List("-I KUBE-FIREWALL 1 " + kMartians, "-I KUBE-FIREWALL 2 " + kDropMarked,
            "-D KUBE-FIREWALL " + kMartians)},
      {"a drop below one that may accept, and one that may set its mark", Legacy(), kFirewall,
       List(ForeignAccept(), RestoredMark(), DropMarked(15), DropMartians(0)),
       List("-I KUBE-FIREWALL 1 " + kMartians, "-I KUBE-FIREWALL 2 " + kDropMarked,
            "-D KUBE-FIREWALL " + kMartians)},
      {"a drop below a mark of other bits", Legacy(), kFirewall,
       List(kOtherMark, DropMarked(15), DropMartians(0))},
      {"drops between others' rules, and again", Legacy(), kFirewall,
       List(DropMartians(0), DropMarked(15), RestoredMark(), DropMarked(15), DropMarked(15)),
       List("-D KUBE-FIREWALL " + kDropMarked)},
      {"the same drop before and after another program's mark", Legacy(), kFirewall,
       List(DropMartians(0), DropMarked(15), RestoredMark(), DropMarked(15))},
      {"the same mark before and after another program's", Legacy(), Nat("KUBE-MARK-DROP"),
       List(SetBit(15), RestoredMark(), SetBit(15))},
      {"the same drop before and after another program's label",
       Wanting(Mode::kCleanup, kIPv4Only, {}, ConnLabels{}), Filter("KUBELET-FIREWALL"),
       List(DropLabelled(115),
            netlink::OpaqueRule{.text = "label", .marks = {.labels_set = netlink::AllConnLabels()}},
            DropLabelled(115))},
      // Jumps in base chains.
      {"a second jump below another program's mark", Legacy(), Filter("INPUT"),
       List(JumpTo("KUBE-FIREWALL"), RestoredMark(), JumpTo("KUBE-FIREWALL"))},
      {"a second jump below a verdict map", Legacy(), Filter("INPUT"),
       List(JumpTo("KUBE-FIREWALL"), VerdictMap(), JumpTo("KUBE-FIREWALL"))},
      {"a second jump below a match that restores a mark", Legacy(), Filter("INPUT"),
       List(JumpTo("KUBE-FIREWALL"), kSocketMark, JumpTo("KUBE-FIREWALL"))},
      {"a second jump below a mark of other bits", Legacy(), Filter("INPUT"),
       List(JumpTo("KUBE-FIREWALL"), kOtherMark, JumpTo("KUBE-FIREWALL")),
       List("-D INPUT -j KUBE-FIREWALL")},
      {"the same where the chain tests no mark", Cleanup(), Filter("INPUT"),
       List(JumpTo("KUBE-FIREWALL"), RestoredMark(), JumpTo("KUBE-FIREWALL")),
       List("-D INPUT -j KUBE-FIREWALL")},
      {"a jump that is lower down is never moved", Cleanup(), Filter("INPUT"),
       List(JumpTo("CALI-INPUT"), ForeignAccept(), JumpTo("KUBE-FIREWALL"), ForeignLog())},
      {"a jump below a rule that no packet passes is reported", Cleanup(), Filter("INPUT"),
       List(ForeignAcceptAll(), JumpTo("KUBE-FIREWALL")), List(), List("ShadowedJump")},
      {"a jump below a verdict map is doubted", Cleanup(), Filter("INPUT"),
       List(VerdictMap(), JumpTo("KUBE-FIREWALL")), List(), List("PerhapsShadowedJump")},
      {"not one below a certain verdict, too", Cleanup(), Filter("INPUT"),
       List(VerdictMap(), ForeignAcceptAll(), JumpTo("KUBE-FIREWALL")), List(),
       List("ShadowedJump")},
      {"a missing jump is inserted first", Cleanup(), Filter("INPUT"),
       List(ForeignAccept(), JumpTo("CALI-INPUT")), List("-I INPUT 1 -j KUBE-FIREWALL")},
      {"a jump with another comment is not ours", Cleanup(), Filter("INPUT"),
       List(JumpTo("KUBE-FIREWALL", "mine")), List("-I INPUT 1 -j KUBE-FIREWALL")},
  };
  ExpectDiffs(rows);
}

TEST(UnconditionalDropTest, IsRepairedWhereItIsOursAndReportedWhereItIsNot) {
  const ChainCase rows[] = {
      {"kubelet's drop of marked packets lost its match", Legacy(), kFirewall,
       List(DropMartians(0), DropMarked(15),
            BareDrop("kubernetes firewall for dropping marked packets")),
       List("-D KUBE-FIREWALL " + kMarked + " -j DROP"), List("DamagedRule repaired")},
      {"kubelet's martian rule lost its match", Cleanup(), kFirewall,
       List(DropMartians(0), BareDrop("block incoming localnet connections")),
       List(
           "-D KUBE-FIREWALL -m comment --comment \"block incoming localnet connections\" -j DROP"),
       List("DamagedRule repaired")},
      {"an administrator's drop of everything", Legacy(), kFirewall,
       List(DropMartians(0), DropMarked(15), BareDrop("")), List(), List("ForeignDropsEverything")},
      {"an administrator's drop of everything has a comment", Cleanup(), kFirewall,
       List(DropMartians(0), BareDrop("lockdown 2026-11")), List(), List("ForeignDropsEverything")},
      {"an administrator's REJECT of everything", Cleanup(), kFirewall, List(kRejectAll),
       List("-I KUBE-FIREWALL 1 " + kMartians), List("ForeignDropsEverything")},
  };
  ExpectDiffs(rows);
}

TEST(DiffTest, ASecondJumpStaysWhereItsChainMarksPacketsForItself) {
  const netlink::OpaqueRule others = {
      .text = "others'", .marks = {.set = 0x300000, .labels_set = netlink::ConnLabelSet().set()}};
  const std::vector<std::pair<RuleContent, bool>> rows = {
      {ForeignLog(), false},
      {kOtherMark, false},
      {netlink::OpaqueRule{.text = "meta mark 0x300000", .marks = {.tested = 0x300000}}, true},
      {netlink::Rule{.conn_label = netlink::ConnLabelMatch{.label = 9}}, true},
      {SettingMark(0x8000, 0x8000), true},
      {JumpTo("X"), true},
  };
  for (const auto& [last, stays] : rows) {
    Observed observed = Made(Legacy());
    observed.Chain(kFirewall, {DropMartians(0), DropMarked(15), last});
    observed.Chain(Filter("INPUT"), {JumpTo("KUBE-FIREWALL"), others, JumpTo("KUBE-FIREWALL")});
    EXPECT_EQ(ComputeDiff(Legacy(), observed.snapshot()).empty(), stays);
  }
}

TEST(DiffTest, ASecondJumpStaysWhereItsChainHasACopyThatTestsAMark) {
  Observed observed = Made(Cleanup());
  netlink::Rule copy = DropMarked(20);
  copy.comment.clear();
  observed.Chain(kFirewall, {DropMartians(0), copy})
      .Chain(Nat("KUBE-MARK-DROP"), {CopyOf(SetBit(20))})
      .Chain(Filter("INPUT"), {JumpTo("KUBE-FIREWALL"), kOtherMark, JumpTo("KUBE-FIREWALL")});
  const Diff diff = ComputeDiff(Cleanup(), observed.snapshot());
  EXPECT_TRUE(diff.empty());
  EXPECT_THAT(Texts(diff.stale), Contains(EndsWith(" 0x100000/0x100000 -j DROP")));
}

TEST(DiffTest, ARuleOfAnotherDropBitThanThatOfACopyStays) {
  Observed observed = Made(Legacy());
  netlink::Rule other = DropMarked(0);
  other.comment.clear();
  observed.Chain(kFirewall, {DropMartians(0), DropMarked(15), other})
      .Chain(Nat("KUBE-MARK-MASQ"), {CopyOf(SetBit(14))});
  EXPECT_THAT(Operations(ComputeDiff(Legacy(), observed.snapshot())),
              Not(Contains(StartsWith("-D KUBE-FIREWALL"))));
}

TEST(DiffTest, NamesARuleThatIptablesCannotListCountsTheOthersAndAsksForARebootAfterACopy) {
  const auto message = [](const netlink::ChainId& chain, const RuleContent& content, int count,
                          const std::vector<Change>& changes = {}) {
    UnlistableRules rules(changes);
    for (int i = 0; i < count; ++i) {
      rules.Add(chain, {.handle = 1, .content = content, .unlistable = true});
    }
    return rules.Findings().at(0).message;
  };
  const netlink::OpaqueRule foreign = {.text = "x"};
  EXPECT_THAT(message(Nat("MINE"), foreign, 1), HasSubstr("\"-A MINE x\": iptables has no option"));
  EXPECT_THAT(message(Nat("MINE"), foreign, 3),
              AllOf(HasSubstr(" x\" and 2 more: "), EndsWith("table)")));
  const netlink::OpaqueRule copy = CopyOf(SetBit(14));
  const Change deletion = {netlink::DeleteRule{.chain = Nat("KUBE-MARK-MASQ"), .handle = 1}, ""};
  EXPECT_THAT(message(Nat("KUBE-MARK-MASQ"), copy, 1), EndsWith("names, and reboot"));
  EXPECT_THAT(message(Nat("KUBE-MARK-MASQ"), copy, 1, {deletion}), EndsWith("names"));
  const std::vector<Change> changes = {deletion};
  UnlistableRules mixed(changes);
  mixed.Add(Nat("KUBE-MARK-MASQ"), {.handle = 1, .content = copy, .unlistable = true});
  mixed.Add(Nat("MINE"), {.handle = 2, .content = foreign, .unlistable = true});
  EXPECT_THAT(mixed.Findings()[0].message, HasSubstr("\"-A MINE x\": "));
  mixed.Add(Nat("KUBE-MARK-MASQ"), {.handle = 3, .content = copy, .unlistable = true});
  mixed.Add(Nat("MINE"), {.handle = 4, .content = foreign, .unlistable = true});
  EXPECT_THAT(mixed.Findings()[0].message, HasSubstr("\"-A KUBE-MARK-MASQ copy\" and 2 more"));
}

// nft loses comments of what it saves and loads.
TEST(DiffTest, AJumpWithoutItsCommentIsACopyWhereItsChainIsOne) {
  const auto deletes_jump = [](const netlink::ChainId& chain,
                               const std::vector<RuleContent>& rules) {
    Observed observed = Made(Legacy());
    observed.Chain(chain, rules);
    observed.Chain(
        Nat("POSTROUTING"),
        {JumpTo("KUBE-POSTROUTING"), JumpTo("KUBE-POSTROUTING", "kubernetes postrouting rules")});
    return absl::c_linear_search(Operations(ComputeDiff(Legacy(), observed.snapshot())),
                                 "-D POSTROUTING -j KUBE-POSTROUTING");
  };
  EXPECT_TRUE(deletes_jump(Nat("KUBE-POSTROUTING"), {CopyOf(ReturnUnmarked(14))}));
  EXPECT_FALSE(deletes_jump(Nat("KUBE-POSTROUTING"), {kR}));
  EXPECT_FALSE(deletes_jump(Nat("KUBE-MARK-MASQ"), {CopyOf(SetBit(14))}));
}

// ---- KUBE-MARK-MASQ and KUBE-MARK-DROP ----

TEST(DiffTest, LeavesKubeProxysOtherMasqueradeBitAloneAndReportsIt) {
  Observed observed = Made(Legacy());
  observed.Chain(Nat("KUBE-MARK-MASQ"), {SetBit(20)}).Chain(Mangle("KUBE-PROXY-CANARY"));
  const Diff diff = ComputeDiff(Legacy(), observed.snapshot());
  EXPECT_THAT(Operations(diff), IsEmpty());
  ASSERT_THAT(Conditions(diff), ElementsAre("BitConflict"));
  EXPECT_THAT(diff.findings[0].message, HasSubstr("kube-proxy uses mark bit 20"));
  EXPECT_THAT(diff.findings[0].message, HasSubstr("was given bit 14"));
}

TEST(DiffTest, KubeProxyOfOneFamilyDoesNotClaimTheOther) {
  constexpr Family kIPv6Only[] = {Family::kIPv6};
  const PolicyInput desired = Wanting(Mode::kLegacy, kIPv6Only, {});
  Observed observed = Made(desired);
  observed.Chain(Nat("KUBE-MARK-MASQ", Family::kIPv6), {SetBit(20)})
      .Chain(Nat("KUBE-SERVICES", Family::kIPv4));
  EXPECT_THAT(Operations(ComputeDiff(desired, observed.snapshot())),
              ElementsAre(HasSubstr("-A KUBE-MARK-MASQ"), HasSubstr("-D KUBE-MARK-MASQ")));
}

// ---- jumps in base chains ----

TEST(DiffTest, MakesABaseChainOnceForTwoJumps) {
  const PolicyInput desired = Wanting(Mode::kCleanup, kIPv4Only, {}, ConnLabels{});
  const std::vector<std::string> operations = Operations(ComputeDiff(desired, {}));
  EXPECT_EQ(absl::c_count(operations, ":INPUT ACCEPT [0:0]"), 1);
  EXPECT_THAT(operations, Contains("-A INPUT -j KUBE-FIREWALL"));
  EXPECT_THAT(operations, Contains("-A INPUT -j KUBELET-FIREWALL"));
}

TEST(DiffTest, ReportsAJumpBelowAChainThatNoPacketComesBackFromAndNamesTheFirstSuchRule) {
  Observed observed = Made(Cleanup());
  observed.Chain(Filter("INPUT"), {JumpTo("OUTER"), JumpTo("KUBE-FIREWALL")})
      .Chain(Filter("OUTER"), {JumpTo("INNER")})
      .Chain(Filter("INNER"), {ForeignAccept(), ForeignAcceptAll()});
  Diff diff = ComputeDiff(Cleanup(), observed.snapshot());
  EXPECT_THAT(Operations(diff), IsEmpty());
  ASSERT_THAT(Conditions(diff), ElementsAre("ShadowedJump"));
  EXPECT_THAT(diff.findings[0].message, HasSubstr("\"-A INPUT -j OUTER\""));
  observed.Chain(Filter("INPUT"), {ForeignAcceptAll(), JumpTo("OUTER"), JumpTo("KUBE-FIREWALL")});
  diff = ComputeDiff(Cleanup(), observed.snapshot());
  ASSERT_THAT(Conditions(diff), ElementsAre("ShadowedJump"));
  EXPECT_THAT(diff.findings[0].message, Not(HasSubstr("OUTER")));
}

TEST(DiffTest, WakesATableThatIsDormantUnlessItIsAnothersOrHoldsNoneOfOurJumps) {
  const auto diff_of = [](const PolicyInput& desired, const Observed& observed,
                          netlink::Table table, uint32_t flags) {
    netlink::Snapshot snapshot = observed.snapshot();
    snapshot.dormant[{netlink::Family::kIPv4, table}] = flags;
    return ComputeDiff(desired, snapshot);
  };
  const uint32_t owned = netlink::kTableDormant | netlink::kTableOwned;
  const Observed made = Made(Cleanup());
  Diff diff = diff_of(Cleanup(), made, netlink::Table::kFilter, netlink::kTableDormant);
  EXPECT_THAT(Operations(diff), ElementsAre("nft add table ip filter"));
  EXPECT_THAT(Conditions(diff), ElementsAre("TableDormant repaired"));
  EXPECT_EQ(diff.findings[0].chain, Filter("INPUT")) << "the first with a jump of ours";

  diff = diff_of(Cleanup(), made, netlink::Table::kFilter, owned);
  EXPECT_THAT(Operations(diff), IsEmpty());
  EXPECT_THAT(Conditions(diff), ElementsAre("TableDormant"));
  EXPECT_THAT(diff.findings[0].message, HasSubstr("another program owns it"));

  diff = diff_of(Cleanup(), made, netlink::Table::kNat, netlink::kTableDormant);
  EXPECT_TRUE(diff.empty() && diff.findings.empty()) << "nothing of ours is in it";

  Observed unhooked = made;
  unhooked.Chain(Filter("INPUT"), {JumpTo("KUBE-FIREWALL")}, /*hooked=*/false);
  diff = diff_of(Cleanup(), unhooked, netlink::Table::kFilter, netlink::kTableDormant);
  EXPECT_THAT(Operations(diff), IsEmpty());
  EXPECT_THAT(Conditions(diff), ElementsAre("BaseChainNotHooked", "TableDormant"));
  EXPECT_THAT(diff.findings[1].message, Not(HasSubstr("another program")));
}

TEST(DiffTest, KeepsTheFirstOfDuplicates) {
  const RuleContent jump = JumpTo("KUBE-FIREWALL");
  Observed observed = Made(Legacy());
  observed.Chain(Filter("OUTPUT"), {jump, ForeignAccept(), jump})
      .Chain(kFirewall, {DropMartians(0), DropMarked(15), DropMartians(0)});
  const Diff diff = ComputeDiff(Legacy(), observed.snapshot());
  ASSERT_EQ(diff.changes.size(), 2U);
  for (const Change& change : diff.changes) {
    const auto& deletion = std::get<netlink::DeleteRule>(change.operation);
    EXPECT_EQ(deletion.handle, observed.snapshot().Find(deletion.chain)->rules[2].handle);
  }
  EXPECT_EQ(absl::c_count(Texts(diff.in_place), "-A OUTPUT -j KUBE-FIREWALL"), 1);
}

TEST(DiffTest, TouchesNothingInATableWithAnUnhookedBaseChain) {
  Observed observed;
  observed.Chain(Filter("INPUT"), {}, /*hooked=*/false);
  const Diff diff = ComputeDiff(Cleanup(), observed.snapshot());
  EXPECT_THAT(Operations(diff), ElementsAre(":KUBE-IPTABLES-HINT - [0:0]"));
  EXPECT_THAT(Conditions(diff), ElementsAre("BaseChainNotHooked"));
}

TEST(DiffTest, TouchesNothingInATableWithABaseChainOfOneOfOurNames) {
  Observed observed;
  observed.Chain(Filter("KUBE-FIREWALL"), {DropMarked(20)}, /*hooked=*/true);
  Diff diff = ComputeDiff(Cleanup(), observed.snapshot());
  EXPECT_THAT(Operations(diff), ElementsAre(":KUBE-IPTABLES-HINT - [0:0]"));
  EXPECT_THAT(Conditions(diff), ElementsAre("ForeignBaseChain"));
  // Where it is not desired it is not listed: no kubelet left it.
  observed = Made(Cleanup());
  observed.Chain(Nat("KUBE-MARK-DROP"), {SetBit(15)}, /*hooked=*/true);
  diff = ComputeDiff(Cleanup(), observed.snapshot());
  EXPECT_TRUE(diff.empty() && diff.findings.empty());
  EXPECT_THAT(Texts(diff.stale), IsEmpty());
}

TEST(DiffTest, TouchesNothingInTheTablesWhereItWouldDropWhatKubeProxyMasquerades) {
  const std::vector<RuleContent> set = {ReturnUnmarked(14), ClearBit(14), MasqueradeAll(14)};
  const RuleContent both_bits = netlink::Rule{.target = netlink::SetMark{0x6000, 0x6000}};
  netlink::OpaqueRule some = {.text = "-p tcp -j MARK --set-xmark 0x4000/0x4000"};
  some.marks.set = 0x4000;
  netlink::OpaqueRule unknown = {.text = "-j CONNMARK --restore-mark"};
  unknown.marks.set = netlink::kAllMarks;
  const struct {
    const char* name;
    std::vector<RuleContent> postrouting, mark_masq, firewall;
    bool conflict, dropped;
  } rows[] = {
      {"its set acts on the bit", set, {}, {}, true, false},
      {"its set was flushed, and the bit is still marked", {}, {SetBit(14)}, {}, true, false},
      {"the bit is marked after ours", {}, {SetBit(13), SetBit(14)}, {}, true, false},
      {"the bit is marked with ours", {}, {both_bits}, {}, true, false},
      {"the bit is marked for some packets", {}, {SetBit(13), some}, {}, false, false},
      {"our rule drops them already", set, {}, {DropMarked(14)}, true, true},
      {"our rule drops another bit", set, {}, {DropMarked(15)}, true, false},
      {"it is not known which bit is marked", {}, {SetBit(13), unknown}, {}, false, false},
      {"only another bit is marked", {}, {SetBit(12)}, {}, false, false},
  };
  for (const auto& row : rows) {
    Observed observed;
    observed.Chain(Nat("KUBE-SERVICES"))
        .Chain(Nat("OUTPUT"), {JumpTo("KUBE-SERVICES", "kubernetes service portals")})
        .Chain(Nat("KUBE-MARK-MASQ"), row.mark_masq)
        .Chain(Nat("KUBE-POSTROUTING"), row.postrouting)
        .Chain(kFirewall, row.firewall);
    const Diff diff = ComputeDiff(Legacy({.masquerade = 13, .drop = 14}), observed.snapshot());
    ASSERT_EQ(absl::c_linear_search(Conditions(diff), "DropBitConflict"), row.conflict) << row.name;
    if (!row.conflict) continue;
    for (const std::string& operation : Operations(diff)) {
      EXPECT_THAT(operation, AnyOf(HasSubstr("HINT"), HasSubstr("CANARY"))) << row.name;
    }
    EXPECT_EQ(absl::StrContains(diff.findings[0].message, "KUBE-FIREWALL drops them"), row.dropped)
        << row.name;
    EXPECT_THAT(
        Conditions(ComputeDiff(Legacy({.masquerade = 13, .drop = 15}), observed.snapshot())),
        Not(Contains("DropBitConflict")))
        << row.name;
  }
}

// ---- what stays ----

TEST(DiffTest, WhatALivingKubeProxyUsesIsItsOwnAndNotStale) {
  Observed observed = Made(Legacy());
  observed.Chain(Nat("KUBE-SERVICES"))
      .Chain(Filter("KUBE-FIREWALL", Family::kIPv6), {DropMarked(15)});
  const Diff diff = ComputeDiff(Cleanup(), observed.snapshot());
  EXPECT_THAT(Texts(diff.of_kube_proxy),
              ElementsAre(":KUBE-MARK-MASQ - [0:0]", HasSubstr("-A KUBE-MARK-MASQ"),
                          ":KUBE-POSTROUTING - [0:0]", Append(kReturn), Append(kXor),
                          Append(kMasquerade), HasSubstr("-j KUBE-POSTROUTING")));
  EXPECT_THAT(Texts(diff.stale),
              ElementsAre(HasSubstr("-A KUBE-FIREWALL"), ":KUBE-MARK-DROP - [0:0]",
                          HasSubstr("-A KUBE-MARK-DROP"), ":KUBE-KUBELET-CANARY - [0:0]",
                          ":KUBE-KUBELET-CANARY - [0:0]", ":KUBE-KUBELET-CANARY - [0:0]",
                          ":KUBE-FIREWALL - [0:0]", HasSubstr("-A KUBE-FIREWALL")));
  for (const ExistingItem& one : diff.of_kube_proxy) {
    EXPECT_THAT(one.reason,
                AnyOf(HasSubstr("kube-proxy's: it uses this chain too"), "stays with its chain"));
  }
  for (const ExistingItem& one : diff.stale) {
    EXPECT_THAT(one.reason, AnyOf(HasSubstr("stale, kept: "), "stays with its chain"));
  }
  // Its canary is not needed: its services show that it lives.
  EXPECT_THAT(ComputeDiff(Cleanup(), Made(Legacy()).snapshot()).of_kube_proxy, IsEmpty());
}

TEST(DiffTest, ListsAFamilyThatIsNoLongerManaged) {
  Observed observed = Made(Cleanup());
  observed.Chain(Mangle("KUBE-IPTABLES-HINT", Family::kIPv6));
  const Diff diff = ComputeDiff(Cleanup(), observed.snapshot());
  EXPECT_THAT(Operations(diff), IsEmpty());
  ASSERT_THAT(Texts(diff.stale), ElementsAre(":KUBE-IPTABLES-HINT - [0:0]"));
  EXPECT_THAT(diff.stale[0].reason, HasSubstr("--ip-families"));
}

TEST(DiffTest, TouchesNothingInModeOff) {
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  Observed observed = Made(Legacy());
  observed.Chain(Filter("KUBE-FIREWALL"), {BareDrop("block incoming localnet connections")});
  const Diff diff = ComputeDiff(off, observed.snapshot());
  EXPECT_THAT(Operations(diff), IsEmpty());
  EXPECT_THAT(Conditions(diff), ElementsAre("DamagedRule"));
  EXPECT_THAT(diff.stale, Not(IsEmpty()));
}

TEST(DiffTest, ATransactionHoldsOnlyTheFamiliesAskedFor) {
  const PolicyInput both = Wanting(Mode::kLegacy, netlink::kFamilies, {});
  const Diff diff = ComputeDiff(both, {});
  constexpr Family kIPv6Only[] = {Family::kIPv6};
  const netlink::Transaction transaction = ToTransaction(diff.changes, 7, kIPv6Only);
  EXPECT_EQ(transaction.generation, 7U);
  EXPECT_FALSE(transaction.empty());
  for (const netlink::Operation& operation : transaction.operations) {
    EXPECT_EQ(netlink::ChainOf(operation).family, Family::kIPv6);
  }
}

// ---- the reasons in a diff, and the native table in it ----

TEST(DiffReasonsTest, ExplainsTheRemovalOfADamagedOrMisplacedRule) {
  const std::pair<const char*, std::vector<RuleContent>> rows[] = {
      {"damaged: it lost its match", {BareReturn(), kR, kX, kM}},
      {"duplicate", {kR, kR, kX, kM}},
      {"comes after a rule that may decide first", {kR, ForeignAcceptAll(), kX, kM}},
      {"is out of order", {kX, kR, kM}},
  };
  for (const auto& [reason, rules] : rows) {
    Observed observed = Made(Legacy());
    observed.Chain(Nat("KUBE-POSTROUTING"), rules);
    const Diff diff = ComputeDiff(Legacy(), observed.snapshot());
    int deleted = 0;
    for (const Change& change : diff.changes) {
      if (!std::holds_alternative<netlink::DeleteRule>(change.operation)) continue;
      EXPECT_EQ(change.reason, reason);
      ++deleted;
    }
    EXPECT_GE(deleted, 1) << reason;
  }
}

// transaction.h: the number of what is appended is 0.
TEST(DiffReasonsTest, NumbersOnlyWhatIsInserted) {
  int appended = 0;
  for (const Change& change : ComputeDiff(Legacy(), {}).changes) {
    const auto* add = std::get_if<netlink::AddRule>(&change.operation);
    if (add == nullptr) continue;
    EXPECT_EQ(add->number, 0) << netlink::ToString(change.operation);
    ++appended;
  }
  EXPECT_GT(appended, 0);
}

TEST(DiffReasonsTest, ARemovedRuleIsNotStaleAndOneThatStaysIs) {
  Observed replaced = Made(Legacy());
  replaced.Chain(Nat("KUBE-MARK-MASQ"), {SetBit(20), SetBit(14)});
  EXPECT_THAT(ComputeDiff(Legacy(), replaced.snapshot()).stale, IsEmpty());
  Observed stays = Made(Cleanup());
  stays.Chain(Filter("KUBE-FIREWALL"), {DropMartians(0), DropMarked(15), DropMartians(0)});
  const Diff diff = ComputeDiff(Cleanup(), stays.snapshot());
  ASSERT_EQ(diff.changes.size(), 1);
  EXPECT_EQ(diff.changes[0].reason, "duplicate");
  ASSERT_EQ(diff.stale.size(), 1);
  EXPECT_THAT(diff.stale[0].text, HasSubstr("--mark 0x8000/0x8000 -j DROP"));
  EXPECT_EQ(diff.stale[0].reason, "stale, kept: not part of cleanup mode (mark bit 15)");
  // As the first of its chain, too.
  stays.Chain(Filter("KUBE-FIREWALL"), {DropMarked(15), DropMartians(0)});
  EXPECT_EQ(ComputeDiff(Cleanup(), stays.snapshot()).stale.size(), 1);
}

TEST(DiffReasonsTest, NamesTheOwnerOfEachItemInModeOff) {
  Observed observed = Made(Legacy());
  observed.Chain(Nat("KUBE-SERVICES"));
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  std::map<std::string, std::string> reasons;
  const Diff diff = ComputeDiff(off, observed.snapshot());
  for (const auto* items : {&diff.stale, &diff.of_kube_proxy}) {
    for (const ExistingItem& one : *items) reasons[one.chain.name + " " + one.text] = one.reason;
  }
  EXPECT_THAT(reasons["KUBE-FIREWALL :KUBE-FIREWALL - [0:0]"],
              HasSubstr("kube-proxy's: it uses this chain too; "));
  EXPECT_THAT(reasons["KUBE-IPTABLES-HINT :KUBE-IPTABLES-HINT - [0:0]"],
              HasSubstr("stale, kept: --make-iptables-util-chains=false; "));
  EXPECT_EQ(reasons["INPUT -A INPUT -j KUBE-FIREWALL"], "kube-proxy's: it uses this chain too");
}

// "put", "remove", "in place", "stale": each that holds.
std::string WhatBecomesOfNative(const Diff& diff) {
  std::string text;
  for (const Change& change : diff.changes) {
    if (!IsNative(change)) continue;
    text += std::holds_alternative<netlink::PutNativeTable>(change.operation) ? "put" : "remove";
    EXPECT_NE(change.reason, "");
  }
  for (const ExistingItem& one : diff.in_place) text += IsNative(one) ? "in place" : "";
  for (const ExistingItem& one : diff.stale) {
    if (!IsNative(one)) continue;
    text += "stale";
    EXPECT_THAT(one.reason, HasSubstr("stale, kept: "));
  }
  return text;
}

TEST(DiffReasonsTest, KeepsANativeTableWhereTheMartianRuleCannotExist) {
  const netlink::ObservedNativeTable native = {.counters = {.packets = 7}};
  Observed unhooked = Made(Cleanup());
  unhooked.Chain(Filter("OUTPUT"), {}, /*hooked=*/false);
  EXPECT_EQ(WhatBecomesOfNative(ComputeDiff(Cleanup(), unhooked.Native(native).snapshot())),
            "stale");
  EXPECT_EQ(WhatBecomesOfNative(ComputeDiff(Cleanup(), Made(Cleanup()).Native(native).snapshot())),
            "remove");
  const PolicyInput off = Wanting(Mode::kOff, kIPv4Only, {});
  EXPECT_EQ(WhatBecomesOfNative(ComputeDiff(off, Observed().Native(native).snapshot())), "stale");
  EXPECT_EQ(WhatBecomesOfNative(ComputeDiff(Legacy(), Made(Legacy()).Native(native).snapshot())),
            "remove");
}

TEST(DiffReasonsTest, KeepsANativeTableUntilMartiansCertainlyReachTheRule) {
  const RuleContent jump = JumpTo("KUBE-FIREWALL");
  const struct {
    const char* name;
    ChainId chain;
    std::vector<RuleContent> rules;
    uint32_t dormant;
    const char* native;
  } rows[] = {
      {"all are accepted above", Filter("INPUT"), {ForeignAcceptAll(), jump}, 0, "stale"},
      {"some may be accepted above", Filter("INPUT"), {ForeignAccept(), jump}, 0, "stale"},
      {"a chain above was not read", Filter("INPUT"), {JumpTo("OTHER"), jump}, 0, "stale"},
      {"they are logged above", Filter("INPUT"), {ForeignLog(), jump}, 0, "remove"},
      {"the jump is put above", Filter("INPUT"), {ForeignAccept()}, 0, "remove"},
      {"the rule is put above", kFirewall, {ForeignAccept(), DropMartians(0)}, 0, "remove"},
      {"the table is woken", Filter("INPUT"), {jump}, netlink::kTableDormant, "remove"},
      {"the table is another program's and dormant",
       Filter("INPUT"),
       {jump},
       netlink::kTableDormant | netlink::kTableOwned,
       "stale"},
  };
  for (const auto& row : rows) {
    netlink::Snapshot snapshot = Made(Cleanup()).Chain(row.chain, row.rules).snapshot();
    snapshot.native = netlink::ObservedNativeTable{};
    snapshot.chains[Filter("OTHER")] = {};  // asked for without its rules
    if (row.dormant != 0) snapshot.dormant[{Family::kIPv4, row.chain.table}] = row.dormant;
    EXPECT_EQ(WhatBecomesOfNative(ComputeDiff(Cleanup(), snapshot)), row.native) << row.name;
  }
}

TEST(DiffReasonsTest, OnlyTheNativeTableIsNative) {
  EXPECT_TRUE(IsNative(Filter(std::string(kNativeTable))));
  EXPECT_FALSE(IsNative(Filter(std::string(kNativeTable), Family::kIPv6)));
  EXPECT_FALSE(IsNative(Nat(std::string(kNativeTable))));
  EXPECT_FALSE(IsNative(Filter("KUBE-FIREWALL")));
  const Diff diff = ComputeDiff(Cleanup(), Made(Cleanup()).Native().snapshot());
  EXPECT_EQ(diff.changes.size(), 1U);
  EXPECT_THAT(WithoutNative(diff.changes), IsEmpty());
}

const RuleSupport kNoXt = {.xt = false, .reason = "no xt"};
PolicyInput Hinting(Mode mode, HintPolicy hint) {
  PolicyInput input = Wanting(mode, kIPv4Only);
  input.hint = hint;
  return input;
}
Ruleset WithoutXt(Mode mode, absl::Span<const Family> families) {
  return DesiredRuleset(Wanting(mode, families), kNoXt);
}
Diff DiffWithoutXt(Mode mode, const std::optional<netlink::ObservedNativeTable>& native = {},
                   HintPolicy hint = HintPolicy::kUsable) {
  return ComputeDiff(Hinting(mode, hint), {.chains = {}, .native = native}, kNoXt);
}

TEST(DiffReasonsTest, PutsTheNativeTableUnlessItIsInPlace) {
  netlink::ObservedNativeTable native;
  EXPECT_EQ(WhatBecomesOfNative(DiffWithoutXt(Mode::kCleanup, native)), "in place");
  EXPECT_EQ(WhatBecomesOfNative(DiffWithoutXt(Mode::kCleanup)), "put");
  native.altered = true;
  EXPECT_EQ(WhatBecomesOfNative(DiffWithoutXt(Mode::kCleanup, native)), "put");
}

TEST(DiffReasonsTest, WantsTheNativeTableForIPv4OnlyAndNothingInModeOff) {
  const Family six[] = {Family::kIPv6};
  EXPECT_TRUE(WithoutXt(Mode::kCleanup, kIPv4Only).native.has_value());
  EXPECT_FALSE(WithoutXt(Mode::kCleanup, six).native.has_value());
  EXPECT_FALSE(WithoutXt(Mode::kOff, kIPv4Only).native.has_value());
  EXPECT_THAT(DesiredRuleset(Hinting(Mode::kOff, HintPolicy::kAlways), kNoXt).chains, IsEmpty());
  EXPECT_EQ(DesiredRuleset(Hinting(Mode::kLegacy, HintPolicy::kAlways), kNoXt).chains.size(), 1);
}

TEST(DiffReasonsTest, ReportsWhatIsNotPossibleWhereIptablesCanHoldNoRule) {
  const Diff legacy = DiffWithoutXt(Mode::kLegacy);
  ASSERT_THAT(Conditions(legacy), ElementsAre("LegacyModeImpossible"));
  EXPECT_EQ(legacy.findings[0].chain, Nat("KUBE-MARK-MASQ"));
  const Diff cleanup = DiffWithoutXt(Mode::kCleanup);
  ASSERT_THAT(Conditions(cleanup), ElementsAre("NativeProtection"));
  EXPECT_EQ(cleanup.findings[0].chain, Mangle("KUBE-IPTABLES-HINT"));
  EXPECT_THAT(cleanup.findings[0].message, HasSubstr("no hint leads other programs"));
  const Diff always = DiffWithoutXt(Mode::kCleanup, {}, HintPolicy::kAlways);
  EXPECT_THAT(always.findings[0].message, HasSubstr("the hint is made anyway"));
}

TEST(DiffReasonsTest, TheNativeTableIsInTheTransactionOfIPv4) {
  const Family six[] = {Family::kIPv6};
  const Diff diff = DiffWithoutXt(Mode::kCleanup);
  const auto operations = ToTransaction(diff.changes, 1, kIPv4Only).operations;
  EXPECT_TRUE(std::any_of(operations.begin(), operations.end(), netlink::IsNative));
  EXPECT_THAT(ToTransaction(diff.changes, 1, six).operations, IsEmpty());
}

// The metric `findings` has a series for each of them.
TEST(DiffReasonsTest, EachConditionIsListedOnceAndHasANameOfItsOwn) {
  const absl::Span<const ConditionRow> rows = ::kipt::agent::Conditions();
  ASSERT_EQ(rows.size(), static_cast<size_t>(Condition::kWriteRefused) + 1);
  std::set<absl::string_view> names;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].condition, static_cast<Condition>(i));
    EXPECT_EQ(ConditionName(rows[i].condition), rows[i].name);
    EXPECT_EQ(SeverityOf(rows[i].condition), rows[i].severity);
    Finding finding = {.condition = rows[i].condition, .chain = {}, .message = {}};
    EXPECT_EQ(NeedsAttention(finding), rows[i].severity != Severity::kInfo);
    finding.repaired = true;
    EXPECT_FALSE(NeedsAttention(finding));
    names.insert(rows[i].name);
  }
  EXPECT_EQ(names.size(), rows.size());
}

}  // namespace
}  // namespace kipt::agent::diff_test
