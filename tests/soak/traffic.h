// SPDX-License-Identifier: Apache-2.0
//
// File: tests/soak/traffic.h
//
// Packets that never cease. UDP, and TCP connections, of both families: those to a pod's port must
// come masqueraded, those to a port of the node that somebody has dropped must not come; martians,
// neither.
#ifndef KIPT_TESTS_SOAK_TRAFFIC_H_
#define KIPT_TESTS_SOAK_TRAFFIC_H_

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/skew/probes/stream.h"
#include "tests/soak/node.h"

namespace kipt::soak {

struct TrafficCount {
  int64_t sent = 0;
  int64_t right = 0;
  // That came as they must not, or came where they must not; those that nothing excuses are
  // violations.
  int64_t wrong = 0;
  // That must come and did not.
  int64_t lost = 0;
  // Of the sent and the lost, those that nothing excuses.
  int64_t sent_in_peace = 0;
  int64_t lost_in_peace = 0;
};

// Who decides what is excused. What happens is judged a little later, when all that may excuse it
// is known.
class Judge {
 public:
  explicit Judge(Node& node) : node_(node) {}

  // In `span` so many packets were sent; `of` is "UDP" or "TCP". Where nothing is expected of them
  // now they do not count.
  void Note(const char* of, Guard guard, Span span, const TrafficCount& count);
  // Of all that is old enough, or of everything. For one thread at a time.
  void Decide(bool everything);
  std::array<TrafficCount, kGuards> udp() const;
  std::array<TrafficCount, kGuards> tcp() const;

 private:
  struct Case {
    const char* of;
    Guard guard;
    Span span;
    TrafficCount count;
  };
  // Both what was sent in peace and came to nothing, by protocol and guard: until enough is known
  // to be judged.
  struct Peace {
    int64_t sent = 0;
    int64_t lost = 0;
    absl::Time from;
  };
  void DecideWrong(const Case& one, absl::Duration excused);
  void DecideLost(const Case& one, Peace& peace);

  Node& node_;
  mutable std::mutex mutex_;
  std::deque<Case> cases_;
  std::array<TrafficCount, kGuards> udp_;
  std::array<TrafficCount, kGuards> tcp_;
  // Of Decide alone, which one thread calls at a time.
  std::array<Peace, kGuards> udp_peace_;
  std::array<Peace, kGuards> tcp_peace_;
};

// Each until the node has ended.
void SendDatagrams(Node& node, Judge& judge);
void MakeConnections(Node& node, Judge& judge);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_TRAFFIC_H_
