// SPDX-License-Identifier: Apache-2.0
//
// Packets that never cease: UDP, and TCP connections, of both families. Those to a pod's port must
// arrive masqueraded. Those to a port of the node that a user drops must not arrive, nor must
// martian packets.
#ifndef KIPT_TESTS_SOAK_TRAFFIC_H_
#define KIPT_TESTS_SOAK_TRAFFIC_H_

#include <array>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "tests/soak/node.h"

namespace kipt::soak {

enum Transport : unsigned { kUdp, kTcp, kTransports };
const char* NameOf(Transport transport);
// Martian packets are UDP only.
constexpr bool IsSent(Transport transport, Guard guard) {
  return transport == kUdp || guard != kMartian;
}
// Packets of this stream must arrive; those of the others must not.
constexpr bool MustCome(Guard guard) { return guard == kMasq4 || guard == kMasq6; }

// TCP connections of each stream.
inline constexpr absl::Duration kBetweenConnections = absl::Milliseconds(50);

struct TrafficCount {
  int64_t sent = 0;
  int64_t right = 0;
  // Packets that arrived and must not, or not so. Those that nothing excuses are violations.
  int64_t wrong = 0;
  // Packets that must arrive and did not.
  int64_t lost = 0;
  // Sent and lost while nothing was excused: these are judged.
  int64_t judged = 0;
  int64_t judged_lost = 0;
};
using TrafficCounts = std::array<std::array<TrafficCount, kGuards>, kTransports>;

// Judges packets a little later than they are sent, when all that may excuse them is known.
class TrafficJudge {
 public:
  TrafficJudge(std::string node, const Windows& windows, Journal& journal)
      : node_(std::move(node)), windows_(windows), journal_(journal) {}

  // In `span` so many packets were sent. Not counted while nothing is expected of them, as when
  // their users are away.
  void Note(Transport transport, Guard guard, Span span, const TrafficCount& count);
  // Judges what is old enough, or everything. For one thread at a time.
  void Decide(bool everything);

  TrafficCounts counts() const;
  // A packet of this stream has arrived, whether it should or not: the listener is not deaf.
  bool WasHeard(Transport transport, Guard guard) const;

 private:
  struct Case {
    Transport transport = kUdp;
    Guard guard = kMasq4;
    Span span;
    TrafficCount count;
  };
  // Packets of one stream that are judged together for loss.
  struct Batch {
    int64_t sent = 0;
    int64_t lost = 0;
    Span span;
  };
  void DecideOne(Case one);
  void DecideWrong(const Case& one, absl::Duration excused);
  void DecideLost(Transport transport, Guard guard, Batch& batch);
  std::string Text(Span span) const;

  const std::string node_;
  const Windows& windows_;
  Journal& journal_;
  mutable std::mutex mutex_;
  std::deque<Case> cases_;
  TrafficCounts counts_ = {};
  std::array<std::array<bool, kGuards>, kTransports> heard_ = {};
  // For Decide() alone.
  std::array<std::array<Batch, kGuards>, kTransports> batches_ = {};
};

// Each until the node has ended.
void SendDatagrams(Node& node, TrafficJudge& judge);
void MakeConnections(Node& node, TrafficJudge& judge);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_TRAFFIC_H_
