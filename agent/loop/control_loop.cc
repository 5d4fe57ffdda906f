// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/control_loop.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agent/detect/rule_support.h"
#include "agent/loop/damping.h"
#include "agent/loop/plan.h"
#include "agent/loop/retirer.h"
#include "agent/loop/round.h"
#include "agent/policy/diff.h"

namespace kipt::agent {
namespace {

using netlink::Family;

// A check of iptables-legacy takes longer with more services, and readers trigger it, too.
constexpr double kLegacyCpuShare = 0.05;
// Repairs come four times as late as a check takes, where other programs write all the time.
constexpr double kNftCpuShare = 0.25;
// Identical damage that recurs before the iptables-legacy monitor reads again looks unchanged, so
// every repair is re-checked once.
constexpr absl::Duration kSecondCheck = absl::Milliseconds(20);
// After a monitor has failed.
constexpr absl::Duration kWatchAgain = absl::Seconds(1);

std::optional<ForeignRules> MakeForeignRules(const ControlLoopOptions& options) {
  if (!options.foreign_rules) return std::nullopt;
  return ForeignRules(*options.foreign_rules);
}

// Another process interfered, so another attempt with the same backend may succeed.
bool MayPassByItself(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

ControlLoop::ControlLoop(EventLoop& loop, ControlLoopOptions options, OpenBackend open_backend,
                         Observer observer)
    : options_(std::move(options)),
      open_backend_(std::move(open_backend)),
      observer_(std::move(observer)),
      timer_(loop.AddTimer([this] { OnTimer(); })),
      writer_watch_(loop, options_.writers, [this] { OnSight(); }),
      jitter_(RandomJitter()),
      pace_(options_.sync_period, jitter_),
      damping_(options_.sync_period),
      foreign_rules_(MakeForeignRules(options_)),
      retirer_(options_.retire) {
  state_.started = absl::Now();
  state_.heartbeat = state_.started;
  NoteOptions();
  Rearm();
}

void ControlLoop::NoteOptions() {
  state_.emulated_version = options_.emulated_version;
  state_.mode = options_.input.mode;
  state_.observing = options_.observe;
  std::vector<FamilyState> families;
  for (const Family family : options_.input.families) {
    const auto known = absl::c_find_if(
        state_.families, [family](const FamilyState& state) { return state.family == family; });
    families.push_back(known != state_.families.end()
                           ? *known
                           : FamilyState{.family = family, .since = state_.started});
  }
  state_.families = std::move(families);
}

void ControlLoop::SetDesired(ControlLoopOptions options) {
  options.watch = options_.watch;
  // In observe mode the backend may be read-only, so reopen it.
  if (options.observe != options_.observe) CloseBackend();
  reconciler_.reset();
  const bool same = options.foreign_rules == options_.foreign_rules;
  options_ = std::move(options);
  if (!same) foreign_rules_ = MakeForeignRules(options_);
  retirer_ = Retirer(options_.retire);
  ForgetRepairs();
  pace_.SetOptions(options_.sync_period, CpuShare());
  pace_.NoteUrgent();
  next_trigger_ = Trigger::kConfig;
  NoteOptions();
  Rearm();
}

void ControlLoop::CheckNow() {
  Turn(next_trigger_ == Trigger::kTimer && pace_.change_pending() ? Trigger::kChange
                                                                  : next_trigger_);
}

void ControlLoop::ForgetRepairs() {
  records_.clear();
  for (FamilyState& state : state_.families) state.key.clear();
  damping_ = Damping(options_.sync_period);
}

ControlLoop::FamilyRecord& ControlLoop::RecordOf(Family family) {
  return records_.try_emplace(family, FamilyRecord{Backoff(options_.sync_period, jitter_)})
      .first->second;
}

bool ControlLoop::IsLegacy() const {
  return backend_ != nullptr && backend_->kind() == netlink::BackendKind::kIptablesLegacy;
}

double ControlLoop::CpuShare() const { return IsLegacy() ? kLegacyCpuShare : kNftCpuShare; }

void ControlLoop::OnSight() {
  pace_.NoteChange();
  const SteadyTime now = SteadyNow();
  if (pace_.Next(now) <= now) return Turn(Trigger::kChange);
  // The next check covers whatever else changes until then.
  writer_watch_.Pause(true);
  Rearm();
}

void ControlLoop::OnTimer() {
  const SteadyTime now = SteadyNow();
  if (pace_.Next(now) > now) return Rearm();
  if (next_trigger_ != Trigger::kTimer) return Turn(next_trigger_);
  if (pace_.change_pending()) return Turn(Trigger::kChange);
  Turn(pace_.failing() || pace_.waiting() ? Trigger::kRetry : Trigger::kTimer);
}

void ControlLoop::Rearm() {
  const SteadyTime now = SteadyNow();
  timer_->FireAfter(pace_.Next(now) - now);
}

void ControlLoop::Turn(Trigger trigger) {
  const SteadyTime start = SteadyNow();
  absl::Cleanup unfinished = [&, last_periodic = last_periodic_] {
    last_periodic_ = last_periodic;
    DoLater(trigger, start);
  };
  const Round round = DoRound(trigger, start);
  Rearm();
  std::move(unfinished).Cancel();
  observer_(round);
}

void ControlLoop::DoLater(Trigger trigger, SteadyTime start) {
  if (next_trigger_ == Trigger::kTimer) next_trigger_ = trigger;
  // It may have been left within an answer of the kernel's.
  CloseBackend();
  pace_.NoteCheck(start, SteadyNow(), absl::ZeroDuration(), /*failed=*/true);
  Rearm();
}

Round ControlLoop::DoRound(Trigger trigger, SteadyTime start) {
  const absl::Duration cpu_before = options_.cpu_used();
  next_trigger_ = Trigger::kTimer;
  waiting_families_.clear();
  Round round;
  round.trigger = trigger;
  const bool starts = trigger == Trigger::kStart;
  round.periodic = !starts && start >= last_periodic_ + options_.sync_period;
  if (round.periodic || starts) last_periodic_ = start;
  SyncReport& report = round.report;
  report.status = EnsureBackend();
  SeenWriters noticed;
  if (report.status.ok()) {
    noticed = Listen();
    report = Repair(round.periodic);
  }
  const SteadyTime end = SteadyNow();
  round.external_changes = noticed.changes;
  round.lost_events = noticed.lost_events;
  round.duration = end - start;
  pace_.NoteCheck(start, end, options_.cpu_used() - cpu_before, !report.status.ok());
  NoteWriters(report);
  const bool stopped = noticed.stopped || writer_watch_.seen().stopped;
  if (stopped && !writer_watch_.watching()) pace_.NoteWaiting(end + kWatchAgain);
  // Repairs of the native table are neither damped nor incidents.
  damping_.NoteApplied(WithoutNative(report.applied), end);
  pace_.NoteWaiting(damping_.next());
  if (!report.applied.empty() && IsLegacy()) pace_.NoteWaiting(end + kSecondCheck);
  round.fights_begun = damping_.TakeBegun();
  round.fights_ended = damping_.TakeEnded();
  NoteLostProxyJumps(round);
  NoteBlockers(round);
  NoteForeignRules(round);
  NoteDamage(round, std::min(noticed.first, start), end);
  attribution_.NoteApplied(report.applied);
  NoteFamilies(round, end);
  if (backend_ != nullptr && !options_.observe && report.FirstError().ok() &&
      damping_.next() == SteadyTime::InfiniteFuture()) {
    const bool quiet =
        round.periodic || (trigger != Trigger::kChange && trigger != Trigger::kRetry);
    round.retirement = retirer_.Run(*backend_, SteadyClock(), options_.input,
                                    KnownSupport(options_.support), quiet);
    pace_.NoteWaiting(retirer_.next());
  }
  NoteState(round);
  // Opening anew finds a program that was installed, replaces a broken socket, and finds nf_tables,
  // which observe mode does not load.
  const bool broken = !report.status.ok() && !MayPassByItself(report.status);
  if (broken || (options_.observe && !writer_watch_.watching())) CloseBackend();
  return round;
}

absl::Status ControlLoop::EnsureBackend() {
  if (backend_ != nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<netlink::Backend>> backend = open_backend_();
  if (!backend.ok()) return backend.status();
  backend_ = *std::move(backend);
  state_.iptables_mode = std::string(netlink::BackendKindName(backend_->kind()));
  pace_.SetCpuShare(CpuShare());
  return absl::OkStatus();
}

void ControlLoop::CloseBackend() {
  writer_watch_.Stop();
  reconciler_.reset();
  backend_.reset();
}

SeenWriters ControlLoop::Listen() {
  absl::Status status;
  if (!writer_watch_.watching()) status = writer_watch_.Watch(*backend_, options_.watch);
  writer_watch_.Pause(false);
  writer_watch_.Drain();
  const absl::Status& failure = writer_watch_.failure();
  if (!writer_watch_.watching()) status.Update(failure);
  const absl::string_view how = IsLegacy() ? "users of xtables.lock"
                                : options_.watch == netlink::WatchMode::kPoll ? "poll"
                                                                              : "kernel events";
  state_.watching =
      status.ok()
          ? absl::StrCat(how, failure.ok() ? "" : ", anew after a failure: ", failure.message())
          : absl::StrCat("timer only: ", status.message());
  SeenWriters noticed = writer_watch_.Take();
  attribution_.NoteCommits(noticed.commits, noticed.others);
  return noticed;
}

SyncReport ControlLoop::Repair(bool periodic) {
  const RuleSupport before = KnownSupport(options_.support);
  // Modules may have been installed.
  if (periodic && !before.all()) {
    options_.support->Read(backend_->kind(), options_.input.labels.has_value());
  }
  if (!reconciler_) {
    reconciler_.emplace(backend_.get(), SteadyClock(options_.patience), options_.support,
                        std::bind_front(&ControlLoop::NoteRules, this));
  }
  SyncReport report =
      reconciler_->Sync(options_.input, [&](const Plan& plan) { return Restrain(plan); });
  if (options_.observe) {
    for (Finding& finding : report.plan.diff.findings) finding.repaired = false;
  }
  if (KnownSupport(options_.support) != before) ForgetRepairs();
  return report;
}

void ControlLoop::NoteRules(const netlink::Snapshot& observed, const Plan& plan) {
  if (!foreign_rules_) return;
  // Only a table that is made anew, which lacks our rules, begins its handles again.
  foreign_rules_->Note(observed, plan.families,
                       [&](Family family) { return !IsLegacy() && !Changes(plan.diff, family); });
}

std::vector<Change> ControlLoop::Restrain(const Plan& plan) {
  attribution_.NoteCheck(plan, ForeignChanges(plan));
  if (options_.observe) return {};
  const SteadyTime now = SteadyNow();
  std::vector<Change> allowed = damping_.Allow(plan, now, [this](const Item& jump) {
    return KubeProxyAmong(attribution_.Of({&jump, 1}).writers, options_.writers);
  });
  std::erase_if(allowed, [&](const Change& change) {
    if (IsNative(change)) return false;
    const Family family = netlink::ChainOf(change.operation).family;
    const FamilyRecord& record = RecordOf(family);
    if (record.backoff.next() <= now) return false;
    waiting_families_.insert(family);
    return record.refused.empty() || IsRefused(record, change);
  });
  HoldDrops(plan, allowed);
  // What replaces the native table may have to wait.
  if (allowed.size() != plan.diff.changes.size()) {
    std::erase_if(allowed, [](const Change& change) {
      return std::holds_alternative<netlink::DeleteNativeTable>(change.operation);
    });
  }
  return allowed;
}

void ControlLoop::HoldDrops(const Plan& plan, std::vector<Change>& allowed) const {
  std::set<Family> waiting;
  for (const Change& change : plan.diff.changes) {
    if (!IsNative(change) && !absl::c_linear_search(allowed, change)) {
      waiting.insert(netlink::ChainOf(change.operation).family);
    }
  }
  std::erase_if(allowed, [&](const Change& change) {
    return waiting.contains(netlink::ChainOf(change.operation).family) && Waits(change);
  });
}

bool ControlLoop::IsRefused(const FamilyRecord& record, const Change& change) const {
  if (record.refused.empty()) return false;
  return absl::c_linear_search(record.refused, netlink::ChainOf(change.operation).table) ||
         Waits(change);
}

bool ControlLoop::Waits(const Change& change) const {
  return WaitsForOtherTables(DesiredRuleset(options_.input, KnownSupport(options_.support)),
                             change);
}

void ControlLoop::NoteFamilies(Round& round, SteadyTime ended) {
  state_.fights = damping_.fights(ended);
  for (FamilyState& state : state_.families) {
    FamilyRecord& record = RecordOf(state.family);
    if (waiting_families_.count(state.family) != 0) {
      pace_.NoteWaiting(record.backoff.next());
      continue;
    }
    const FamilyResult result = round.report.ResultOf(state.family);
    record.refused = result.refused;
    record.settled = result.status.ok() || !result.refused.empty();
    if (result.status.ok()) {
      record.backoff.NoteSuccess();
    } else if (round.report.status.ok()) {
      // Only this family waits. No event reports that an interfering process has ended, so that
      // wait is short.
      record.backoff.NoteFailure(
          ended, MayPassByItself(result.status) ? kLongestFightWait : absl::InfiniteDuration());
      pace_.NoteWaiting(record.backoff.next());
    }
    if (Update(JudgeFamily(state.family, round.report, state_.fights, options_.observe),
               absl::Now(), state)) {
      round.changed_families.push_back(state);
    }
  }
}

}  // namespace kipt::agent
