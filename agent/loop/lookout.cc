// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/lookout.h"

#include <algorithm>
#include <utility>

namespace kipt::agent {

Lookout::Lookout(EventLoop& loop, const WriterSources& sources, std::function<void()> on_sight)
    : loop_(loop), lookup_(sources), on_sight_(std::move(on_sight)) {}

absl::Status Lookout::Watch(netlink::Backend& backend, netlink::WatchMode mode) {
  Stop();
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> monitor = backend.Watch(mode);
  if (!monitor.ok()) return monitor.status();
  absl::StatusOr<std::unique_ptr<EventSource>> readable =
      loop_.AddReadable((*monitor)->fd(), [this] { OnReadable(); });
  if (!readable.ok()) return readable.status();
  monitor_ = *std::move(monitor);
  readable_ = *std::move(readable);
  // Who committed before is not reported.
  seen_.others = true;
  return absl::OkStatus();
}

void Lookout::Stop() {
  readable_.reset();
  monitor_.reset();
}

void Lookout::Pause(bool pause) {
  if (readable_ == nullptr) return;
  // Else it would be deaf from now on.
  if (absl::Status status = readable_->Enable(!pause); !status.ok()) Fail(std::move(status));
}

void Lookout::Fail(absl::Status status) {
  failure_ = std::move(status);
  seen_.stopped = true;
  Stop();
}

void Lookout::Drain() {
  if (monitor_ == nullptr) return;
  const SteadyTime now = SteadyNow();
  const absl::StatusOr<netlink::RulesetChanges> changes = monitor_->Drain();
  if (!changes.ok()) {
    Fail(changes.status());
    return;
  }
  seen_.changes += changes->count;
  seen_.lost_events += changes->lost;
  if (changes->count > 0) seen_.first = std::min(seen_.first, now);
  seen_.others |= changes->others > 0 || changes->lost > 0;
  for (const netlink::RulesetChange& change : changes->writers) Note(change);
}

void Lookout::Note(const netlink::RulesetChange& change) {
  std::vector<Commits>& commits = seen_.commits;
  Commits next = {.first = change.first_generation,
                  .last = change.generation,
                  .writer = lookup_.Identify(change)};
  const auto known = std::find_if(commits.begin(), commits.end(), [&](const Commits& one) {
    return one.writer.pid == next.writer.pid && one.writer.command == next.writer.command;
  });
  if (known != commits.end()) {
    // What was found out first counts: the process may have ended since.
    known->last = next.last;
  } else if (commits.size() < netlink::RulesetChanges::kMaxWriters) {
    commits.push_back(std::move(next));
  } else {
    seen_.others = true;
  }
}

void Lookout::OnReadable() {
  const uint64_t before = seen_.changes;
  Drain();
  if (seen_.changes != before || monitor_ == nullptr) on_sight_();
}

Sighting Lookout::Take() { return std::exchange(seen_, {}); }

Sighting Lookout::TakeCommits() {
  Sighting taken = {.commits = std::exchange(seen_.commits, {}),
                    .others = std::exchange(seen_.others, false)};
  return taken;
}

}  // namespace kipt::agent
