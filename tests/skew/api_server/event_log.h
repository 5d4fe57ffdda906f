// SPDX-License-Identifier: Apache-2.0
//
// What there is now, and what has happened to it: resource versions count events.
#ifndef KIPT_TESTS_SKEW_API_SERVER_EVENT_LOG_H_
#define KIPT_TESTS_SKEW_API_SERVER_EVENT_LOG_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/skew/api_server/objects.h"

namespace kipt::skew {

class EventLog {
 public:
  struct Event {
    Resource resource;
    // "ADDED", "MODIFIED", "DELETED".
    const char* type;
    nlohmann::json object;
  };
  struct Snapshot {
    std::vector<nlohmann::json> items;
    // How many events led to it.
    size_t version = 0;
  };

  void Set(const Objects& objects);
  Snapshot Of(Resource resource) const;
  // The events after `version`, of all resources: waits for the first. Empty: the end.
  std::vector<Event> After(size_t version) const;
  // Ends all waiting.
  void Close();

 private:
  void Add(Resource resource, const char* type, nlohmann::json object)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  Objects objects_ ABSL_GUARDED_BY(mutex_);
  // What objects_ has, with resourceVersion.
  Objects versioned_ ABSL_GUARDED_BY(mutex_);
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_API_SERVER_EVENT_LOG_H_
