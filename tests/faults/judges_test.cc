// SPDX-License-Identifier: Apache-2.0
//
// Each judge of one run fails when it should, at the limit with which it judges a whole table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/faults/daemon_faults.h"
#include "tests/faults/world.h"

namespace kipt::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kInformation[] = "I1122 13:54:12.088896  6003 round_log.cc:82] Made 6 changes\n";
constexpr char kWarning[] = "W1122 13:54:12.088896  6003 round_log.cc:82] took 5 s\n";
constexpr char kError[] = "E1122 13:54:12.088896  6003 daemon.cc:290] cannot make a timer\n";
const absl::Duration kTooSilent = kSilent + absl::Milliseconds(1);

std::string RepairedIn(int microseconds) {
  return absl::StrCat("W1122 13:54:12.088896  6003 round_log.cc:72] Repaired in ", microseconds,
                      " us (writing 300 us) damage by nft\n");
}

// ---- the daemon

struct IncidentRow {
  std::string name;
  Observed observed;
  End end;
  bool timing = false;
  std::string text = {};
};

class IncidentJudgeTest : public ::testing::TestWithParam<IncidentRow> {};

TEST_P(IncidentJudgeTest, Judges) {
  const Verdict verdict = JudgeIncident(GetParam().observed);
  EXPECT_EQ(verdict.end, GetParam().end) << verdict.text;
  EXPECT_EQ(verdict.timing, GetParam().timing);
  EXPECT_THAT(verdict.text, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    All, IncidentJudgeTest,
    ::testing::Values(
        IncidentRow{"InPlaceAtOnce", {.log = kInformation}, End::kInPlace},
        IncidentRow{"InPlaceAtTheLimitInSilence", {.missing = kSilent}, End::kInPlace},
        IncidentRow{"LaterWithAWarning", {.missing = kTooSilent, .log = kWarning}, End::kError},
        IncidentRow{"LaterWithAnError", {.missing = kTooSilent, .log = kError}, End::kError},
        IncidentRow{"LaterInSilence",
                    {.missing = kTooSilent, .log = kInformation},
                    End::kFailed,
                    /*timing=*/true,
                    "said nothing"},
        IncidentRow{"LaterWithTheWarningOfAQuickRepair",
                    {.missing = kTooSilent, .log = RepairedIn(2'999'999)},
                    End::kFailed,
                    /*timing=*/true,
                    "said nothing"},
        IncidentRow{"LaterWithTheWarningOfASlowRepair",
                    {.missing = kTooSilent, .log = RepairedIn(3'000'000)},
                    End::kError},
        IncidentRow{"LaterWithALineOfAnotherProgram",
                    {.missing = kTooSilent, .log = "Warning: no\n"},
                    End::kFailed,
                    /*timing=*/true,
                    "said nothing"},
        IncidentRow{"NotInPlaceInTime",
                    {.in_place = false, .log = kWarning},
                    End::kFailed,
                    /*timing=*/true,
                    "not in place after"},
        IncidentRow{"NeverReached", {.injected = false}, End::kNotReached},
        IncidentRow{"EndedBySignal", {.ended = 139}, End::kFailed, false, "ended with 139"},
        IncidentRow{"EndedAsIfDone", {.ended = 0}, End::kFailed, false, "ended with 0"},
        IncidentRow{"AnExitCodeWhenAsked", {.exit_code = 1}, End::kFailed, false, "ended with 1"},
        IncidentRow{"HangsWhenAsked", {.exit_code = -1}, End::kFailed, false, "ended with -1"},
        IncidentRow{"DamagedByTheFault", {.damaged_later = true}, End::kFailed, false, "damaged"},
        IncidentRow{"ASanitizerReports",
                    {.log = "x.cc:1:2: runtime error: null pointer"},
                    End::kFailed,
                    false,
                    "sanitizer"}),
    [](const auto& row) { return row.param.name; });

struct StartRow {
  std::string name;
  EndAtStart end;
  End verdict;
  std::string text = {};
};

class StartJudgeTest : public ::testing::TestWithParam<StartRow> {};

TEST_P(StartJudgeTest, Judges) {
  const Verdict verdict = JudgeEndAtStart(GetParam().end);
  EXPECT_EQ(verdict.end, GetParam().verdict) << verdict.text;
  EXPECT_THAT(verdict.text, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    All, StartJudgeTest,
    ::testing::Values(
        StartRow{"WithAnErrorInTheLog", {.log = kError}, End::kError},
        StartRow{"WithAnErrorBeforeTheLog", {.exit_code = 64, .log = "Error: no"}, End::kError},
        StartRow{"InSilence", {.log = kInformation}, End::kFailed, "logged no error"},
        StartRow{"WithAWarningOnly", {.log = kWarning}, End::kFailed, "logged no error"},
        StartRow{"AsIfDone", {.exit_code = 0, .log = kError}, End::kFailed, "ended with 0"},
        StartRow{"BySignal", {.exit_code = 134, .log = kError}, End::kFailed, "ended with 134"},
        StartRow{"HalfDone",
                 {.log = kError, .half_done = "ip is neither"},
                 End::kFailed,
                 "ip is neither"},
        StartRow{"NotInPlaceWhenStartedAgain",
                 {.log = kError, .in_place_again = false},
                 End::kFailed,
                 "started again"}),
    [](const auto& row) { return row.param.name; });

// ---- how much may be done where a change ends in an error

KernelText With(const std::string& ip_nat, const std::string& ip_filter, const std::string& ip6) {
  KernelText text;
  text.parts = {{"ip nat", ip_nat}, {"ip filter", ip_filter}, {"ip6 filter", ip6}};
  return text;
}

struct HalfDoneRow {
  std::string name;
  KernelText now;
  // Whether it is too much where all, a family, or a table is written at once.
  bool whole;
  bool family;
  bool table;
};

class HalfDoneTest : public ::testing::TestWithParam<HalfDoneRow> {};

TEST_P(HalfDoneTest, IsJudgedByWhatIsWrittenAtOnce) {
  const KernelText before = With("old", "old", "old");
  const KernelText desired = With("new", "new", "new");
  const auto fails = [&](Atomicity atomicity) {
    return !HalfDone(GetParam().now, before, desired, atomicity).empty();
  };
  EXPECT_EQ(fails(Atomicity::kWhole), GetParam().whole);
  EXPECT_EQ(fails(Atomicity::kFamily), GetParam().family);
  EXPECT_EQ(fails(Atomicity::kTable), GetParam().table);
}

INSTANTIATE_TEST_SUITE_P(
    All, HalfDoneTest,
    ::testing::Values(HalfDoneRow{"AsBefore", With("old", "old", "old"), false, false, false},
                      HalfDoneRow{"AsDesired", With("new", "new", "new"), false, false, false},
                      HalfDoneRow{"OneFamily", With("new", "new", "old"), true, false, false},
                      HalfDoneRow{"OneTableOfAFamily", With("new", "old", "old"), true, true,
                                  false},
                      HalfDoneRow{"AThirdState", With("new", "new", "other"), true, true, true}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace kipt::testing
