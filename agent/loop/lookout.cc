// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/lookout.h"

#include <algorithm>
#include <utility>

namespace kipt::agent {

Lookout::Lookout(EventLoop& loop, const WriterSources& sources, std::function<void()> on_sight)
    : loop_(loop), lookup_(sources), on_sight_(std::move(on_sight)) {}

absl::Status Lookout::Watch(netlink::Backend& backend, netlink::WatchMode mode) {
  Stop();
  failure_ = absl::OkStatus();
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> monitor = backend.Watch(mode);
  if (!monitor.ok()) return monitor.status();
  absl::StatusOr<std::unique_ptr<EventSource>> readable =
      loop_.AddReadable((*monitor)->fd(), [this] { OnReadable(); });
  if (!readable.ok()) return readable.status();
  monitor_ = *std::move(monitor);
  readable_ = *std::move(readable);
  return absl::OkStatus();
}

void Lookout::Stop() {
  readable_.reset();
  monitor_.reset();
}

void Lookout::Pause(bool pause) {
  if (readable_ == nullptr) return;
  failure_.Update(readable_->Enable(!pause));
}

void Lookout::Drain() {
  if (monitor_ == nullptr) return;
  const absl::Time now = SteadyNow();
  const absl::StatusOr<netlink::RulesetChanges> changes = monitor_->Drain();
  if (!changes.ok()) {
    failure_ = changes.status();
    Stop();
    return;
  }
  seen_.changes += changes->count;
  seen_.lost_events += changes->lost;
  if (changes->count > 0) seen_.first = std::min(seen_.first, now);
  for (const netlink::RulesetChange& change : changes->writers) {
    if (seen_.writers.size() == netlink::RulesetChanges::kMaxWriters) break;
    Writer writer = lookup_.Identify(change);
    const auto same = [&](const Writer& known) {
      return known.pid == writer.pid && known.command == writer.command;
    };
    // What was found out first counts: the process may have ended since.
    if (std::none_of(seen_.writers.begin(), seen_.writers.end(), same)) {
      seen_.writers.push_back(std::move(writer));
    }
  }
}

void Lookout::OnReadable() {
  const uint64_t before = seen_.changes;
  Drain();
  if (seen_.changes != before || monitor_ == nullptr) on_sight_();
}

Sighting Lookout::Take() { return std::exchange(seen_, {}); }

}  // namespace kipt::agent
