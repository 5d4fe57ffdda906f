// SPDX-License-Identifier: Apache-2.0
//
// When which protection did not stand, as it was seen in the kernel, and who was about to take it
// away. Safe for use by several threads.
#ifndef KIPT_TESTS_SOAK_WINDOWS_H_
#define KIPT_TESTS_SOAK_WINDOWS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/soak/journal.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::soak {

// What a stream of packets depends on.
enum Guard : unsigned { kMasq4, kMasq6, kDrop4, kDrop6, kMartian, kGuards };
const char* NameOf(Guard guard);
// A set of guards, as bits.
using GuardSet = unsigned;
constexpr GuardSet Bit(Guard guard) { return 1U << guard; }
inline constexpr GuardSet kAllGuards = (1U << kGuards) - 1;
GuardSet GuardsOf(testing::IpFamily family);

struct Span {
  absl::Time from;
  absl::Time to;
};

// What was seen in one look: of each guard, whether our rules stand, and those of whoever sends its
// packets to them.
struct Sight {
  std::array<bool, kGuards> ours = {};
  std::array<bool, kGuards> theirs = {};

  bool IsWhole() const {
    const auto exists = [](bool one) { return one; };
    return std::all_of(ours.begin(), ours.end(), exists) &&
           std::all_of(theirs.begin(), theirs.end(), exists);
  }
};

class Windows {
 public:
  using Clock = std::function<absl::Time()>;

  // `bound`: how long a rule may be missing while the daemon can act. `slack`: how much later than
  // it happens something may be seen.
  Windows(std::string node, Journal& journal, absl::Duration bound, absl::Duration slack,
          Clock clock = absl::Now);

  // As it was at some time in `look`.
  void See(const Sight& sight, Span look);
  // From now on packets of these are looked at, or not.
  void Expect(GuardSet guards);
  GuardSet expected() const;
  // All of these have been expected since then.
  bool ExpectedSince(Guard guard, absl::Time since) const;

  // Those that are expected, as they were seen last.
  bool all_stand() const;

  bool everything_stands() const;

  // The daemon cannot act now (killed, stopped, the lock held); from now on it can.
  void DaemonIsAway();
  void DaemonIsBack();
  bool daemon_is_away() const;

  // Somebody may break these from now on, until End(). Packets may go wrong until a look that has
  // begun afterwards shows that all stands.
  int Begin(GuardSet guards);
  void End(int announcement);
  // What of `span` is excused: windows as seen and as announced, with the slack on both sides.
  absl::Duration Excused(Guard guard, Span span) const;

  // How long each window of ours was that the daemon could do something about.
  std::vector<absl::Duration> repairs() const;
  // How long each read of the rules took.
  std::vector<absl::Duration> looks() const;
  // That of the time after the daemon had come back to something broken.
  absl::Duration longest_return() const;

 private:
  struct State {
    bool seen = false;
    bool expected = false;
    absl::Time expected_since = absl::InfiniteFuture();
    absl::Time last_sound = absl::InfinitePast();
    // Of ours, and of ours or theirs.
    std::optional<absl::Time> broken_since;
    std::optional<absl::Time> unsound_since;
    bool told = false;
  };
  absl::Duration Counted(const State& state, absl::Time when) const;
  void Open(Guard guard, State& state, absl::Time when);
  void Close(Guard guard, State& state, absl::Time when);
  bool IsAnnounced(Guard guard, Span span) const;

  const std::string node_;
  Journal& journal_;
  const absl::Duration bound_;
  const absl::Duration slack_;
  const Clock clock_;
  mutable std::mutex mutex_;
  std::array<State, kGuards> states_;
  // Those of the last minute.
  std::array<std::deque<Span>, kGuards> excuses_;
  std::array<std::deque<Span>, kGuards> announcements_past_;
  // Announcements that have ended, and no look has begun since. In the order of their ends.
  std::array<std::deque<Span>, kGuards> unproven_;
  // What was announced and goes on.
  std::map<int, std::pair<GuardSet, absl::Time>> announced_;
  int announcements_ = 0;
  bool away_ = true;
  absl::Time back_since_;
  std::vector<absl::Duration> repairs_;
  std::vector<absl::Duration> checks_;
  absl::Duration longest_return_;
};

// Announces from its construction to its destruction.
class Announcement {
 public:
  Announcement(Windows& windows, GuardSet guards);
  ~Announcement();
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

 private:
  Windows& windows_;
  const int announcement_;
};

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_WINDOWS_H_
