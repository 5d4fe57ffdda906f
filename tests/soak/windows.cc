// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/windows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace kipt::soak {
namespace {

// Nobody asks for older ones.
constexpr absl::Duration kKept = absl::Minutes(1);

}  // namespace

const char* NameOf(Guard guard) {
  switch (guard) {
    case kMasq4:
      return "masquerade/ipv4";
    case kMasq6:
      return "masquerade/ipv6";
    case kDrop4:
      return "drop-mark/ipv4";
    case kDrop6:
      return "drop-mark/ipv6";
    case kMartian:
      return "martian";
    case kGuards:
      break;
  }
  return "?";
}

GuardSet GuardsOf(testing::IpFamily family) {
  return family == testing::IpFamily::kIpv4 ? Bit(kMasq4) | Bit(kDrop4) | Bit(kMartian)
                                            : Bit(kMasq6) | Bit(kDrop6);
}

Windows::Windows(std::string node, Journal& journal, absl::Duration bound, absl::Duration slack,
                 Clock clock)
    : node_(std::move(node)),
      journal_(journal),
      bound_(bound),
      slack_(slack),
      clock_(std::move(clock)),
      back_since_(clock_()) {}

// The part of a window in which the daemon could have acted.
absl::Duration Windows::Counted(const State& state, absl::Time when) const {
  if (away_ || !state.broken_since || !state.expected) return absl::ZeroDuration();
  return when - std::max({*state.broken_since, back_since_, state.expected_since});
}

bool Windows::IsAnnounced(Guard guard, Span span) const {
  for (const auto& [number, announced] : announced_) {
    if ((announced.first & Bit(guard)) != 0 && announced.second < span.to + slack_) return true;
  }
  const std::deque<Span>& past = announcements_past_[guard];
  return std::any_of(past.begin(), past.end(), [&](const Span& one) {
    return one.from < span.to + slack_ && one.to > span.from - slack_;
  });
}

void Windows::Open(Guard guard, State& state, absl::Time when) {
  state.broken_since = when;
  journal_.Event(node_, absl::StrCat(NameOf(guard), " does not stand",
                                     state.expected ? "" : ", and is not wanted"));
  // Everybody here announces what may break it. Who does not is the daemon.
  if (!state.seen || !state.expected || IsAnnounced(guard, {state.last_sound, when})) return;
  journal_.Violate(
      node_, "repair",
      absl::StrCat(NameOf(guard), " does not stand, and nobody was about to damage it"),
      "the daemon takes nothing away that is wanted");
}

void Windows::Close(Guard guard, State& state, absl::Time when) {
  const absl::Duration counted = Counted(state, when);
  // Else it was not wanted, or others have put it back while the daemon could not.
  if (counted > absl::ZeroDuration()) repairs_.push_back(counted);
  if (back_since_ > *state.broken_since) longest_return_ = std::max(longest_return_, counted);
  journal_.Event(node_, absl::StrCat(NameOf(guard), " stands again after ",
                                     absl::FormatDuration(when - *state.broken_since)));
  state.broken_since.reset();
  state.told = false;
}

void Windows::See(const Sight& sight, Span look) {
  const absl::Time when = look.to;
  const std::lock_guard<std::mutex> lock(mutex_);
  checks_.push_back(look.to - look.from);
  for (unsigned i = 0; i < kGuards; ++i) {
    const Guard guard = static_cast<Guard>(i);
    State& state = states_[i];
    if (!sight.ours[i] && !state.broken_since) Open(guard, state, when);
    if (state.broken_since && Counted(state, when) > bound_ && !state.told) {
      state.told = true;
      journal_.Violate(node_, "repair",
                       absl::StrCat(NameOf(guard), " does not stand for ",
                                    absl::FormatDuration(Counted(state, when))),
                       absl::StrCat("repaired within ", absl::FormatDuration(bound_)));
    }
    if (sight.ours[i] && state.broken_since) Close(guard, state, when);
    // What an announced damage did, and who repaired it, is known once a look has begun after it.
    while (!unproven_[i].empty() && unproven_[i].front().to <= look.from) {
      excuses_[i].push_back({unproven_[i].front().from, when});
      unproven_[i].pop_front();
    }
    const bool sound = sight.ours[i] && sight.theirs[i];
    if (!sound && !state.unsound_since) {
      state.unsound_since = state.seen ? state.last_sound : absl::InfinitePast();
    }
    if (sound && state.unsound_since) {
      excuses_[i].push_back({*state.unsound_since, when});
      state.unsound_since.reset();
    }
    if (sound) state.last_sound = look.from;
    state.seen = true;
    for (std::deque<Span>* spans : {&excuses_[i], &announcements_past_[i]}) {
      while (!spans->empty() && spans->front().to < when - kKept) spans->pop_front();
    }
  }
}

