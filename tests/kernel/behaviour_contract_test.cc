// SPDX-License-Identifier: Apache-2.0
//
// What "in place" means, over the fake, nf_tables and legacy iptables alike: the same damage, the
// same neighbours, the same end.
#include <string>
#include <vector>

#include "agent/loop/reconciler.h"
#include "agent/policy/rule_forms.h"
#include "tests/kernel/backend_world.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::testing {
namespace {

using agent::Mode;
using netlink::Operation;
using netlink::Rule;

const ChainId kFirewall = Filter("KUBE-FIREWALL");
const ChainId kMarkMasq = Nat("KUBE-MARK-MASQ");
const ChainId kPostroutingRules = Nat("KUBE-POSTROUTING");

class BehaviourContractTest : public BackendContractTest {
 protected:
  agent::SyncReport Sync(Mode mode) {
    const netlink::Family ipv4[] = {netlink::Family::kIPv4};
    agent::SyncReport report =
        agent::Reconciler(&backend(), agent::SteadyClock()).Sync(Wanting(mode, ipv4, {}));
    EXPECT_THAT(report.FirstError(), IsOk());
    return report;
  }

  // Nothing is left to do, and the conditions that stay are these.
  void ExpectSettled(Mode mode, const std::vector<std::string>& conditions = {}) {
    const agent::SyncReport again = Sync(mode);
    EXPECT_THAT(again.applied, IsEmpty());
    EXPECT_EQ(Conditions(again), conditions);
  }

  static std::vector<std::string> Conditions(const agent::SyncReport& report) {
    std::vector<std::string> names;
    for (const agent::Finding& finding : report.plan.diff.findings) {
      names.emplace_back(agent::ConditionName(finding.condition));
    }
    return names;
  }

  // Replaces the rules of `chain` that are no one's but ours; opaque ones stay in front.
  void SetRules(const ChainId& chain, const std::vector<Rule>& rules) {
    std::vector<Operation> operations;
    const netlink::Snapshot snapshot = Read({chain});
    for (const netlink::ObservedRule& rule : snapshot.Find(chain)->rules) {
      if (rule.rule() == nullptr) continue;
      operations.emplace_back(netlink::DeleteRule{
          .chain = chain, .handle = rule.handle, .number = 0, .rule = *rule.rule()});
    }
    for (const Rule& rule : rules) operations.emplace_back(Append(chain, rule));
    ASSERT_THAT(Apply(std::move(operations)), IsOk());
  }

