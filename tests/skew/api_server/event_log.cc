// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/api_server/event_log.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace kipt::skew {

void EventLog::Add(Resource resource, const char* type, nlohmann::json object) {
  object["metadata"]["resourceVersion"] = absl::StrCat(events_.size() + 1);
  events_.push_back({resource, type, std::move(object)});
}

void EventLog::Set(const Objects& objects) {
  const absl::MutexLock lock(&mutex_);
  for (auto& [resource, old] : objects_) {
    const auto fresh = objects.find(resource);
    for (const auto& [key, object] : old) {
      if (fresh != objects.end() && fresh->second.contains(key)) continue;
      Add(resource, "DELETED", object);
      versioned_[resource].erase(key);
    }
  }
  for (const auto& [resource, fresh] : objects) {
    for (const auto& [key, object] : fresh) {
      const auto& old = objects_[resource];
      const auto same = old.find(key);
      if (same != old.end() && same->second == object) continue;
      Add(resource, same == old.end() ? "ADDED" : "MODIFIED", object);
      versioned_[resource][key] = events_.back().object;
    }
  }
  objects_ = objects;
}

EventLog::Snapshot EventLog::Of(Resource resource) const {
  const absl::MutexLock lock(&mutex_);
  Snapshot snapshot;
  snapshot.version = events_.size();
  const auto objects = versioned_.find(resource);
  if (objects == versioned_.end()) return snapshot;
  for (const auto& [key, object] : objects->second) snapshot.items.push_back(object);
  return snapshot;
}

std::vector<EventLog::Event> EventLog::After(size_t version) const {
  const absl::MutexLock lock(&mutex_);
  const auto ready = [this, version]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return closed_ || events_.size() > version;
  };
  mutex_.Await(absl::Condition(&ready));
  if (closed_) return {};
  return {events_.begin() + static_cast<std::ptrdiff_t>(version), events_.end()};
}

void EventLog::Close() {
  const absl::MutexLock lock(&mutex_);
  closed_ = true;
}

}  // namespace kipt::skew
