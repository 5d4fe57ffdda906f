// SPDX-License-Identifier: Apache-2.0
//
// Each judge fails where it should.
#include "tests/faults/judges.h"

namespace kipt::testing {
namespace {

struct DaemonRow {
  std::string name;
  DaemonEnd end;
  std::string why = {};  // empty: it did right
};

constexpr char kInformation[] = "I1122 13:54:12.088896  6003 round_log.cc:82] Made 6 changes\n";
constexpr char kQuick[] = "W1122 13:54:12.088896  6003 a.cc:72] Repaired in 2999999 us (...)\n";
constexpr char kSlow[] = "W1122 13:54:12.088896  6003 a.cc:72] Repaired in 3000000 us (...)\n";
constexpr char kError[] = "E1122 13:54:12.088896  6003 daemon.cc:290] cannot make a timer\n";
constexpr char kNoLoop[] = "E1122 13:54:12 1 a.cc:7] the event loop failed: Input/output error\n";
constexpr absl::Duration kAtTheLimit = absl::Seconds(4);
constexpr absl::Duration kLate = absl::Milliseconds(4001);

class DaemonJudgeTest : public ::testing::TestWithParam<DaemonRow> {};

TEST_P(DaemonJudgeTest, Judges) {
  const absl::StatusOr<End> verdict = JudgeDaemon(GetParam().end);
  EXPECT_EQ(verdict.ok(), GetParam().why.empty()) << verdict.status();
  EXPECT_THAT(std::string(verdict.status().message()), HasSubstr(GetParam().why));
}

INSTANTIATE_TEST_SUITE_P(
    All, DaemonJudgeTest,
    ::testing::Values(
        DaemonRow{"InSilenceAtTheLimit", {.log = kInformation, .missing = kAtTheLimit}},
        DaemonRow{"LateInSilence", {.log = kInformation, .missing = kLate}, "logged nothing"},
        DaemonRow{"LateWithAnError", {.log = kError, .missing = kLate}},
        DaemonRow{"LateWithASlowRepair", {.log = kSlow, .missing = kLate}},
        DaemonRow{"LateWithAQuickRepair", {.log = kQuick, .missing = kLate}, "logged nothing"},
        DaemonRow{"NotInPlace", {.difference = "--- ip filter"}, "not in place"},
        DaemonRow{"Killed", {.ended = true, .exit_code = 139}, "crashed"},
        DaemonRow{"EndedAsIfDone", {.ended = true}, "ended unasked with 0"},
        DaemonRow{"EndsWithAnError", {.exit_code = 1}, "asked to end, it ended with 1"},
        DaemonRow{"HangsAtItsEnd", {.exit_code = -1}, "asked to end, it ended with -1"},
        DaemonRow{"ASanitizersReport", {.log = "x.cc:1:2: runtime error: null"}, "crashed"},
        DaemonRow{"WithoutAnEventLoop", {.ended = true, .exit_code = 1, .log = kNoLoop}},
        DaemonRow{"WithoutAnEventLoopAndNotInPlaceLater",
                  {.ended = true, .exit_code = 1, .log = kNoLoop, .difference = "--- ip filter"},
                  "ended unasked with 1"},
        DaemonRow{"NoStartWithAnError",
                  {.ended = true, .at_start = true, .exit_code = 1, .log = kError}},
        DaemonRow{"NoStartInSilence",
                  {.ended = true, .at_start = true, .exit_code = 1, .log = kInformation},
                  "logged no error"},
        DaemonRow{
            "NoStartAsIfDone", {.ended = true, .at_start = true, .log = kError}, "ended with 0"},
        DaemonRow{"NoStartWithHalfOfItDone",
                  {.ended = true,
                   .at_start = true,
                   .exit_code = 1,
                   .log = kError,
                   .difference = "--- ip filter"},
                  "--- ip filter"}),
    [](const auto& row) { return row.param.name; });

struct HalfDoneRow {
  std::string name;
  KernelText now;
  // Whether it is too much where all, a family, or a table is written at once.
  bool kernel, family, table;
};

class HalfDoneTest : public ::testing::TestWithParam<HalfDoneRow> {};

KernelText With(const std::string& nat, const std::string& filter, const std::string& ip6) {
  return {{"ip nat", nat}, {"ip filter", filter}, {"ip6 filter", ip6}};
}

TEST_P(HalfDoneTest, IsJudgedByWhatIsWrittenAtOnce) {
  const auto fails = [&](Unit unit) {
    return !HalfDone(GetParam().now, With("old", "old", "old"), With("new", "new", "new"), unit)
                .empty();
  };
  EXPECT_EQ(fails(Unit::kKernel), GetParam().kernel);
  EXPECT_EQ(fails(Unit::kFamily), GetParam().family);
  EXPECT_EQ(fails(Unit::kTable), GetParam().table);
}

INSTANTIATE_TEST_SUITE_P(
    All, HalfDoneTest,
    ::testing::Values(HalfDoneRow{"AsBefore", With("old", "old", "old"), false, false, false},
                      HalfDoneRow{"AsDesired", With("new", "new", "new"), false, false, false},
                      HalfDoneRow{"OneFamily", With("new", "new", "old"), true, false, false},
                      HalfDoneRow{"OneTableOfAFamily", With("new", "old", "old"), true, true,
                                  false},
                      HalfDoneRow{"AThirdState", With("new", "new", "x"), true, true, true}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace kipt::testing
