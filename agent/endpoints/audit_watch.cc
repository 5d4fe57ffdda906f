// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/audit_watch.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agent/process/files.h"
#include "agent/process/own_process.h"

namespace kipt::agent {
namespace {

// At a time; then it waits for as long as it has worked.
constexpr absl::Duration kPiece = absl::Milliseconds(1);
// A repair has the processors for itself; an audit waits so long for repairs in all, because it
// must end where others damage the rules all the time.
constexpr absl::Duration kLongestYield = absl::Seconds(10);

absl::Duration CpuOf(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return absl::DurationFromTimespec(time);
}

// Counts this process and the programs that it ran: more than the audit's, if a repair runs too.
absl::Duration CpuSpent() {
  rusage programs = {};
  getrusage(RUSAGE_CHILDREN, &programs);
  return CpuOf(CLOCK_PROCESS_CPUTIME_ID) + absl::DurationFromTimeval(programs.ru_utime) +
         absl::DurationFromTimeval(programs.ru_stime);
}

}  // namespace

// What the thread and the loop share. The thread keeps it for as long as it runs.
struct AuditWatch::Run {
  Work work;
  std::shared_ptr<const std::atomic<bool>> loop_is_busy;
  OwnedFd ended = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::atomic<bool> cancelled = false;
  absl::Duration yielded = absl::ZeroDuration();
  // Written before `ended`.
  absl::StatusOr<NodeAudit> result = absl::CancelledError("");
  absl::Duration cpu;

  static void* Main(void* own) {
    const std::unique_ptr<std::shared_ptr<Run>> run(static_cast<std::shared_ptr<Run>*>(own));
    (*run)->Do();
    return nullptr;
  }

  void Do() {
    const absl::Duration before = CpuSpent();
    absl::Duration paused = CpuOf(CLOCK_THREAD_CPUTIME_ID);
    const auto pause = [&]() -> absl::Status {
      while (*loop_is_busy && !cancelled && yielded < kLongestYield) {
        absl::SleepFor(kPiece);
        yielded += kPiece;
      }
      if (cancelled) return absl::CancelledError("the process ends");
      const absl::Duration worked = CpuOf(CLOCK_THREAD_CPUTIME_ID) - paused;
      if (worked < kPiece) return absl::OkStatus();
      absl::SleepFor(worked);
      paused = CpuOf(CLOCK_THREAD_CPUTIME_ID);
      return absl::OkStatus();
    };
    // An audit that gets no memory must not end the process that repairs.
    try {
      result = work(pause);
    } catch (const std::exception& error) {
      result = absl::ResourceExhaustedError(error.what());
    }
    GiveBackFreePages();
    cpu = CpuSpent() - before;
    const uint64_t one = 1;
    // Only a full counter could keep it from being written.
    [[maybe_unused]] const ssize_t written = write(ended.get(), &one, sizeof one);
  }
};

AuditWatch::AuditWatch(EventLoop& loop, Handlers handlers)
    : loop_(loop), handlers_(std::move(handlers)), timer_(loop.AddTimer([this] {
        if (run_ != nullptr || period_ == absl::ZeroDuration()) return;
        absl::Status status = Begin();
        if (status.ok()) return;
        handlers_.failed(status);
        timer_->FireAfter(std::min(kAgainAfter, period_));
      })) {}

AuditWatch::~AuditWatch() {
  // What still hangs after a second ends with the process.
  if (!End(absl::Seconds(1))) pthread_detach(thread_);
}

void AuditWatch::Set(absl::Duration period, Work work) {
  work_ = std::move(work);
  const absl::Duration before = std::exchange(period_, period);
  if (period == absl::ZeroDuration()) {
    if (run_ != nullptr) run_->cancelled = true;
  } else if (run_ == nullptr && before != period) {
    timer_->FireAfter(any_begun_ ? period : std::min(kFirstAfter, period));
  }
}

absl::Status AuditWatch::Begin() {
  auto run = std::make_shared<Run>();
  run->work = work_;
  run->loop_is_busy = loop_.busy();
  if (!run->ended.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  auto ended = loop_.AddReadable(run->ended.get(), [this] { OnEnd(); });
  if (!ended.ok()) return ended.status();
  auto owned = std::make_unique<std::shared_ptr<Run>>(run);
  const int error = pthread_create(&thread_, nullptr, Run::Main, owned.get());
  if (error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("a thread for the audit: ", ErrorText(error)));
  }
  // The thread's.
  static_cast<void>(owned.release());
  any_begun_ = true;
  began_ = SteadyNow();
  run_ = std::move(run);
  ended_ = *std::move(ended);
  return absl::OkStatus();
}

void AuditWatch::OnEnd() {
  pthread_join(thread_, nullptr);
  ended_.reset();
  const std::shared_ptr<Run> run = std::exchange(run_, nullptr);
  if (period_ != absl::ZeroDuration()) {
    const absl::Duration period = run->result.ok() ? period_ : std::min(period_, kAgainAfter);
    timer_->FireAfter(std::max(period - (SteadyNow() - began_), kRestFactor * run->cpu));
  }
  if (run->cancelled) {
    // A result that no longer matters.
  } else if (run->result.ok()) {
    handlers_.done(*std::move(run->result));
  } else {
    handlers_.failed(run->result.status());
  }
}

bool AuditWatch::End(absl::Duration patience) {
  if (run_ == nullptr) return true;
  run_->cancelled = true;
  const timespec until = absl::ToTimespec(absl::Now() + patience);
  if (pthread_timedjoin_np(thread_, nullptr, &until) != 0) return false;
  ended_.reset();
  run_.reset();
  return true;
}

}  // namespace kipt::agent
