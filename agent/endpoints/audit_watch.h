// SPDX-License-Identifier: Apache-2.0
//
// Audits the node again and again while rules are kept in place: on a thread of its own that works
// for a millisecond at a time, with backends of its own, so that no repair waits for an audit.
#ifndef KIPT_AGENT_ENDPOINTS_AUDIT_WATCH_H_
#define KIPT_AGENT_ENDPOINTS_AUDIT_WATCH_H_

#include <pthread.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/audit/node_audit.h"
#include "agent/loop/clock.h"
#include "agent/loop/event_loop.h"

namespace kipt::agent {

// Not safe for use by several threads at once. Must be destroyed before its loop.
class AuditWatch {
 public:
  // The first audit begins so long after the start, or a period after it, if that is shorter: first
  // others start, too.
  static constexpr absl::Duration kFirstAfter = absl::Seconds(30);
  // After an audit that failed, at most so long.
  static constexpr absl::Duration kAgainAfter = absl::Minutes(1);
  // An audit that took a second of processor time is followed by so many seconds without one.
  static constexpr int kRestFactor = 100;

  // AuditNode for what is configured. Called on the audit's thread, possibly after the watch's end
  // (End), so it refers to nothing that ends.
  using Work = std::function<absl::StatusOr<NodeAudit>(const std::function<absl::Status()>& pause)>;

  // Called on the loop's thread, at the end of an audit.
  struct Handlers {
    std::function<void(NodeAudit)> done;
    // `work`'s error, or ResourceExhausted: no thread.
    std::function<void(const absl::Status&)> failed;
  };

  AuditWatch(EventLoop& loop, Handlers handlers);
  // As End(1 s).
  ~AuditWatch();
  AuditWatch(const AuditWatch&) = delete;
  AuditWatch& operator=(const AuditWatch&) = delete;

  // From now on an audit begins every `period`; zero: none, and one that runs has no result. Less
  // often where that would take more than a hundredth of a processor.
  void Set(absl::Duration period, Work work);

  // Ends the running audit. False: it still runs after `patience`, because a program or a disk
  // hangs; then the process must end without running destructors of static objects.
  bool End(absl::Duration patience);

 private:
  struct Run;

  absl::Status Begin();
  void OnEnd();

  EventLoop& loop_;
  const Handlers handlers_;
  absl::Duration period_ = absl::ZeroDuration();
  Work work_;
  bool any_begun_ = false;
  const std::unique_ptr<Timer> timer_;

  // While an audit runs.
  std::shared_ptr<Run> run_;
  std::unique_ptr<EventSource> ended_;
  pthread_t thread_ = {};
  SteadyTime began_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_AUDIT_WATCH_H_
