// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/attribution.h"

#include <set>
#include <utility>

#include "absl/algorithm/container.h"

namespace kipt::agent {
namespace {

// Enough for a log line.
constexpr size_t kMaxWriters = 12;
// Between two checks. Far more than a WriterWatch notes.
constexpr size_t kMaxRecent = 64;

// Generations start again after 2^32.
bool IsAfter(uint32_t generation, uint32_t other) {
  return static_cast<int32_t>(generation - other) > 0;
}

// False where there is no room for it.
bool Add(const Writer& writer, std::vector<Writer>& writers) {
  if (absl::c_any_of(writers, [&](const Writer& known) { return known.IsSame(writer); })) {
    return true;
  }
  if (writers.size() >= kMaxWriters) return false;
  writers.push_back(writer);
  return true;
}

}  // namespace

void WriterAttribution::Window::Ascribe(const Commits& commits) {
  if (IsAfter(commits.first, until) || !IsAfter(commits.last, after)) return;
  if (!Add(commits.writer, writers)) others = true;
}

bool WriterAttribution::IsComplete(const Window& window) const {
  return reported_ && !IsAfter(window.until, *reported_);
}

void WriterAttribution::NoteCommits(absl::Span<const Commits> commits, bool others) {
  std::set<Window*> windows;
  for (const auto& [item, window] : missing_) windows.insert(window.get());
  for (const auto& [item, window] : appeared_) windows.insert(window.get());
  for (Window* window : windows) {
    if (!IsComplete(*window)) window->others |= others;
    for (const Commits& one : commits) window->Ascribe(one);
  }
  recent_others_ |= others;
  for (const Commits& one : commits) {
    if (!reported_ || IsAfter(one.last, *reported_)) reported_ = one.last;
    const bool fits = recent_.size() < kMaxRecent;
    if (fits) recent_.push_back(one);
    recent_others_ |= !fits;
  }
}

void WriterAttribution::NoteCheck(const Plan& plan, absl::Span<const Item> appeared) {
  std::map<netlink::Family, std::shared_ptr<Window>> windows;
  for (const netlink::Family family : plan.families) {
    const auto [checked, first] = checked_.try_emplace(family, plan.generation);
    const auto window = windows[family] =
        std::make_shared<Window>(Window{.after = std::exchange(checked->second, plan.generation),
                                        .until = plan.generation,
                                        .others = recent_others_ || first});
    for (const Commits& one : recent_) window->Ascribe(one);
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
  for (const Item& item : appeared) {
    const auto window = windows.find(item.chain.family);
    if (window != windows.end()) appeared_.try_emplace(item, window->second);
  }
  std::erase_if(recent_, [this](const Commits& one) {
    return absl::c_none_of(
        checked_, [&one](const auto& checked) { return IsAfter(one.last, checked.second); });
  });
  if (windows.size() == checked_.size()) recent_others_ = false;
}

void WriterAttribution::NoteApplied(absl::Span<const Change> applied) {
  for (const Change& change : applied) missing_.erase(ItemOf(change.operation));
}

Suspected WriterAttribution::Of(absl::Span<const Item> items) const {
  Suspected result = {.writers = {}, .others = false};
  for (const Item& item : items) {
    const auto appeared = appeared_.find(item);
    const auto missing = missing_.find(item);
    if (appeared == appeared_.end() && missing == missing_.end()) {
      result.others = true;
      continue;
    }
    const Window& window = *(appeared != appeared_.end() ? appeared : missing)->second;
    result.others |= window.others || !IsComplete(window);
    for (const Writer& writer : window.writers) result.others |= !Add(writer, result.writers);
  }
  return result;
}

}  // namespace kipt::agent