void Windows::Expect(GuardSet guards) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (unsigned i = 0; i < kGuards; ++i) {
    const bool expected = (guards >> i & 1U) != 0;
    if (expected && !states_[i].expected) states_[i].expected_since = clock_();
    states_[i].expected = expected;
  }
}

GuardSet Windows::expected() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  GuardSet guards = 0;
  for (unsigned i = 0; i < kGuards; ++i) guards |= states_[i].expected ? 1U << i : 0U;
  return guards;
}

bool Windows::ExpectedSince(Guard guard, absl::Time since) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return states_[guard].expected && states_[guard].expected_since <= since;
}

bool Windows::all_stand() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::all_of(states_.begin(), states_.end(), [](const State& state) {
    return !state.expected || (state.seen && !state.unsound_since);
  });
}

bool Windows::everything_stands() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::all_of(states_.begin(), states_.end(),
                     [](const State& state) { return state.seen && !state.unsound_since; });
}

void Windows::DaemonIsAway() {
  const std::lock_guard<std::mutex> lock(mutex_);
  away_ = true;
}

void Windows::DaemonIsBack() {
  const std::lock_guard<std::mutex> lock(mutex_);
  away_ = false;
  back_since_ = clock_();
}

bool Windows::daemon_is_away() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return away_;
}

int Windows::Begin(GuardSet guards) {
  const std::lock_guard<std::mutex> lock(mutex_);
  announced_[++announcements_] = {guards, clock_()};
  return announcements_;
}

void Windows::End(int announcement) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [guards, from] = announced_.at(announcement);
  announced_.erase(announcement);
  for (unsigned i = 0; i < kGuards; ++i) {
    if ((guards >> i & 1U) == 0) continue;
    unproven_[i].push_back({from, clock_()});
    announcements_past_[i].push_back({from, clock_()});
  }
}

absl::Duration Windows::Excused(Guard guard, Span span) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Span> excuses(excuses_[guard].begin(), excuses_[guard].end());
  const State& state = states_[guard];
  if (state.unsound_since) excuses.push_back({*state.unsound_since, absl::InfiniteFuture()});
  for (const Span& one : unproven_[guard]) {
    excuses.push_back({one.from, absl::InfiniteFuture()});
  }
  for (const auto& [number, announced] : announced_) {
    if ((announced.first & Bit(guard)) != 0) {
      excuses.push_back({announced.second, absl::InfiniteFuture()});
    }
  }
  std::sort(excuses.begin(), excuses.end(),
            [](const Span& a, const Span& b) { return a.from < b.from; });
  absl::Duration excused;
  absl::Time done = span.from;
  for (const Span& excuse : excuses) {
    const absl::Time from = std::max(done, excuse.from - slack_);
    const absl::Time to = std::min(span.to, excuse.to + slack_);
    if (to <= from) continue;
    excused += to - from;
    done = to;
  }
  return excused;
}

std::vector<absl::Duration> Windows::repairs() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return repairs_;
}

std::vector<absl::Duration> Windows::looks() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return checks_;
}

absl::Duration Windows::longest_return() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return longest_return_;
}

Announcement::Announcement(Windows& windows, GuardSet guards)
    : windows_(windows), announcement_(windows.Begin(guards)) {}

Announcement::~Announcement() { windows_.End(announcement_); }

}  // namespace kipt::soak
