// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "agent/loop/round.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

PolicyInput Legacy() {
  const Family ipv4[] = {Family::kIPv4};
  return Wanting(Mode::kLegacy, ipv4, {});
}

// What is damaged where `damaged` took the place of a chain of the legacy mode's.
std::vector<DamagedItem> Damage(const netlink::ChainId& chain,
                                const std::vector<RuleContent>& rules) {
  Observed observed = Made(Legacy());
  observed.Chain(chain, rules);
  return DamageOf(ComputeDiff(Legacy(), observed.snapshot()).changes);
}

TEST(IncidentTest, AJumpThatIsGoneIsOneItem) {
  EXPECT_THAT(Damage(Filter("INPUT"), {}),
              ElementsAre(DamagedItem{Filter("INPUT"), DamageKind::kJumpMissing,
                                      "-A INPUT -j KUBE-FIREWALL"}));
}

TEST(IncidentTest, ARuleThatIsGoneIsOneItem) {
  const std::vector<DamagedItem> damage = Damage(Nat("KUBE-MARK-DROP"), {});
  ASSERT_THAT(damage, SizeIs(1));
  EXPECT_EQ(damage[0].kind, DamageKind::kRuleMissing);
  EXPECT_THAT(damage[0].text, HasSubstr("-j MARK --set-xmark 0x8000/0x8000"));
}

TEST(IncidentTest, ADuplicateIsUnwanted) {
  const std::vector<DamagedItem> damage =
      Damage(Filter("INPUT"), {JumpTo("KUBE-FIREWALL"), JumpTo("KUBE-FIREWALL")});
  ASSERT_THAT(damage, SizeIs(1));
  EXPECT_EQ(damage[0].kind, DamageKind::kRuleUnwanted);
}

TEST(IncidentTest, ARuleBelowWhatDecidesBeforeItIsMisplaced) {
  const std::vector<DamagedItem> damage =
      Damage(Nat("KUBE-MARK-DROP"), {ForeignAcceptAll(), SetBit(15)});
  ASSERT_THAT(damage, SizeIs(1));
  EXPECT_EQ(damage[0].kind, DamageKind::kRuleMisplaced);
}

TEST(IncidentTest, ATableThatSleepsIsOneItem) {
  EXPECT_THAT(DamageOf({{{netlink::WakeTable{.chain = Filter("INPUT")}, "why"}}}),
              ElementsAre(DamagedItem{Filter("INPUT"), DamageKind::kTableDormant, "*filter"}));
}

TEST(IncidentTest, AChainThatIsGoneIsOneItemWhateverItHeld) {
  const std::vector<Change> changes = ComputeDiff(Legacy(), {}).changes;
  size_t chains = 0;
  size_t jumps = 0;
  for (const DamagedItem& item : DamageOf(changes)) {
    chains += item.kind == DamageKind::kChainMissing ? 1 : 0;
    jumps += item.kind == DamageKind::kJumpMissing ? 1 : 0;
    EXPECT_THAT(item.kind, AnyOf(DamageKind::kChainMissing, DamageKind::kJumpMissing));
  }
  EXPECT_EQ(chains, DesiredRuleset(Legacy()).chains.size());
  EXPECT_EQ(jumps, DesiredRuleset(Legacy()).jumps.size());
}

TEST(IncidentTest, TheLineTellsWhatWhoHowLongAndWhatElseIsGone) {
  Incident incident = {
      .damage = {{Filter("INPUT"), DamageKind::kJumpMissing, "-A INPUT -j KUBE-FIREWALL"}},
      .by = {.writers = {{.pid = 4242,
                          .command = "iptables-restor",
                          .parent_pid = 4200,
                          .parent_command = "firewalld"}},
             .others = false},
      .lost_jumps = {},
      .latency = absl::Microseconds(12345),
      .applying = absl::Microseconds(12000)};
  const std::string repaired =
      "Repaired in 12345 us (writing 12000 us) damage by iptables-restor (PID 4242; started by "
      "firewalld, PID 4200): ip filter jump_missing \"-A INPUT -j KUBE-FIREWALL\"";
  EXPECT_EQ(ToString(incident), repaired);
  incident.lost_jumps = {{Nat("PREROUTING"), "CNI-HOSTPORT-DNAT"}, {Nat("POSTROUTING"), "mine"}};
  EXPECT_EQ(ToString(incident),
            repaired +
                "; removed with it, and missing until their owners restore them: ip nat PREROUTING "
                "-> CNI-HOSTPORT-DNAT (the CNI plugin portmap), ip nat POSTROUTING -> mine");
}

TEST(IncidentTest, KindsTriggersAndPhasesHaveNames) {
  const std::pair<DamageKind, std::string> kinds[] = {
      {DamageKind::kChainMissing, "chain_missing"}, {DamageKind::kJumpMissing, "jump_missing"},
      {DamageKind::kRuleMissing, "rule_missing"},   {DamageKind::kRuleMisplaced, "rule_misplaced"},
      {DamageKind::kRuleUnwanted, "rule_unwanted"}, {DamageKind::kTableDormant, "table_dormant"}};
  for (const auto& [kind, name] : kinds) EXPECT_EQ(DamageKindName(kind), name);
  const std::pair<Trigger, std::string> triggers[] = {{Trigger::kStart, "start"},
                                                      {Trigger::kChange, "change"},
                                                      {Trigger::kTimer, "timer"},
                                                      {Trigger::kRetry, "retry"},
                                                      {Trigger::kConfig, "config"}};
  for (const auto& [trigger, name] : triggers) EXPECT_EQ(TriggerName(trigger), name);
  const std::pair<FamilyPhase, std::string> phases[] = {{FamilyPhase::kPending, "pending"},
                                                        {FamilyPhase::kInPlace, "in place"},
                                                        {FamilyPhase::kDegraded, "degraded"},
                                                        {FamilyPhase::kObserved, "observed"},
                                                        {FamilyPhase::kFailed, "failed"}};
  for (const auto& [phase, name] : phases) EXPECT_EQ(FamilyPhaseName(phase), name);
}

TEST(IncidentTest, SeveralWritersAreSuspectsAndNoneIsSaid) {
  Incident incident;
  EXPECT_THAT(ToString(incident), HasSubstr("by a process that was not seen"));
  incident.by.writers = {{.pid = 1, .command = "a"}, {.pid = 2, .command = "b"}};
  EXPECT_THAT(ToString(incident), HasSubstr("by one of a"));
}

TEST(IncidentTest, ALineIsBoundedHoweverMuchIsGone) {
  Incident incident;
  for (int i = 0; i < 1000; ++i) {
    if (i == 12) EXPECT_THAT(ToString(incident), Not(HasSubstr("more")));
    incident.lost_jumps.push_back({Nat("PREROUTING"), "CALI-" + std::to_string(i)});
  }
  EXPECT_THAT(ToString(incident), HasSubstr("and 988 more"));
  EXPECT_LT(ToString(incident).size(), 1500);
}

}  // namespace
}  // namespace kipt::agent
