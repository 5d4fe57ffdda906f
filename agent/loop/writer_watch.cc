// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/writer_watch.h"

#include <algorithm>
#include <new>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"

namespace kipt::agent {

absl::Status WriterWatch::Watch(netlink::Backend& backend, netlink::WatchMode mode) {
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> monitor = backend.Watch(mode);
  if (!monitor.ok()) return monitor.status();
  absl::StatusOr<std::unique_ptr<EventSource>> readable =
      loop_.AddReadable((*monitor)->fd(), [this] { OnReadable(); });
  if (!readable.ok()) return readable.status();
  monitor_ = *std::move(monitor);
  readable_ = *std::move(readable);
  // Earlier commits are not reported.
  seen_.others = true;
  return absl::OkStatus();
}

void WriterWatch::Stop() {
  readable_.reset();
  monitor_.reset();
}

void WriterWatch::Pause(bool pause) {
  if (readable_ == nullptr) return;
  // An error here would leave changes unnoticed.
  if (absl::Status status = readable_->Enable(!pause); !status.ok()) Fail(std::move(status));
}

void WriterWatch::Fail(absl::Status status) {
  failure_ = std::move(status);
  seen_.stopped = true;
  Stop();
}

void WriterWatch::Drain() {
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

void WriterWatch::Note(const netlink::RulesetChange& change) {
  std::vector<Commits>& commits = seen_.commits;
  Commits next = {.first = change.first_generation,
                  .last = change.generation,
                  .writer = IdentifyWriter(change, sources_)};
  const auto known =
      absl::c_find_if(commits, [&](const Commits& one) { return one.writer.IsSame(next.writer); });
  if (known != commits.end()) {
    // The first description counts: the process may have ended since.
    known->last = next.last;
  } else if (commits.size() < netlink::RulesetChanges::kMaxWriters) {
    commits.push_back(std::move(next));
  } else {
    seen_.others = true;
  }
}

void WriterWatch::OnReadable() {
  const uint64_t before = seen_.changes;
  try {
    Drain();
  } catch (const std::bad_alloc&) {
    // What was read is lost, and a check finds what it did.
    ++seen_.changes;
    seen_.others = true;
  }
  if (seen_.changes != before || monitor_ == nullptr) on_sight_();
}

SeenWriters WriterWatch::TakeCommits() {
  return {.commits = std::exchange(seen_.commits, {}),
          .others = std::exchange(seen_.others, false)};
}

}  // namespace kipt::agent
