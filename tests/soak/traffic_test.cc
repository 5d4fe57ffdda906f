// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/traffic.h"

#include <vector>

#include "tests/soak/floor.h"
#include "tests/soak/judge_test.h"

namespace kipt::soak {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TrafficTest : public JudgeTest {
 protected:
  TrafficTest() {
    See(true, start_);
    See(true, start_ + absl::Seconds(10));
  }
  // Sent in a moment of peace, `at` seconds after the start.
  void Note(Transport transport, Guard guard, const TrafficCount& count, double at = 1) {
    const absl::Time when = start_ + absl::Seconds(at);
    judge_.Note(transport, guard, {when, when + kMoment}, count);
  }

  TrafficJudge judge_{"nft", windows_, journal_};
};

TEST_P(TrafficTest, OneWrongPacketOfAnyStreamIsAViolation) {
  for (const Transport transport : {kUdp, kTcp}) {
    for (unsigned i = 0; i < kGuards; ++i) {
      const Guard guard = static_cast<Guard>(i);
      if (!IsSent(transport, guard)) continue;
      TrafficJudge judge("nft", windows_, journal_);
      judge.Note(transport, guard, {start_ + absl::Seconds(1), start_ + absl::Seconds(1) + kMoment},
                 {.sent = 1000, .right = 999, .wrong = 1});
      const size_t before = Judges().size();
      judge.Decide(true);
      EXPECT_EQ(Judges().size(), before + 1) << NameOf(transport) << " " << NameOf(guard);
    }
  }
  EXPECT_THAT(Judges(), Each("packets"));
}

TEST_P(TrafficTest, AWrongPacketIsExcusedWithinTheSlackOfAWindowAndNotBeyond) {
  const absl::Time broken = start_ + absl::Seconds(20);
  Damage(broken - kMoment, broken);
  See(false, broken);
  See(true, broken + absl::Seconds(1));
  const absl::Time excused_until = now_ + limits().slack;
  const TrafficCount wrong = {.sent = 1, .wrong = 1};
  judge_.Note(kUdp, kMasq4, {excused_until - kMoment, excused_until}, wrong);
  judge_.Decide(true);
  EXPECT_THAT(Judges(), IsEmpty());
  judge_.Note(kUdp, kMasq4, {excused_until, excused_until + kMoment}, wrong);
  judge_.Decide(true);
  EXPECT_THAT(Judges(), ElementsAre("packets"));
}

TEST_P(TrafficTest, PacketsThatNothingIsExpectedOfAreNotJudged) {
  windows_.Expect(0);
  Note(kUdp, kMasq4, {.sent = 1, .wrong = 1});
  judge_.Decide(true);
  EXPECT_THAT(Judges(), IsEmpty());
  EXPECT_EQ(judge_.counts()[kUdp][kMasq4].sent, 0);
}

struct LossRow {
  const char* name;
  // Sent, lost: one after the other.
  std::vector<std::pair<int64_t, int64_t>> counts;
  bool violation;
};
const LossRow kLossRows[] = {
    {"none of a thousand", {{1000, 0}}, false},
    {"one of a thousand", {{1000, 1}}, false},
    {"two of a thousand", {{1000, 2}}, true},
    {"two of two thousand, one in each", {{1000, 1}, {1000, 1}}, false},
    {"two of two thousand, both in the first", {{1000, 2}, {1000, 0}}, true},
    {"a thousand in hundreds, of which one is lost", {{400, 0}, {300, 1}, {300, 0}}, false},
    {"a thousand in hundreds, of which two are lost", {{400, 1}, {300, 0}, {300, 1}}, true},
    {"none of 999 at the end", {{999, 0}}, false},
    {"one of 999 at the end", {{999, 1}}, true},
    {"one of the rest after a thousand", {{1000, 0}, {10, 1}}, true},
};

TEST_P(TrafficTest, OneInAThousandMayBeLostAndNoMore) {
  for (const LossRow& row : kLossRows) {
    for (const Transport transport : {kUdp, kTcp}) {
      TrafficJudge judge("nft", windows_, journal_);
      const size_t before = Judges().size();
      for (const auto& [sent, lost] : row.counts) {
        judge.Note(transport, kMasq4,
                   {start_ + absl::Seconds(1), start_ + absl::Seconds(1) + kMoment},
                   {.sent = sent, .right = sent - lost, .lost = lost});
      }
      judge.Decide(true);
      EXPECT_EQ(Judges().size() - before, row.violation ? 1 : 0)
          << row.name << " " << NameOf(transport);
    }
  }
  EXPECT_THAT(Judges(), Each("loss"));
}

TEST_P(TrafficTest, LossOfExcusedPacketsIsNotJudged) {
  const absl::Time from = start_ + absl::Seconds(20);
  Damage(from, from + absl::Seconds(1));
  See(true, now_ + kMoment);
  judge_.Note(kUdp, kMasq4, {from, from + kMoment}, {.sent = 1000, .lost = 1000});
  judge_.Decide(true);
  EXPECT_THAT(Judges(), IsEmpty());
  EXPECT_EQ(judge_.counts()[kUdp][kMasq4].judged, 0);
}

TEST_P(TrafficTest, StreamsDoNotMixTheirLosses) {
  Note(kUdp, kMasq4, {.sent = 1000, .right = 999, .lost = 1});
  Note(kUdp, kMasq6, {.sent = 1000, .right = 999, .lost = 1});
  Note(kTcp, kMasq4, {.sent = 1000, .right = 999, .lost = 1});
  judge_.Decide(true);
  EXPECT_THAT(Judges(), IsEmpty());
}

TEST_P(TrafficTest, AStreamIsDeafUntilAPacketOfItArrives) {
  windows_.Expect(0);
  Note(kUdp, kDrop4, {.sent = 1, .right = 1});
  EXPECT_FALSE(judge_.WasHeard(kUdp, kDrop4));
  Note(kUdp, kDrop4, {.sent = 1, .wrong = 1});
  EXPECT_TRUE(judge_.WasHeard(kUdp, kDrop4));
  EXPECT_FALSE(judge_.WasHeard(kTcp, kDrop4));
  EXPECT_FALSE(judge_.WasHeard(kUdp, kDrop6));
}

INSTANTIATE_TEST_SUITE_P(Limits, TrafficTest, ::testing::ValuesIn(kBothLimits),
                         [](const auto& row) { return std::string(row.param.name); });

// ---- the floor ----

class FloorTest : public ::testing::TestWithParam<absl::Duration> {
 protected:
  FloorTest() { options_.length = GetParam(); }

