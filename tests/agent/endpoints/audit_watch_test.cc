// SPDX-License-Identifier: Apache-2.0
//
// When audits begin and end, with work that the test chooses. tests/interop/audit_daemon_test.cc
// has real audits next to a real daemon.
#include "agent/endpoints/audit_watch.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/support/process_cost.h"
#include "tests/support/status_matchers.h"
#include "tests/support/turn_loop.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::CpuOfThisThread;
using ::kipt::testing::TurnUntil;

void Burn(absl::Duration cpu) {
  const absl::Duration until = CpuOfThisThread() + cpu;
  while (CpuOfThisThread() < until) {
  }
}

class AuditWatchTest : public ::testing::Test {
 protected:
  AuditWatchTest() {
    auto loop = EventLoop::Create();
    EXPECT_THAT(loop, IsOk());
    loop_ = *std::move(loop);
    watch_ = std::make_unique<AuditWatch>(
        *loop_, AuditWatch::Handlers{
                    .done = [this](NodeAudit) { ++done_; },
                    .failed = [this](const absl::Status& why) { failures_.push_back(why); }});
  }

  bool Ends(size_t audits, absl::Duration patience = absl::Seconds(5)) {
    return TurnUntil(
        *loop_, [&] { return done_ >= audits; }, patience);
  }

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<AuditWatch> watch_;
  size_t done_ = 0;
  std::vector<absl::Status> failures_;
  std::atomic<int> begun_ = 0;
};

TEST_F(AuditWatchTest, AuditsEveryPeriodOnAThreadOfItsOwn) {
  std::thread::id audits;
  watch_->Set(absl::Milliseconds(50), [&](const auto&) {
    audits = std::this_thread::get_id();
    return NodeAudit();
  });
  EXPECT_TRUE(Ends(3));
  EXPECT_NE(audits, std::this_thread::get_id());
}

TEST_F(AuditWatchTest, RestsAHundredTimesAsLongAsAnAuditTook) {
  const SteadyTime begin = SteadyNow();
  watch_->Set(absl::Milliseconds(1), [](const auto&) {
    Burn(absl::Milliseconds(5));
    return NodeAudit();
  });
  ASSERT_TRUE(Ends(2));
  EXPECT_GE(SteadyNow() - begin, 100 * absl::Milliseconds(5));
}

TEST_F(AuditWatchTest, WorksForAMillisecondAtATime) {
  absl::Duration cpu;
  absl::Duration took;
  watch_->Set(absl::Milliseconds(1), [&](const auto& pause) {
    const SteadyTime begin = SteadyNow();
    const absl::Duration before = CpuOfThisThread();
    for (int i = 0; i < 200; ++i) {
      Burn(absl::Microseconds(200));
      EXPECT_THAT(pause(), IsOk());
    }
    cpu = CpuOfThisThread() - before;
    took = SteadyNow() - begin;
    return NodeAudit();
  });
  ASSERT_TRUE(Ends(1));
  EXPECT_GE(took, 1.8 * cpu);
}

TEST_F(AuditWatchTest, WaitsWhileAHandlerOfTheLoopRuns) {
  std::atomic<int> pieces = 0;
  std::atomic<bool> enough = false;
  watch_->Set(absl::Milliseconds(1), [&](const auto& pause) {
    for (++begun_; !enough; ++pieces) {
      EXPECT_THAT(pause(), IsOk());
      absl::SleepFor(absl::Milliseconds(1));
    }
    return NodeAudit();
  });
  ASSERT_TRUE(TurnUntil(
      *loop_, [&] { return pieces > 0; }, absl::Seconds(5)));
  std::vector<int> seen;
  const auto repair = loop_->AddTimer([&] {
    for (int i = 0; i < 2; ++i) {
      absl::SleepFor(absl::Milliseconds(100));
      seen.push_back(pieces);
    }
  });
  repair->FireAfter(absl::ZeroDuration());
  ASSERT_TRUE(TurnUntil(
      *loop_, [&] { return !seen.empty(); }, absl::Seconds(5)));
  EXPECT_LE(seen[1] - seen[0], 1) << "of some sixty";
  EXPECT_TRUE(TurnUntil(
      *loop_, [&] { return pieces > seen[1] + 1; }, absl::Seconds(5)));
  enough = true;
  EXPECT_TRUE(Ends(1));
}

TEST_F(AuditWatchTest, RepeatsATornAuditAndCountsIt) {
  watch_->Set(absl::Milliseconds(20), [&](const auto&) -> absl::StatusOr<NodeAudit> {
    if (begun_++ < 2) return absl::AbortedError("torn");
    return NodeAudit();
  });
  EXPECT_TRUE(Ends(1));
  ASSERT_EQ(failures_.size(), 2U);
  EXPECT_TRUE(absl::IsAborted(failures_[0]));
}

TEST_F(AuditWatchTest, ZeroCancelsTheAuditThatRuns) {
  const auto endless = [&](const auto& pause) -> absl::StatusOr<NodeAudit> {
    ++begun_;
    for (;;) {
      Burn(absl::Microseconds(100));
      if (absl::Status status = pause(); !status.ok()) return status;
    }
  };
  watch_->Set(absl::Milliseconds(1), endless);
  ASSERT_TRUE(TurnUntil(*loop_, [&] { return begun_ == 1; }));
  watch_->Set(absl::ZeroDuration(), endless);
  // A new period begins anew, with other work.
  watch_->Set(absl::Milliseconds(1), [](const auto&) { return NodeAudit(); });
  EXPECT_TRUE(Ends(1));
  EXPECT_TRUE(failures_.empty());
}

TEST_F(AuditWatchTest, TheEndWaitsForNothingThatHangs) {
  const auto release = std::make_shared<std::atomic<bool>>(false);
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  watch_->Set(absl::Milliseconds(1), [&, release, ended](const auto&) -> absl::StatusOr<NodeAudit> {
    ++begun_;
    while (!*release) absl::SleepFor(absl::Milliseconds(5));
    *ended = true;
    return NodeAudit();
  });
  ASSERT_TRUE(TurnUntil(*loop_, [&] { return begun_ == 1; }));
  const SteadyTime begin = SteadyNow();
  EXPECT_FALSE(watch_->End(absl::Milliseconds(50)));
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(2));
  *release = true;
  EXPECT_TRUE(watch_->End(absl::Seconds(5)));
  EXPECT_TRUE(*ended);
}

}  // namespace
}  // namespace kipt::agent
