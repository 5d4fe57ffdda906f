// SPDX-License-Identifier: Apache-2.0
//
// A judge is tested with records just under and just over the limits of a run on an idle machine
// and of one on a busy machine.
#ifndef KIPT_TESTS_SOAK_JUDGE_TEST_H_
#define KIPT_TESTS_SOAK_JUDGE_TEST_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/soak/journal.h"
#include "tests/soak/options.h"
#include "tests/soak/windows.h"

namespace kipt::soak {

struct LimitsRow {
  const char* name;
  Limits limits;
};
inline std::ostream& operator<<(std::ostream& stream, const LimitsRow& row) {
  return stream << row.name;
}
inline constexpr LimitsRow kBothLimits[] = {{"Idle", kIdleLimits}, {"Busy", kBusyLimits}};

class JudgeTest : public ::testing::TestWithParam<LimitsRow> {
 protected:
  static constexpr absl::Duration kMoment = absl::Milliseconds(1);

  JudgeTest() {
    windows_.Expect(kAllGuards);
    windows_.DaemonIsBack();
  }

  const Limits& limits() const { return GetParam().limits; }
  // The masquerade guard's rules exist, or not; the others' do.
  void See(bool exists, absl::Time at) {
    Sight sight;
    sight.ours.fill(true);
    sight.theirs.fill(true);
    sight.ours[kMasq4] = exists;
    windows_.See(sight, {at, at});
    now_ = at;
  }
  void Damage(absl::Time from, absl::Time to) {
    now_ = from;
    const int announcement = windows_.Begin(kAllGuards);
    now_ = to;
    windows_.End(announcement);
  }
  // Who has reported a violation, in order.
  std::vector<std::string> Judges() const {
    std::vector<std::string> judges;
    for (const Violation& violation : journal_.violations()) judges.push_back(violation.of);
    return judges;
  }

  Journal journal_{1, ""};
  const absl::Time start_ = journal_.start();
  absl::Time now_ = start_;
  Windows windows_{"nft", journal_, limits().repair, limits().slack, [this] { return now_; }};
};

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_JUDGE_TEST_H_