  // Just enough of everything.
  NodeSummary Enough() const {
    NodeSummary node = {.name = "nft", .run = GetParam()};
    for (const Transport transport : {kUdp, kTcp}) {
      for (TrafficCount& count : node.traffic[transport]) {
        count.judged = FloorOfPackets(transport, options_);
      }
    }
    const int64_t seconds = absl::ToInt64Seconds(node.run);
    node.counts["requests answered"] = seconds / 4;
    node.quiet.resize(static_cast<size_t>(seconds / 30));
    node.repairs.resize(static_cast<size_t>(seconds / 20));
    for (const double quarter : {0.25, 0.75}) {
      for (int64_t i = 0; i < seconds / 16; ++i) {
        node.samples.push_back({.at = node.run * quarter + absl::Seconds(2 * i)});
      }
    }
    return node;
  }
  // What was seen of each violation.
  std::vector<std::string> Seen(const NodeSummary& node) const {
    Journal journal(1, "");
    JudgeFloor(node, options_, journal);
    std::vector<std::string> seen;
    for (const Violation& violation : journal.violations()) {
      EXPECT_EQ(violation.of, "floor");
      seen.push_back(violation.seen);
    }
    return seen;
  }

  Options options_;
};

TEST_P(FloorTest, JustEnoughOfEverythingProvesSomething) { EXPECT_THAT(Seen(Enough()), IsEmpty()); }

TEST_P(FloorTest, OnePacketLessThanTheFloorOfAnyStreamProvesNothing) {
  for (const Transport transport : {kUdp, kTcp}) {
    for (unsigned i = 0; i < kGuards; ++i) {
      const Guard guard = static_cast<Guard>(i);
      if (!IsSent(transport, guard)) continue;
      NodeSummary node = Enough();
      --node.traffic[transport][guard].judged;
      EXPECT_THAT(Seen(node),
                  ElementsAre(::testing::AllOf(::testing::StartsWith("proved nothing: "),
                                               ::testing::HasSubstr(NameOf(transport)),
                                               ::testing::HasSubstr(NameOf(guard)))));
    }
  }
}

TEST_P(FloorTest, OneRecordLessThanTheFloorOfAnyOtherJudgeProvesNothing) {
  const struct {
    const char* what;
    void (*take)(NodeSummary& node);
  } kRows[] = {
      {"requests answered", [](NodeSummary& node) { --node.counts["requests answered"]; }},
      {"quiet moments", [](NodeSummary& node) { node.quiet.pop_back(); }},
      {"windows repaired", [](NodeSummary& node) { node.repairs.pop_back(); }},
      {"second quarter", [](NodeSummary& node) { node.samples.erase(node.samples.begin()); }},
      {"last quarter", [](NodeSummary& node) { node.samples.pop_back(); }},
  };
  for (const auto& row : kRows) {
    NodeSummary node = Enough();
    row.take(node);
    EXPECT_THAT(Seen(node), ElementsAre(::testing::HasSubstr(row.what)));
  }
}

TEST_P(FloorTest, ARunThatWasCutShortProvesNothing) {
  NodeSummary node = Enough();
  options_.length *= 2;
  EXPECT_EQ(Seen(node).size(), 14U);
}

TEST_P(FloorTest, ARunOfNothingProvesNothing) {
  EXPECT_EQ(Seen({.name = "nft", .run = GetParam()}).size(), 14U);
}

INSTANTIATE_TEST_SUITE_P(Runs, FloorTest,
                         ::testing::Values(absl::Minutes(1), absl::Minutes(5), absl::Minutes(30)),
                         [](const auto& run) {
                           return absl::StrCat(absl::ToInt64Minutes(run.param), "Minutes");
                         });

}  // namespace
}  // namespace kipt::soak
