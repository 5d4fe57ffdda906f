// SPDX-License-Identifier: Apache-2.0
//
// Each judge fails where it should.
#include "tests/faults/judges.h"

namespace kipt::testing {
namespace {

constexpr char kDone[] = "I1122 13:54:12.088896  6003 round_log.cc:82] Made 6 changes\n";
constexpr char kQuick[] = "W1122 13:54:12.088896  6003 a.cc:72] Repaired in 2999999 us (...)\n";
constexpr char kSlow[] = "W1122 13:54:12.088896  6003 a.cc:72] Repaired in 3000000 us (...)\n";
constexpr char kError[] = "E1122 13:54:12.088896  6003 daemon.cc:290] cannot make a timer\n";
constexpr char kNoLoop[] = "E1122 13:54:12 1 a.cc:7] the event loop failed: Input/output error\n";
constexpr char kOther[] = "--- ip filter";
constexpr absl::Duration kLimit = absl::Seconds(4);
constexpr absl::Duration kLate = absl::Milliseconds(4001);

TEST(DaemonJudgeTest, JudgesEachEnd) {
  const struct {
    DaemonEnd end;
    std::string why = {};  // empty: it did right
  } rows[] = {
      {{.log = kDone, .missing = kLimit}},
      {{.log = kDone, .missing = kLate}, "logged nothing"},
      {{.log = kError, .missing = kLate}},
      {{.log = kSlow, .missing = kLate}},
      {{.log = kQuick, .missing = kLate}, "logged nothing"},
      {{.difference = kOther}, "not in place"},
      {{.ended = true, .exit_code = 139}, "crashed"},
      {{.ended = true}, "ended unasked with 0"},
      {{.exit_code = 1}, "asked to end, it ended with 1"},
      {{.exit_code = -1}, "asked to end, it ended with -1"},
      {{.log = "x.cc:1:2: runtime error: null"}, "crashed"},
      {{.ended = true, .exit_code = 1, .log = kNoLoop}},
      {{.ended = true, .exit_code = 1, .log = kNoLoop, .difference = kOther}, "unasked with 1"},
      {{.ended = true, .at_start = true, .exit_code = 1, .log = kError}},
      {{.ended = true, .at_start = true, .exit_code = 1, .log = kDone}, "logged no error"},
      {{.ended = true, .at_start = true, .log = kError}, "ended with 0"},
      {{.ended = true, .at_start = true, .exit_code = 1, .log = kError, .difference = kOther},
       kOther},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(&row - rows);
    const absl::StatusOr<End> verdict = JudgeDaemon(row.end);
    EXPECT_EQ(verdict.ok(), row.why.empty()) << verdict.status();
    EXPECT_THAT(std::string(verdict.status().message()), HasSubstr(row.why));
  }
}

KernelText With(const std::string& nat, const std::string& filter, const std::string& ip6) {
  return {{"ip nat", nat}, {"ip filter", filter}, {"ip6 filter", ip6}};
}

TEST(HalfDoneTest, IsJudgedByWhatIsWrittenAtOnce) {
  const auto units = [](const KernelText& now) {
    std::vector<Unit> half_done;
    for (const Unit unit : {Unit::kKernel, Unit::kFamily, Unit::kTable}) {
      const KernelText old = With("old", "old", "old");
      if (!HalfDone(now, old, With("new", "new", "new"), unit).empty()) half_done.push_back(unit);
    }
    return half_done;
  };
  EXPECT_THAT(units(With("old", "old", "old")), IsEmpty());
  EXPECT_THAT(units(With("new", "new", "new")), IsEmpty());
  EXPECT_THAT(units(With("new", "new", "old")), ElementsAre(Unit::kKernel));
  EXPECT_THAT(units(With("new", "old", "old")), ElementsAre(Unit::kKernel, Unit::kFamily));
  EXPECT_THAT(units(With("new", "new", "x")), SizeIs(3));
}

}  // namespace
}  // namespace kipt::testing
