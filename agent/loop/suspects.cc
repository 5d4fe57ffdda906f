// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/suspects.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

// False where there is no room for it.
bool Add(const Writer& writer, std::vector<Writer>& writers) {
  const auto same = [&](const Writer& known) {
    return known.pid == writer.pid && known.command == writer.command;
  };
  if (std::any_of(writers.begin(), writers.end(), same)) return true;
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

std::string ToString(const Suspected& suspected) {
  if (suspected.writers.empty()) return "somebody who was not seen";
  return absl::StrCat(
      suspected.writers.size() == 1 ? "" : "one of ",
      absl::StrJoin(suspected.writers, ", ",
                    [](std::string* out, const Writer& writer) { *out += ToString(writer); }),
      suspected.others ? ", or another process that was not seen" : "");
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
    return std::none_of(checked_.begin(), checked_.end(),
                        [&one](const auto& checked) { return IsAfter(one.last, checked.second); });
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
