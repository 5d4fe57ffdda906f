// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/foreign_rules.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/surveyed.h"

namespace kipt::agent::foreign_rules_test {
namespace {

using netlink::ObservedRule;

// "-p N -j DROP" with the handle N.
ObservedRule Dropping(uint64_t number) {
  ObservedRule rule = Surveyed(absl::StrCat("-p ", number, " -j DROP"));
  rule.handle = number;
  return rule;
}

class ForeignRulesTest : public ::testing::Test {
 protected:
  void Check(std::vector<ObservedRule> rules, bool same_handles = true) {
    netlink::Snapshot snapshot;
    snapshot.chains[Filter("INPUT")] = {.hooked = true, .rules = std::move(rules)};
    const Family families[] = {Family::kIPv4};
    rules_.Note(snapshot, families, [same_handles](Family) { return same_handles; });
  }
  std::vector<std::string> News() {
    std::vector<std::string> texts;
    for (const ForeignRule& rule : rules_.news()) texts.push_back(rule.text);
    rules_.Take();
    return texts;
  }
  uint64_t Count() {
    uint64_t count = 0;
    for (const auto& [kind, each] : rules_.counts()) count += each;
    rules_.Take();
    return count;
  }

  ForeignRules rules_{{}};
};

TEST_F(ForeignRulesTest, EachKindIsKnownAndOthersAreNone) {
  const ChainId prerouting = Nat("PREROUTING");
  using enum ForeignRuleKind;
  const struct {
    ChainId chain;
    const char* rule;
    std::optional<ForeignRuleKind> kind;
    uint32_t marks_set = 0;  // of what iptables has no word for
  } rows[] = {
      {Filter("INPUT"), "-j DROP", kDrop},
      {Filter("INPUT"), "-p tcp -j DROP", kDrop},
      {Filter("INPUT"), "-j REJECT", kReject},
      {prerouting, "-j DNAT --to-destination 10.0.0.1", kDnat},
      {prerouting, "[nft nat]", kDnat},
      {Nat("POSTROUTING"), "[nft nat]", std::nullopt},
      {prerouting, "-j REDIRECT --to-ports 1", kRedirect},
      {prerouting, "-j NETMAP --to 10.0.0.0/8", kRedirect},
      {prerouting, "-j TPROXY --on-port 1", kRedirect},
      {prerouting, "[nft redir]", kRedirect},
      {prerouting, "[nft tproxy]", kRedirect},
      {Filter("INPUT"), "-j MARK --set-xmark 0x1/0xffffffff", kMark},
      {Filter("INPUT"), "-j MARK --set-xmark 0x1/0x1", std::nullopt},
      {Filter("INPUT"), "-p tcp -j MARK --set-xmark 0xca6c/0xffffffff", kMark},
      {Filter("INPUT"), "-p tcp -j MARK --set-xmark 0x4000/0x4000", std::nullopt},
      {Filter("INPUT"), "-j CONNMARK --restore-mark", kMark},
      {Filter("INPUT"), "[nft meta]", kMark, netlink::kAllMarks},
      {Filter("INPUT"), "-j NFQUEUE", std::nullopt, netlink::kAllMarks},
      {Filter("INPUT"), "-j CNI", std::nullopt},
      {Filter("INPUT"), "-j RETURN", std::nullopt},
      {Filter("INPUT"), "-j ACCEPT", std::nullopt},
  };
  for (const auto& row : rows) {
    netlink::SurveyRule rule = Surveyed(row.rule, "CNI");
    if (row.marks_set != 0) rule = Surveyed(row.rule, row.marks_set, {});
    EXPECT_EQ(ForeignKindOf(row.chain, rule), row.kind) << row.rule;
  }
}

TEST_F(ForeignRulesTest, ARulesTextHasABound) {
  Check({Dropping(1)});
  ObservedRule longest = {
      .content = netlink::OpaqueRule{.text = std::string(60000, 'x'), .target = "DROP"}};
  longest.handle = 2;
  Check({Dropping(1), longest});
  ASSERT_EQ(rules_.news().size(), 1U);
  EXPECT_EQ(rules_.news()[0].text, std::string(512, 'x') + "...");
}

TEST_F(ForeignRulesTest, WhatWasThereFirstIsNotNewAndWhatComesIsNewOnce) {
  Check({Dropping(1)});
  EXPECT_THAT(News(), IsEmpty());
  Check({Dropping(1), Dropping(2)});
  EXPECT_THAT(News(), ElementsAre("-p 2 -j DROP"));
  Check({Dropping(1), Dropping(2)});
  EXPECT_THAT(News(), IsEmpty());
  EXPECT_EQ(rules_.present(), 2U);
}

TEST_F(ForeignRulesTest, ARuleThatIsMadeAgainIsNotNew) {
  Check({});
  Check({Dropping(2)});
  EXPECT_THAT(News(), SizeIs(1));
  Check({});
  ObservedRule again = Dropping(2);
  again.handle = 7;
  Check({again});
  EXPECT_THAT(News(), IsEmpty());
  // A reload of a whole table, in one commit.
  again.handle = 9;
  Check({again, Dropping(3)}, /*same_handles=*/false);
  EXPECT_THAT(News(), ElementsAre("-p 3 -j DROP"));
}

TEST_F(ForeignRulesTest, AHandleOfATableThatWasMadeAnewIsAnotherRule) {
  Check({Dropping(1)});
  ObservedRule other = Dropping(5);
  other.handle = 1;
  Check({other}, /*same_handles=*/false);
  EXPECT_THAT(News(), ElementsAre("-p 5 -j DROP"));
}

TEST_F(ForeignRulesTest, ExpectedOnesAreNeitherNewNorCounted) {
  const auto expected = ParseExpectedRules("filter/INPUT -p 1*\nfilter/INPUT -p 2 -j DROP\n");
  rules_ = ForeignRules(*expected);
  Check({});
  for (int i = 0; i < 2; ++i) Check({Dropping(1), Dropping(11), Dropping(2), Dropping(3)});
  EXPECT_THAT(News(), ElementsAre("-p 3 -j DROP"));
  EXPECT_EQ(rules_.present(), 1U);
  rules_ = ForeignRules(*ParseExpectedRules("filter/INPUT"));
  Check({});
  Check({Dropping(1)});
  EXPECT_THAT(News(), IsEmpty());
  EXPECT_EQ(rules_.present(), 0U);
}

TEST_F(ForeignRulesTest, OfAFloodSomeAreNamedAndAllAreCounted) {
  constexpr uint64_t kMany = 100'000;
  std::vector<ObservedRule> many;
  for (uint64_t i = 1; i <= kMany; ++i) many.push_back(Dropping(i));
  Check({});
  Check(many);
  EXPECT_THAT(rules_.news(), SizeIs(ForeignRules::kMostKnown));
  EXPECT_EQ(rules_.present(), kMany);
  EXPECT_EQ(Count(), kMany);
  // Above the others, and below.
  many.insert(many.begin(), Dropping(kMany + 1));
  many.push_back(Dropping(kMany + 2));
  Check(many);
  EXPECT_EQ(Count(), 2U);
  Check({});
  Check({Dropping(kMany + 3)});
  EXPECT_THAT(News(), ElementsAre("-p 100003 -j DROP"));
}

// On iptables-legacy no handle stays the same.
TEST_F(ForeignRulesTest, WhatIsForgottenMakesNoRuleNewThatStays) {
  Check({Dropping(0)}, /*same_handles=*/false);
  uint64_t count = 0;
  for (uint64_t i = 1; i <= 5'000; ++i) {
    Check({Dropping(0), Dropping(i)}, /*same_handles=*/false);
    count += Count();
  }
  EXPECT_EQ(count, 5'000U);
  Check({Dropping(0), Dropping(1)}, /*same_handles=*/false);
  EXPECT_EQ(Count(), 1U) << "what is gone is not remembered for ever";
}

TEST_F(ForeignRulesTest, FamiliesBeginOneByOne) {
  Check({});
  netlink::Snapshot snapshot;
  snapshot.chains[Filter("INPUT", Family::kIPv6)] = {.hooked = true, .rules = {Dropping(1)}};
  const Family families[] = {Family::kIPv6};
  rules_.Note(snapshot, families, [](Family) { return true; });
  EXPECT_THAT(News(), IsEmpty()) << "the first check of IPv6";
}

// A chain that the agent makes is there at its second check only.
TEST_F(ForeignRulesTest, InAChainThatComesLaterRulesAreNew) {
  const Family families[] = {Family::kIPv4};
  rules_.Note(netlink::Snapshot(), families, [](Family) { return true; });
  Check({Dropping(1)});
  EXPECT_THAT(News(), SizeIs(1));
}

}  // namespace
}  // namespace kipt::agent::foreign_rules_test
