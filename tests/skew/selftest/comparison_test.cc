// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "tests/skew/matrix/judge.h"
#include "tests/support/matchers.h"

namespace kipt::skew::comparison_test {
namespace {

constexpr char kKubelet[] = "boot/kubelet-1.27/proxy-1.24/nft/kubelet";
constexpr char kAgent[] = "boot/kubelet-1.27/proxy-1.24/nft/agent";

CellReport Cell(const std::string& id, std::vector<StepReport> steps) {
  CellReport cell;
  cell.id = id;
  cell.actor = id == kKubelet ? "kubelet" : "agent";
  cell.side = id == kKubelet ? "a" : "b";
  cell.steps = std::move(steps);
  return cell;
}

Comparison Compare(std::vector<StepReport> kubelets, std::vector<StepReport> agents) {
  return CompareSides({Cell(kKubelet, std::move(kubelets)), Cell(kAgent, std::move(agents))});
}

StepReport Checked(Outcome outcome, Outcome sound,
                   const std::string& probe = "load-balancer-refused/tcp/ipv4") {
  Check check;
  check.probe.name = probe;
  check.result.outcome = outcome;
  check.sound = sound;
  return {.name = "a minute passes", .checks = {check}};
}

Comparison OfChecks(Outcome kubelets, Outcome agents) {
  return Compare({Checked(kubelets, Outcome::kDropped)}, {Checked(agents, Outcome::kDropped)});
}

TEST(CompareChecksTest, NamesWhatFaredWorse) {
  const Comparison result = OfChecks(Outcome::kDropped, Outcome::kReachedHost);
  EXPECT_THAT(result.worse,
              ElementsAre("agent is worse than kubelet in "
                          "boot/kubelet-1.27/proxy-1.24/nft/agent, after \"a minute passes\": "
                          "load-balancer-refused/tcp/ipv4 reached the host, with kubelet dropped"));
  EXPECT_EQ(result.compared.cells, 1U);
  EXPECT_EQ(result.compared.checks, 1U);
}

TEST(CompareChecksTest, ReportsNothingWhereItIsAsGoodOrBetter) {
  EXPECT_THAT(OfChecks(Outcome::kReachedHost, Outcome::kDropped).worse, IsEmpty());
  EXPECT_THAT(OfChecks(Outcome::kForwarded, Outcome::kForwarded).worse, IsEmpty());
}

TEST(CompareChecksTest, HoldsLettingThroughForWorseThanLosing) {
  EXPECT_THAT(OfChecks(Outcome::kLost, Outcome::kReachedHost).worse, SizeIs(1));
  EXPECT_THAT(OfChecks(Outcome::kReachedHost, Outcome::kLost).worse, IsEmpty());
}

TEST(CompareTest, TakesNothingForComparedThatOneOfThemWasNotAsked) {
  const Comparison other = Compare({Checked(Outcome::kDropped, Outcome::kDropped, "another")},
                                   {Checked(Outcome::kDropped, Outcome::kDropped)});
  EXPECT_THAT(other.worse, ElementsAre(HasSubstr("was not asked with kubelet")));
  EXPECT_EQ(other.compared.checks, 0U);
  const StepReport step = Checked(Outcome::kDropped, Outcome::kDropped);
  EXPECT_THAT(Compare({step, step}, {step}).worse,
              ElementsAre(HasSubstr("it has 1 steps, with kubelet 2")));
  EXPECT_THAT(Compare({step}, {{.name = "a minute passes"}}).worse,
              ElementsAre(HasSubstr("0 checks, with kubelet 1")));
}

TEST(CompareTest, CountsNoCellWithoutAKubeletAndLeavesBrokenOnesToTheirVerdict) {
  const std::vector<StepReport> steps = {Checked(Outcome::kReachedHost, Outcome::kDropped)};
  EXPECT_EQ(CompareSides({Cell(kAgent, steps)}).compared.cells, 0U);
  CellReport broken = Cell(kKubelet, {});
  broken.problem = "no node";
  const Comparison result = CompareSides({broken, Cell(kAgent, steps)});
  EXPECT_EQ(result.compared.cells, 0U);
  EXPECT_THAT(result.worse, IsEmpty());
}

StreamCheck Stream(Outcome sound, const StreamCount& count, bool afterwards = false) {
  StreamCheck stream;
  stream.count = count;
  stream.count.probe = "stream-x/ipv4";
  stream.sound = sound;
  stream.afterwards = afterwards;
  return stream;
}

constexpr Outcome kStopped = Outcome::kDropped;
constexpr Outcome kServed = Outcome::kServedMasqueraded;

struct DuringRow {
  const char* name;
  Outcome sound;
  StreamCount kubelets;
  StreamCount agents;
  // Part of the sentence; "": it is no worse.
  const char* worse;
};
DuringRow During(const char* name, Outcome sound, const StreamCount& kubelets,
                 const StreamCount& agents, const char* worse = "") {
  return {name, sound, kubelets, agents, worse};
}

const DuringRow kDuring[] = {
    During("both let nothing in", kStopped, {.sent = 99}, {.sent = 99}),
    During("the agent lets packets in and kubelet does not", kStopped, {.sent = 99},
           {.sent = 99, .reached_host = 6},
           "stream-x/ipv4 6 of 99 packets reached the host, with kubelet 0 of 99"),
    During("no more than the tolerance of 25 ms", kStopped, {.sent = 99},
           {.sent = 99, .reached_host = 5}),
    During("as long as the machine was late", kStopped, {.sent = 99},
           {.sent = 99, .reached_host = 15, .late_milliseconds = 50}),
    During("and no longer", kStopped, {.sent = 99},
           {.sent = 99, .reached_host = 16, .late_milliseconds = 50}, "16 of 99 packets"),
    During("the agent is better", kStopped, {.sent = 99, .reached_host = 50}, {.sent = 400}),
    During("a longer step is no excuse", kStopped, {.sent = 9, .reached_host = 9},
           {.sent = 900, .reached_host = 15}, "15 of 900 packets"),
    During("lost where kubelet forgot to masquerade", kServed,
           {.sent = 99, .served = 50, .served_masqueraded = 49},
           {.sent = 99, .served_masqueraded = 49}, "50 of 99 packets lost, with kubelet 0 of 99"),
    During("not masqueraded where kubelet lost them", kServed,
           {.sent = 99, .served_masqueraded = 49},
           {.sent = 99, .served = 50, .served_masqueraded = 49}),
    During("forwarded where kubelet served", kServed, {.sent = 99, .served_masqueraded = 99},
           {.sent = 99, .served_masqueraded = 80, .forwarded = 19}, "19 of 99 packets forwarded"),
};

TEST(CompareStreamsTest, CountsPacketsAsTimeWhileAStepActs) {
  for (const DuringRow& row : kDuring) {
    const Comparison result =
        Compare({{.name = "a step", .streams = {Stream(row.sound, row.kubelets)}}},
                {{.name = "a step", .streams = {Stream(row.sound, row.agents)}}});
    EXPECT_EQ(result.compared.streams, 1U) << row.name;
    if (*row.worse == '\0') {
      EXPECT_THAT(result.worse, IsEmpty()) << row.name;
    } else {
      EXPECT_THAT(result.worse, ElementsAre(HasSubstr(row.worse))) << row.name;
    }
  }
}

TEST(CompareStreamsTest, DoesNotCompareHowLongKubeProxyIsAway) {
  const auto step = [](const StreamCount& count) {
    StreamCheck stream = Stream(kServed, count);
    stream.while_proxy_away = {Outcome::kForwarded};
    return std::vector<StepReport>{{.name = "a step", .streams = {stream}}};
  };
  const std::vector<StepReport> kubelets = step({.sent = 99, .served_masqueraded = 99});
  EXPECT_THAT(Compare(kubelets, step({.sent = 99, .served_masqueraded = 9, .forwarded = 90})).worse,
              IsEmpty());
  EXPECT_THAT(Compare(kubelets, step({.sent = 99, .served = 90, .served_masqueraded = 9})).worse,
              ElementsAre(HasSubstr("90 of 99 packets served")));
}

struct AfterRow {
  const char* name;
  StreamCount kubelets;
  StreamCount agents;
  bool worse;
};
const AfterRow kAfter[] = {
    {"both fail", {.sent = 50, .reached_host = 50}, {.sent = 300, .reached_host = 300}, false},
    {"the agent alone fails", {.sent = 300}, {.sent = 50, .reached_host = 50}, true},
    {"kubelet alone fails", {.sent = 50, .reached_host = 50}, {.sent = 300}, false},
    {"a packet in a hundred", {.sent = 100}, {.sent = 100, .reached_host = 1}, false},
    {"and one more", {.sent = 100}, {.sent = 100, .reached_host = 2}, true},
};

TEST(CompareStreamsTest, ComparesSharesAfterTheAct) {
  for (const AfterRow& row : kAfter) {
    const Comparison result =
        Compare({{.name = "a step", .streams = {Stream(kStopped, row.kubelets, true)}}},
                {{.name = "a step", .streams = {Stream(kStopped, row.agents, true)}}});
    EXPECT_THAT(result.worse, SizeIs(row.worse ? 1 : 0)) << row.name;
    EXPECT_THAT(result.worse, Each(HasSubstr("stream-x-afterwards/ipv4"))) << row.name;
  }
}

// What was wrong with kubelet before the step, or stays wrong, lasts as long as the harness takes.
TEST(CompareStreamsTest, LeavesTheTimeToTheSharesWhereItIsTheHarnesss) {
  const StreamCheck fine = Stream(kStopped, {.sent = 99}, true);
  const StreamCheck wrong = Stream(kStopped, {.sent = 99, .reached_host = 99}, true);
  const StreamCheck little = Stream(kStopped, {.sent = 99, .reached_host = 9});
  const StreamCheck much = Stream(kStopped, {.sent = 400, .reached_host = 350});
  const auto worse = [&](const StreamCheck& before, const StreamCheck& after) {
    const StepReport first = {.name = "first", .streams = {before}};
    return Compare({first, {.name = "second", .streams = {little, after}}},
                   {first, {.name = "second", .streams = {much, after}}})
        .worse;
  };
  EXPECT_THAT(worse(fine, fine), SizeIs(1));
  EXPECT_THAT(worse(wrong, fine), IsEmpty());
  EXPECT_THAT(worse(fine, wrong), IsEmpty());
}

TEST(CompareStreamsTest, MissesNoStreamThatKubeletDidNotHave) {
  const StepReport with = {.name = "a step", .streams = {Stream(kStopped, {.sent = 9})}};
  EXPECT_THAT(Compare({{.name = "a step"}}, {with}).worse,
              ElementsAre(HasSubstr("1 streams, with kubelet 0"), HasSubstr("was not sent")));
  EXPECT_THAT(Compare({with}, {{.name = "a step"}}).worse, SizeIs(1));
}

}  // namespace
}  // namespace kipt::skew::comparison_test
