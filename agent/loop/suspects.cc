// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/suspects.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "agent/policy/chain_diff.h"

namespace kipt::agent {
namespace {

// Enough for a log line.
constexpr size_t kMaxWriters = 12;
// Of what was heard of between two checks. Far more than a Lookout notes.
constexpr size_t kMaxRecent = 64;

// Generations start again after 2^32.
bool IsAfter(uint32_t generation, uint32_t other) {
  return static_cast<int32_t>(generation - other) > 0;
}

bool IsSame(const Writer& a, const Writer& b) { return a.pid == b.pid && a.command == b.command; }

// False where there is no room for it.
bool Add(const Writer& writer, std::vector<Writer>& writers) {
  if (absl::c_any_of(writers, [&](const Writer& known) { return IsSame(known, writer); })) {
    return true;
  }
  if (writers.size() >= kMaxWriters) return false;
  writers.push_back(writer);
  return true;
}

}  // namespace

Item ItemOf(const netlink::Operation& operation) {
  const netlink::ChainId& chain = netlink::ChainOf(operation);
  const auto* add = std::get_if<netlink::AddRule>(&operation);
  return {chain, add != nullptr ? RuleText(chain, add->rule) : netlink::ToString(operation)};
}

bool IsAddition(const Change& change) {
  return std::holds_alternative<netlink::AddRule>(change.operation) ||
         std::holds_alternative<netlink::CreateChain>(change.operation) ||
         std::holds_alternative<netlink::WakeTable>(change.operation);
}

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
  const auto known =
      absl::c_find_if(commits, [&](const Commits& one) { return IsSame(one.writer, next.writer); });
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
  return {.commits = std::exchange(seen_.commits, {}),
          .others = std::exchange(seen_.others, false)};
}

void Suspects::Window::Ascribe(const Commits& commits) {
  if (IsAfter(commits.first, until) || !IsAfter(commits.last, after)) return;
  if (!Add(commits.writer, writers)) others = true;
}

bool Suspects::IsComplete(const Window& window) const {
  return heard_ && !IsAfter(window.until, *heard_);
}

void Suspects::NoteCommits(absl::Span<const Commits> commits, bool others) {
  std::set<Window*> windows;
  for (const auto& [item, window] : missing_) windows.insert(window.get());
  for (Window* window : windows) {
    if (!IsComplete(*window)) window->others |= others;
    for (const Commits& one : commits) window->Ascribe(one);
  }
  recent_others_ |= others;
  for (const Commits& one : commits) {
    if (!heard_ || IsAfter(one.last, *heard_)) heard_ = one.last;
    if (recent_.size() < kMaxRecent) {
      recent_.push_back(one);
    } else {
      recent_others_ = true;
    }
  }
}

std::shared_ptr<Suspects::Window> Suspects::WindowOf(netlink::Family family,
                                                     uint32_t generation) const {
  const auto checked = checked_.find(family);
  auto window = std::make_shared<Window>();
  window->until = generation;
  window->after = checked == checked_.end() ? generation : checked->second;
  window->others = recent_others_ || checked == checked_.end();
  for (const Commits& one : recent_) window->Ascribe(one);
  return window;
}

void Suspects::NoteCheck(const Plan& plan) {
  std::map<netlink::Family, std::shared_ptr<Window>> windows;
  for (const netlink::Family family : plan.families) {
    windows[family] = WindowOf(family, plan.generation);
    checked_[family] = plan.generation;
  }
  const auto before = std::exchange(missing_, {});
  for (const auto& [item, window] : before) {
    if (windows.count(item.chain.family) == 0) missing_[item] = window;
  }
  for (const Change& change : plan.diff.changes) {
    Item item = ItemOf(change.operation);
    const auto known = before.find(item);
    missing_[std::move(item)] =
        known != before.end() ? known->second : windows[netlink::ChainOf(change.operation).family];
  }
  std::erase_if(recent_, [this](const Commits& one) {
    return absl::c_none_of(
        checked_, [&one](const auto& checked) { return IsAfter(one.last, checked.second); });
  });
  if (windows.size() == checked_.size()) recent_others_ = false;
}

void Suspects::NoteApplied(absl::Span<const Change> applied) {
  for (const Change& change : applied) missing_.erase(ItemOf(change.operation));
}

void Suspects::Forget() {
  missing_.clear();
  checked_.clear();
}

Suspected Suspects::Of(absl::Span<const Item> items) const {
  Suspected result = {.writers = {}, .others = false};
  for (const Item& item : items) {
    const auto found = missing_.find(item);
    if (found == missing_.end()) {
      result.others = true;
      continue;
    }
    const Window& window = *found->second;
    result.others |= window.others || !IsComplete(window);
    for (const Writer& writer : window.writers) result.others |= !Add(writer, result.writers);
  }
  return result;
}

}  // namespace kipt::agent
