// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/quiet.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/support/netns.h"

namespace kipt::soak {
namespace {

// Owners cannot put anything back before the daemon has: so this is its time too.
constexpr absl::Duration kOwnersPatience = absl::Seconds(30);
// What nobody uses goes when a look at everybody's rules is due: after ten times as long as it
// took.
constexpr int kLongerForWhatIsStale = 5;
constexpr absl::Duration kBetweenComparisons = absl::Milliseconds(20);

}  // namespace

absl::Duration QuietBoundOf(const QuietLook& look, absl::Duration quiet_bound) {
  const bool is_stale =
      look.cleanup && !look.differences.empty() &&
      std::all_of(look.differences.begin(), look.differences.end(),
                  [](const std::string& one) { return absl::StrContains(one, "too many by"); });
  return quiet_bound * (is_stale ? kLongerForWhatIsStale : 1);
}

QuietVerdict JudgeQuiet(const QuietLook& look, absl::Duration quiet_bound) {
  if (look.differences.empty() && look.ready) return QuietVerdict::kInPlace;
  return look.after > QuietBoundOf(look, quiet_bound) ? QuietVerdict::kTooLate
                                                      : QuietVerdict::kNotYet;
}

bool QuietMoments::OwnersAreDone(Alone& settings, Alone& foreign) {
  const absl::Time end = absl::Now() + kOwnersPatience;
  for (;;) {
    settings.lock();
    foreign.lock();
    if (!node_.users_are_due && !node_.proxy_is_due) return true;
    if (absl::Now() > end) return false;
    foreign.unlock();
    settings.unlock();
    absl::SleepFor(kBetweenComparisons);
  }
}

void QuietMoments::Make() {
  const std::lock_guard<std::mutex> turn(node_.daemon_turn);
  node_.calm = true;
  {
    Alone settings(node_.settings_gate, std::defer_lock);
    Alone foreign(node_.foreign_gate, std::defer_lock);
    if (OwnersAreDone(settings, foreign)) {
      ExpectInPlace();
    } else {
      node_.journal.Violate(node_.name(), "in place",
                            absl::StrCat(node_.users_are_due ? "users" : "kube-proxy",
                                         " cannot put their rules back: ", daemon_.LastWords()),
                            "kubelet's chains stand");
    }
  }
  node_.calm = false;
}

void QuietMoments::ExpectInPlace() {
  const testing::InNetns inside(node_.netns());
  const absl::Time start = absl::Now();
  absl::StatusOr<Rules> golden = absl::UnknownError("");
  QuietLook look = {.cleanup = node_.settings.cleanup};
  QuietVerdict verdict = QuietVerdict::kNotYet;
  for (;;) {
    const absl::StatusOr<Rules> rules = SavedRules(node_.mode());
    // The time that making the golden rules takes is not the daemon's.
    look.after = absl::Now() - start;
    if (!golden.ok()) golden = golden_.Get();
    const absl::Status status = golden.ok() ? rules.status() : golden.status();
    look.differences = status.ok() ? DifferencesOf(*rules, *golden, node_.ledger)
                                   : Lines{std::string(status.message())};
    look.ready = !look.differences.empty() || daemon_.IsReady();
    verdict = JudgeQuiet(look, node_.options().limits.quiet);
    if (verdict != QuietVerdict::kNotYet) break;
    absl::SleepFor(kBetweenComparisons);
  }
  node_.journal.Count(node_.name(), "quiet moments");
  if (verdict == QuietVerdict::kInPlace) {
    took_.push_back(look.after);
    node_.journal.Event(
        node_.name(),
        absl::StrCat("quiet: all in place after ", absl::FormatDuration(look.after), ", ",
                     node_.settings.Text(), ", ", node_.ledger.size(), " lines in the ledger"));
    return;
  }
  node_.journal.Violate(
      node_.name(), "in place",
      absl::StrCat(look.ready ? absl::StrJoin(look.differences, "; ") : "the daemon is not ready",
                   " (", node_.settings.Text(), ", kube-proxy ",
                   node_.proxy ? absl::StrCat("1.", node_.proxy->minor) : "none", ")"),
      absl::StrCat("all in place within ",
                   absl::FormatDuration(QuietBoundOf(look, node_.options().limits.quiet))));
}

}  // namespace kipt::soak
