// SPDX-License-Identifier: Apache-2.0
//
// When to load the configuration file again.
#ifndef KIPT_AGENT_RELOAD_WATCH_H_
#define KIPT_AGENT_RELOAD_WATCH_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "agent/loop/clock.h"
#include "agent/loop/event_loop.h"
#include "agent/process/config_watch.h"

namespace kipt::agent {

// Made, used and destroyed on the loop's thread.
class ReloadWatch {
 public:
  // `reload` is called 100 ms after a change, because an editor removes the old file before it
  // writes the new one; a file that changes all the time is loaded 500 ms after its first change.
  // Errors are ConfigWatch's and the loop's.
  static absl::StatusOr<std::unique_ptr<ReloadWatch>> Create(EventLoop& loop,
                                                             const std::string& path,
                                                             std::function<void()> reload);

 private:
  explicit ReloadWatch(std::function<void()> reload) : reload_(std::move(reload)) {}
  void OnChange();

  const std::function<void()> reload_;
  std::unique_ptr<ConfigWatch> file_;
  std::unique_ptr<EventSource> changed_;
  std::unique_ptr<Timer> timer_;
  // The latest time for a reload. InfiniteFuture: none is due.
  SteadyTime due_ = SteadyTime::InfiniteFuture();
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_RELOAD_WATCH_H_
