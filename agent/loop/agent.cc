// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/agent.h"

#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agent/detect/rule_support.h"
#include "agent/loop/family_phase.h"
#include "agent/loop/martians.h"
#include "agent/policy/diff.h"

namespace kipt::agent {
namespace {

using netlink::Family;

// A look at legacy tables costs the more the more services there are, and readers wake us too.
constexpr double kLegacyCpuShare = 0.05;
// Legacy tables that were damaged in the same way again before the monitor read them are to it what
// they were before the repair: no change. So a repair is looked after, once.
constexpr absl::Duration kSecondLook = absl::Milliseconds(20);
// After a monitor has failed.
constexpr absl::Duration kWatchAgain = absl::Seconds(1);
constexpr size_t kRecentIncidents = 10;

// So that a fleet that fails at one moment does not retry at one moment.
std::function<double()> RandomJitter() {
  return [random = std::minstd_rand(std::random_device()())]() mutable {
    return std::uniform_real_distribution<double>(0.8, 1.2)(random);
  };
}

std::vector<Change> Retired(const Round& round) {
  if (!round.retirement || !round.retirement->applied) return {};
  return round.retirement->plan.changes;
}

bool IsLegacy(const netlink::Backend& backend) {
  return backend.kind() == netlink::BackendKind::kIptablesLegacy;
}

std::string WatchingText(const netlink::Backend& backend, netlink::WatchMode mode) {
  if (IsLegacy(backend)) return "users of xtables.lock";
  return mode == netlink::WatchMode::kPoll ? "poll" : "kernel events";
}

// Whether trying again with the same backend may help: somebody else was in the way.
bool MayPassByItself(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
}

// Before a family is tried again. Nothing tells when another process ends that was in the way.
absl::Duration LongestWait(const absl::Status& status) {
  return MayPassByItself(status) ? kLongestFightWait : absl::InfiniteDuration();
}

}  // namespace

absl::Duration CpuUsed() {
  absl::Duration used;
  for (const auto who : {RUSAGE_THREAD, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    used += absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
  }
  return used;
}

Agent::Agent(EventLoop& loop, AgentOptions options, OpenBackend open_backend, Observer observer)
    : options_(std::move(options)),
      open_backend_(std::move(open_backend)),
      observer_(std::move(observer)),
      lookout_(loop, options_.writers, [this] { OnSight(); }),
      pace_({.resync = options_.sync_period}, RandomJitter()),
      damping_(options_.sync_period) {
  retirer_.SetSources(options_.retire);
  state_.started = absl::Now();
  state_.heartbeat = state_.started;
  NoteOptions();
}

Agent::~Agent() = default;

absl::StatusOr<std::unique_ptr<Agent>> Agent::Create(EventLoop& loop, AgentOptions options,
                                                     OpenBackend open_backend, Observer observer) {
  std::unique_ptr<Agent> agent(
      new Agent(loop, std::move(options), std::move(open_backend), std::move(observer)));
  absl::StatusOr<std::unique_ptr<EventSource>> timer =
      loop.AddTimer([self = agent.get()] { self->OnTimer(); });
  if (!timer.ok()) return timer.status();
  agent->timer_ = *std::move(timer);
  if (absl::Status status = agent->timer_->FireAfter(absl::ZeroDuration()); !status.ok()) {
    return status;
  }
  return agent;
}

Agent::FamilyRecord& Agent::RecordOf(Family family) {
  const auto known = records_.find(family);
  if (known != records_.end()) return known->second;
  // Only where it is needed: to open a source of randomness is dear, and this is on every path.
  return records_.emplace(family, FamilyRecord{Backoff(options_.sync_period, RandomJitter())})
      .first->second;
}

void Agent::NoteOptions() {
  state_.emulated_version = options_.emulated_version;
  state_.mode = options_.input.mode;
  state_.observing = options_.observe;
  std::vector<FamilyState> families;
  for (const Family family : options_.input.families) {
    families.push_back({.family = family, .since = state_.started});
    for (const FamilyState& known : state_.families) {
      if (known.family == family) families.back() = known;
    }
  }
  state_.families = std::move(families);
}

void Agent::SetDesired(AgentOptions options) {
  options.watch = options_.watch;
  // Who only observes may have been given a backend that cannot write.
  if (options.observe != options_.observe) CloseBackend();
  options_ = std::move(options);
  retirer_.SetSources(options_.retire);
  ForgetRepairs();
  SetPace();
  pace_.NoteUrgent();
  next_trigger_ = Trigger::kConfig;
  NoteOptions();
  Rearm();
}

RuleSupport Agent::Support() const {
  return options_.support != nullptr ? options_.support->known() : RuleSupport();
}

void Agent::ForgetRepairs() {
  records_.clear();
  damping_ = Damping(options_.sync_period);
  suspects_.Forget();
}

void Agent::SetPace() {
  const bool legacy = backend_ != nullptr && IsLegacy(*backend_);
  pace_.SetOptions({.resync = options_.sync_period, .cpu_share = legacy ? kLegacyCpuShare : 1});
}

void Agent::OnSight() {
  pace_.NoteChange();
  const SteadyTime now = SteadyNow();
  if (pace_.Next(now) <= now) {
    Turn(Trigger::kChange);
  } else {
    // Once is enough until the next look.
    lookout_.Pause(true);
    Rearm();
  }
}

void Agent::OnTimer() {
  const SteadyTime now = SteadyNow();
  state_.heartbeat = absl::Now();
  if (pace_.Next(now) > now) {
    Rearm();
  } else if (next_trigger_ != Trigger::kTimer) {
    Turn(next_trigger_);
  } else if (pace_.change_pending()) {
    Turn(Trigger::kChange);
  } else {
    Turn(pace_.failing() || pace_.waiting() ? Trigger::kRetry : Trigger::kTimer);
  }
}

void Agent::Rearm() {
  const SteadyTime now = SteadyNow();
  // A timer that cannot be set is one that was never made: Create has failed then.
  timer_->FireAfter(pace_.Next(now) - now).IgnoreError();
}

absl::Status Agent::EnsureBackend() {
  if (backend_ != nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<netlink::Backend>> backend = open_backend_();
  if (!backend.ok()) return backend.status();
  backend_ = *std::move(backend);
  state_.iptables_mode = std::string(netlink::BackendKindName(backend_->kind()));
  SetPace();
  return absl::OkStatus();
}

void Agent::EnsureWatching() {
  absl::Status status;
  if (!lookout_.watching()) status = lookout_.Watch(*backend_, options_.watch);
  lookout_.Pause(false);
  lookout_.Drain();
  const absl::Status& failure = lookout_.failure();
  if (status.ok() && !lookout_.watching()) status = failure;
  if (!status.ok()) {
    state_.watching = absl::StrCat("timer only: ", status.message());
    return;
  }
  state_.watching = WatchingText(*backend_, options_.watch);
  if (failure.ok()) return;
  absl::StrAppend(&state_.watching, ", anew after a failure: ", failure.message());
}

void Agent::CloseBackend() {
  lookout_.Stop();
  backend_.reset();
}

void Agent::Reconcile(Round& round) {
  const RuleSupport before = Support();
  // Modules may have come.
  if (round.trigger == Trigger::kTimer && !before.all()) {
    options_.support->Look(backend_->kind(), options_.input.labels.has_value());
  }
  round.report = Reconciler(backend_.get(), SteadyClock(), options_.support)
                     .Sync(options_.input, [&](const Plan& plan) { return Restrain(plan); });
  if (Support() == before) return;
  ForgetRepairs();
  if (waiting_families_.empty()) return;
  pace_.NoteUrgent();
  next_trigger_ = Trigger::kConfig;
}

void Agent::Turn(Trigger trigger) {
  const SteadyTime start = SteadyNow();
  const absl::Duration cpu_before = options_.cpu_used();
  next_trigger_ = Trigger::kTimer;
  Round round{.trigger = trigger};
  waiting_families_.clear();
  Sighting sighting;
  if (absl::Status status = EnsureBackend(); !status.ok()) {
    round.report.status = std::move(status);
  } else {
    EnsureWatching();
    sighting = lookout_.Take();
    suspects_.NoteCommits(sighting.commits, sighting.others);
    Reconcile(round);
  }
  // Nothing was.
  if (options_.observe) {
    for (Finding& finding : round.report.plan.diff.findings) finding.mended = false;
  }
  const SteadyTime end = SteadyNow();
  round.external_changes = sighting.changes;
  round.lost_events = sighting.lost_events;
  round.duration = end - start;
  const absl::Status& status = round.report.status;
  pace_.NoteLook(start, end, options_.cpu_used() - cpu_before, !status.ok());
  NoteSuspects(round.report);
  const bool stopped = sighting.stopped || lookout_.seen().stopped;
  if (stopped && !lookout_.watching()) pace_.NoteWaiting(end + kWatchAgain);
  // Repairs of the native table are neither damped nor incidents.
  damping_.NoteApplied(WithoutNative(round.report.applied), end);
  pace_.NoteWaiting(damping_.next());
  if (!round.report.applied.empty() && IsLegacy(*backend_)) pace_.NoteWaiting(end + kSecondLook);
  round.fights_begun = damping_.TakeBegun();
  round.fights_ended = damping_.TakeEnded();
  NoteDamage(round, std::min(sighting.first, start), end);
  suspects_.NoteApplied(round.report.applied);
  NoteFamilies(round, end);
  if (backend_ != nullptr && !options_.observe && damping_.next() == SteadyTime::InfiniteFuture()) {
    Reconciler reconciler(backend_.get(), SteadyClock(), options_.support);
    round.retirement = retirer_.Run(reconciler, SteadyClock(), options_.input, round);
    pace_.NoteWaiting(retirer_.next());
  }
  NoteState(round, end);
  // A socket may be broken for good, a program may have come; either is found by opening anew. So
  // is an nf_tables that was not loaded for observing's sake.
  const bool broken = !status.ok() && !MayPassByItself(status);
  if (broken || (options_.observe && !lookout_.watching())) CloseBackend();
  Rearm();
  observer_(round);
}

Diff Agent::Restrain(const Plan& plan) {
  if (options_.observe) return {};
  const SteadyTime now = SteadyNow();
  Diff allowed = plan.diff;
  suspects_.NoteCheck(plan);
  allowed.changes = damping_.Allow(plan, now);
  std::erase_if(allowed.changes, [&](const Change& change) {
    if (IsNative(change)) return false;
    const netlink::ChainId& chain = netlink::ChainOf(change.operation);
    const FamilyRecord& record = RecordOf(chain.family);
    if (record.backoff.next() <= now) return false;
    waiting_families_.insert(chain.family);
    return record.refused.empty() || IsRefused(record, change);
  });
  // What takes the native table's place may be among what is to wait.
  if (allowed.changes.size() != plan.diff.changes.size()) {
    std::erase_if(allowed.changes, [](const Change& change) {
      return std::holds_alternative<netlink::DeleteNativeTable>(change.operation);
    });
  }
  return allowed;
}

void Agent::NoteSuspects(const SyncReport& report) {
  if (options_.observe || report.plan.diff.changes.empty()) return;
  // The kernel reports a commit a moment after its effect can be read, and before it takes ours.
  lookout_.Drain();
  // Some may be younger than the check, and once drained they wake nobody.
  if (lookout_.seen().changes > 0) pace_.NoteChange();
  const Sighting late = lookout_.TakeCommits();
  suspects_.NoteCommits(late.commits, late.others);
  damping_.NoteSuspects(suspects_);
}

bool Agent::IsRefused(const FamilyRecord& record, const Change& change) const {
  const netlink::Table table = netlink::ChainOf(change.operation).table;
  return !record.refused.empty() &&
         (WaitsForOtherTables(DesiredRuleset(options_.input, Support()), change) ||
          std::find(record.refused.begin(), record.refused.end(), table) != record.refused.end());
}

void Agent::NoteDamage(Round& round, SteadyTime noticed, SteadyTime ended) {
  const SyncReport& report = round.report;
  // What stands is not known, and what stood last is what the next look is compared with.
  if (!report.status.ok()) return;
  std::vector<Change> damage;
  for (const Change& change : WithoutNative(report.applied)) {
    const FamilyRecord& record = RecordOf(netlink::ChainOf(change.operation).family);
    if (!record.settled || IsRefused(record, change)) continue;
    if (IsRefill(change, report.plan)) {
      ++round.refills;
    } else {
      damage.push_back(change);
    }
  }
  std::vector<ForeignJump> before = std::exchange(foreign_jumps_, report.plan.foreign_jumps);
  // Of a family that failed it may not be known what stands.
  std::erase_if(before, [&](const ForeignJump& jump) {
    return !report.StatusOf(jump.base_chain.family).ok();
  });
  if (damage.empty()) return;
  std::vector<Item> items;
  items.reserve(damage.size());
  for (const Change& change : damage) items.push_back(ItemOf(change.operation));
  Suspected suspected = suspects_.Of(items);
  Incident incident{.damage = DamageOf(damage),
                    .writers = std::move(suspected.writers),
                    .others = suspected.others,
                    .lost_jumps = {},
                    .latency = ended - noticed,
                    .applying = report.applying};
  std::set_difference(before.begin(), before.end(), foreign_jumps_.begin(), foreign_jumps_.end(),
                      std::back_inserter(incident.lost_jumps));
  round.incident = std::move(incident);
}

void Agent::NoteFamilies(Round& round, SteadyTime steady_now) {
  const std::vector<Fight> fights = damping_.fights(steady_now);
  for (FamilyState& state : state_.families) {
    FamilyRecord& record = RecordOf(state.family);
    if (waiting_families_.count(state.family) != 0) {
      pace_.NoteWaiting(record.backoff.next());
      continue;
    }
    const FamilyVerdict verdict = JudgeFamily(state.family, round.report, fights, options_.observe);
    const bool failed = !round.report.StatusOf(state.family).ok();
    record.refused = round.report.RefusedTablesOf(state.family);
    record.settled = !failed || !record.refused.empty();
    if (!failed) {
      record.backoff.NoteSuccess();
    } else if (round.report.status.ok()) {
      // Only this family: the other is looked after as before.
      record.backoff.NoteFailure(steady_now, LongestWait(round.report.StatusOf(state.family)));
      pace_.NoteWaiting(record.backoff.next());
    }
    if (Update(verdict, absl::Now(), state, record.reason_key)) {
      round.changed_families.push_back(state);
    }
  }
}

void Agent::NoteState(const Round& round, SteadyTime steady_now) {
  const absl::Time now = absl::Now();
  const SyncReport& report = round.report;
  state_.heartbeat = now;
  state_.last_look = now;
  state_.looks += static_cast<uint64_t>(report.looks);
  if (report.FirstError().ok()) state_.last_success = now;
  state_.fights = damping_.fights(steady_now);
  if (round.retirement && round.retirement->status.ok()) {
    state_.claimed = round.retirement->plan.kept;
    if (round.retirement->surveyed) {
      state_.foreign_references = round.retirement->dependents.reference_counts;
    }
  }
  if (report.status.ok()) {
    state_.findings = report.plan.diff.findings;
    state_.in_place = WithoutNative(report.plan.diff.in_place);
    state_.stale = WithClaims(WithoutNative(report.plan.diff.stale),
                              {.changes = Retired(round), .kept = state_.claimed});
    state_.martian_protection = MartianProtectionStands(report);
    state_.martians_dropped += martian_count_.Note(report.plan.martians.dropped);
    // Read seldom: a file for each interface.
    if (options_.route_localnet && round.trigger != Trigger::kChange) {
      state_.route_localnet = options_.route_localnet();
    }
  }
  if (!round.incident) return;
  ++state_.incidents;
  auto& recent = state_.recent_incidents;
  recent.insert(recent.begin(), absl::StrCat(absl::FormatTime(now), " ",
                                             ToString(WithoutCommandLines(*round.incident))));
  if (recent.size() > kRecentIncidents) recent.pop_back();
}

}  // namespace kipt::agent
