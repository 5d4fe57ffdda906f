// SPDX-License-Identifier: Apache-2.0
#include "netlink/reach.h"

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/support/matchers.h"

namespace kipt::netlink {
namespace {

ChainId Chain(const std::string& name) { return {Family::kIPv4, Table::kFilter, name}; }

OpaqueRule Verdict(bool unconditional, bool returns = false) {
  return {.unconditional = unconditional, .decides = true, .terminal = true, .returns = returns};
}
OpaqueRule To(const std::string& chain, bool unconditional = true, bool is_goto = false) {
  return {.jump = chain, .unconditional = unconditional, .decides = true, .terminal = is_goto};
}

struct Ruleset {
  std::string name;
  std::map<std::string, std::vector<OpaqueRule>> chains;
  // Whether no packet passes a jump to A, and whether every packet in A comes to B.
  bool stops = false;
  bool leads = false;
};

TEST(ReachTest, FollowsWhatEveryPacketDoes) {
  const Ruleset rows[] = {
      {"a verdict", {{"A", {Verdict(true)}}}, true},
      {"a verdict for some", {{"A", {Verdict(false)}}}},
      {"a return", {{"A", {Verdict(true, true), Verdict(true)}}}},
      {"a return for some", {{"A", {Verdict(false, true), Verdict(true)}}}},
      {"a verdict before the return", {{"A", {Verdict(true), Verdict(true, true)}}}, true},
      {"a verdict in another chain", {{"A", {To("B")}}, {"B", {Verdict(true)}}}, true, true},
      {"another chain for some", {{"A", {To("B", false)}}, {"B", {Verdict(true)}}}},
      {"a goto", {{"A", {To("B", true, true), Verdict(true)}}, {"B", {}}}, false, true},
      {"a goto to a verdict", {{"A", {To("B", true, true)}}, {"B", {Verdict(true)}}}, true, true},
      {"a goto for some, from where they come back",
       {{"A", {To("B", false, true), Verdict(true)}}, {"B", {}}}},
      {"a goto for some, from where they do not",
       {{"A", {To("B", false, true), Verdict(true)}}, {"B", {Verdict(true)}}},
       true},
      {"a return two chains on",
       {{"A", {To("B"), Verdict(true)}}, {"B", {Verdict(true, true)}}},
       true,
       true},
      {"by way of a third", {{"A", {To("C")}}, {"C", {Verdict(false), To("B")}}}, false, true},
      {"behind a third that keeps all", {{"A", {To("C"), To("B")}}, {"C", {Verdict(true)}}}, true},
      {"behind a goto", {{"A", {To("C", true, true), To("B")}}, {"C", {}}}},
      {"a circle", {{"A", {To("C")}}, {"C", {To("A"), To("B")}}}, false, true},
      {"a chain that was not read", {{"A", {To("C")}}}},
  };
  for (const Ruleset& row : rows) {
    SCOPED_TRACE(row.name);
    Snapshot snapshot;
    for (const auto& [name, rules] : row.chains) {
      for (const OpaqueRule& rule : rules) {
        snapshot.chains[Chain(name)].rules.push_back({.content = rule});
      }
    }
    Walk walk(snapshot);
    const ObservedRule jump = {.content = To("A")};
    EXPECT_EQ(walk.Stops(Chain("INPUT"), jump), row.stops);
    EXPECT_FALSE(walk.Stops(Chain("INPUT"), {.content = To("A", false)}));
    EXPECT_EQ(walk.Leads(Chain("A"), Chain("B")), row.leads);
  }
}

TEST(ReachTest, TellsAReturnFromADropAndBothFromARuleThatGoesOn) {
  const OpaqueRule log = {.unconditional = true, .decides = false, .terminal = false};
  const struct {
    std::string name;
    std::vector<std::variant<Rule, OpaqueRule>> rules;
    bool stops;
  } rows[] = {
      {"a drop", {Rule{.target = Drop{}}}, true},
      {"a return before it", {Rule{.target = Return{}}, Rule{.target = Drop{}}}, false},
      {"a log", {log}, false},
  };
  for (const auto& row : rows) {
    Snapshot snapshot;
    for (const auto& rule : row.rules) {
      snapshot.chains[Chain("A")].rules.push_back({.content = rule});
    }
    EXPECT_EQ(Walk(snapshot).Stops(Chain("INPUT"), {.content = To("A")}), row.stops) << row.name;
  }
}

TEST(ReachTest, AsksOfABaseChainForWhatComesBeforeAJumpAndOfAUserChainForAll) {
  const std::set<ChainId> read = {Chain("INPUT"), Chain("USER")};
  const auto asked_for = [&](const std::string& followed, const std::vector<OpaqueRule>& rules) {
    const std::vector<ChainQuery> queries = {
        {.chain = Chain("INPUT"), .follow = followed == "INPUT"},
        {.chain = Chain("USER"), .follow = followed == "USER"}};
    std::map<ChainId, ObservedChain> chains;
    for (const OpaqueRule& rule : rules) {
      chains[Chain(followed)].rules.push_back({.content = rule});
    }
    chains[Chain(followed == "USER" ? "INPUT" : "USER")].rules.push_back({.content = To("Z")});
    return ChainsOnTheWay(chains, queries, read);
  };
  EXPECT_THAT(asked_for("INPUT", {To("A")}), ElementsAre(Chain("A"))) << "the way may lead there";
  EXPECT_THAT(asked_for("INPUT", {To("A"), To("USER", false)}), ElementsAre(Chain("A")));
  EXPECT_THAT(asked_for("INPUT", {To("USER"), To("A")}), ElementsAre(Chain("Z"))) << "not after";
  EXPECT_THAT(asked_for("INPUT", {}), IsEmpty());
  EXPECT_THAT(asked_for("INPUT", {To("USER")}), ElementsAre(Chain("Z"))) << "and its own way";
  EXPECT_THAT(asked_for("USER", {To("A")}), ElementsAre(Chain("A")));
}

TEST(ReachTest, AsksForTheChainsBeforeTheJumpAndNoOthers) {
  const std::vector<ChainQuery> queries = {
      {.chain = Chain("INPUT"), .follow = true},
      {.chain = Chain("KUBE-FIREWALL"), .follow = true},
      {.chain = Chain("KUBE-SERVICES"), .with_rules = false},
      {.chain = Chain("OUTPUT")},
  };
  std::set<ChainId> read = {Chain("INPUT"), Chain("KUBE-FIREWALL"), Chain("OUTPUT")};
  std::map<ChainId, ObservedChain> chains;
  const auto put = [&](const std::string& chain, const std::vector<OpaqueRule>& rules) {
    for (const OpaqueRule& rule : rules) chains[Chain(chain)].rules.push_back({.content = rule});
  };
  put("INPUT", {To("KUBE-SERVICES"), To("SOME", false), To("A"), To("KUBE-FIREWALL"), To("AFTER")});
  put("KUBE-FIREWALL", {To("B"), Verdict(true), To("NEVER")});
  put("OUTPUT", {To("C"), To("KUBE-FIREWALL")});
  EXPECT_THAT(ChainsOnTheWay(chains, queries, read), ElementsAre(Chain("A"), Chain("B")));
  put("A", {To("D"), To("A")});
  read.insert({Chain("A"), Chain("B")});
  EXPECT_THAT(ChainsOnTheWay(chains, queries, read), ElementsAre(Chain("D")));
  read.insert(Chain("D"));
  EXPECT_THAT(ChainsOnTheWay(chains, queries, read), IsEmpty());
}

}  // namespace
}  // namespace kipt::netlink