  static std::string Text(const Rule& rule) { return ToString(netlink::Family::kIPv4, rule); }
};

TEST_P(BehaviourContractTest, OneSyncOfAFreshNodeIsEnough) {
  for (const Mode mode : {Mode::kCleanup, Mode::kLegacy}) {
    EXPECT_FALSE(Sync(mode).applied.empty());
    ExpectSettled(mode);
  }
}

TEST_P(BehaviourContractTest, FlippingTheGateKeepsWhatLegacyModeMade) {
  Sync(Mode::kLegacy);
  const agent::SyncReport flipped = Sync(Mode::kCleanup);
  EXPECT_THAT(flipped.applied, IsEmpty());
  EXPECT_FALSE(flipped.plan.diff.stale.empty());
  ExpectSettled(Mode::kLegacy);
}

TEST_P(BehaviourContractTest, DuplicatesGoAndTheFirstStays) {
  Sync(Mode::kLegacy);
  SetRules(Filter("INPUT"), {JumpTo("KUBE-FIREWALL"), return_, JumpTo("KUBE-FIREWALL")});
  SetRules(kMarkMasq, {agent::SetBit(14), agent::SetBit(14), agent::SetBit(14)});
  Sync(Mode::kLegacy);
  EXPECT_THAT(Rules(Filter("INPUT")), ElementsAre(Text(JumpTo("KUBE-FIREWALL")), Text(return_)));
  EXPECT_THAT(Rules(kMarkMasq), ElementsAre(Text(agent::SetBit(14))));
  ExpectSettled(Mode::kLegacy);
}

TEST_P(BehaviourContractTest, AJumpIsNeverMovedAndAMissingOneComesFirst) {
  Sync(Mode::kCleanup);
  SetRules(Filter("INPUT"), {return_, JumpTo("KUBE-FIREWALL")});
  SetRules(Filter("OUTPUT"), {return_});
  Sync(Mode::kCleanup);
  EXPECT_THAT(Rules(Filter("INPUT")), ElementsAre(Text(return_), Text(JumpTo("KUBE-FIREWALL"))));
  EXPECT_THAT(Rules(Filter("OUTPUT")), ElementsAre(Text(JumpTo("KUBE-FIREWALL")), Text(return_)));
  ExpectSettled(Mode::kCleanup);
}

TEST_P(BehaviourContractTest, AShadowedJumpIsAFinding) {
  Sync(Mode::kCleanup);
  SetRules(Filter("INPUT"), {BareDrop("lockdown"), JumpTo("KUBE-FIREWALL")});
  ExpectSettled(Mode::kCleanup, {"ShadowedJump"});
}

TEST_P(BehaviourContractTest, AForeignRuleInOurChainStaysBehindOurs) {
  Sync(Mode::kLegacy);
  SetRules(kFirewall, {});
  world().AppendOpaqueJump(kFirewall.name);
  Sync(Mode::kLegacy);
  EXPECT_THAT(Rules(kFirewall), ElementsAre(Text(agent::DropMartians(0)),
                                            Text(agent::DropMarked(15)), HasSubstr("-j OTHER")));
  ExpectSettled(Mode::kLegacy);
}

TEST_P(BehaviourContractTest, ADropOfKubeletsThatLostItsMatchIsReplaced) {
  Sync(Mode::kLegacy);
  SetRules(kFirewall,
           {agent::DropMartians(0), BareDrop("kubernetes firewall for dropping marked packets")});
  EXPECT_THAT(Conditions(Sync(Mode::kLegacy)), ElementsAre("DamagedRule"));
  EXPECT_THAT(Rules(kFirewall),
              ElementsAre(Text(agent::DropMartians(0)), Text(agent::DropMarked(15))));
  ExpectSettled(Mode::kLegacy);
}

TEST_P(BehaviourContractTest, AnAdminsDropOfEverythingIsReportedAndStays) {
  Sync(Mode::kCleanup);
  SetRules(kFirewall, {agent::DropMartians(0), BareDrop("lockdown")});
  ExpectSettled(Mode::kCleanup, {"ForeignDropsEverything"});
}

TEST_P(BehaviourContractTest, ARuleThatClearsTheMarkAgainIsReportedAndStays) {
  Sync(Mode::kLegacy);
  netlink::Rule clear;
  clear.target = netlink::SetMark{.value = 0};
  SetRules(kMarkMasq, {agent::SetBit(14), clear});
  ExpectSettled(Mode::kLegacy, {"VoidedMark"});
  SetRules(kMarkMasq, {clear, agent::SetBit(14)});
  ExpectSettled(Mode::kLegacy);
}

TEST_P(BehaviourContractTest, AReturnThatLostItsMatchIsReplacedInOrder) {
  Sync(Mode::kLegacy);
  SetRules(kPostroutingRules, {BareReturn(), agent::ClearBit(14), agent::MasqueradeAll(0)});
  Sync(Mode::kLegacy);
  EXPECT_THAT(Rules(kPostroutingRules),
              ElementsAre(Text(agent::ReturnUnmarked(14)), Text(agent::ClearBit(14)),
                          Text(agent::MasqueradeAll(0))));
  ExpectSettled(Mode::kLegacy);
}

TEST_P(BehaviourContractTest, AnOlderFormIsReplacedOnlyWhereNoKubeProxyKeepsIt) {
  Sync(Mode::kLegacy);
  SetRules(kPostroutingRules, {agent::MasqueradeMarked(14)});
  Sync(Mode::kLegacy);
  EXPECT_THAT(Rules(kPostroutingRules), SizeIs(3));

  SetRules(kPostroutingRules, {agent::MasqueradeMarked(14)});
  ASSERT_THAT(Apply({netlink::CreateChain{Nat("KUBE-SERVICES")}}), IsOk());
  ExpectSettled(Mode::kLegacy, {"OlderFormKept"});
}

TEST_P(BehaviourContractTest, AnotherBitIsReplacedOnlyWhereNoKubeProxyKeepsIt) {
  Sync(Mode::kLegacy);
  SetRules(kMarkMasq, {agent::SetBit(20)});
  Sync(Mode::kLegacy);
  EXPECT_THAT(Rules(kMarkMasq), ElementsAre(Text(agent::SetBit(14))));

  SetRules(kMarkMasq, {agent::SetBit(20)});
  ASSERT_THAT(Apply({netlink::CreateChain{Mangle("KUBE-PROXY-CANARY")}}), IsOk());
  ExpectSettled(Mode::kLegacy, {"BitConflict"});
}

TEST_P(BehaviourContractTest, WhatKubeProxyWipedIsRefilled) {
  Sync(Mode::kLegacy);
  ASSERT_THAT(Apply({netlink::CreateChain{Nat("KUBE-SERVICES")}}), IsOk());
  SetRules(kFirewall, {agent::DropMartians(0)});
  Sync(Mode::kLegacy);
  EXPECT_THAT(Rules(kFirewall),
              ElementsAre(Text(agent::DropMartians(0)), Text(agent::DropMarked(15))));
  ExpectSettled(Mode::kLegacy);
}

TEST_P(BehaviourContractTest, ModeOffTouchesNothing) {
  Sync(Mode::kLegacy);
  SetRules(kFirewall, {});
  ExpectSettled(Mode::kOff);
  EXPECT_THAT(Rules(kFirewall), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Backends, BehaviourContractTest, ::testing::ValuesIn(AllSubjects()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace kipt::testing
