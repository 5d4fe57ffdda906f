// SPDX-License-Identifier: Apache-2.0
//
// Probes that run during an act: UDP at a steady rate, each packet of a connection of its own,
// because nat sees only the first packet of a connection.
#ifndef KIPT_TESTS_SKEW_PROBES_STREAM_H_
#define KIPT_TESTS_SKEW_PROBES_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/skew/node/test_node.h"
#include "tests/skew/probes/probe.h"

namespace kipt::skew {

// Counted since the last Take().
struct StreamCount {
  std::string probe;
  uint64_t sent = 0;
  // By an endpoint (any pod), with the caller's address, or with one of the node's.
  uint64_t served = 0;
  uint64_t served_masqueraded = 0;
  // By a program on the node, or the next hop.
  uint64_t reached_host = 0;
  uint64_t forwarded = 0;
  // By an endpoint, with an address that is neither.
  uint64_t other = 0;
  // The longest run of consecutive packets of which none was served.
  uint64_t longest_gap = 0;
  // How long this machine held up the thread that sends: at once at worst, and in all. What packets
  // count as time is known no better than the first.
  uint64_t late_milliseconds = 0;
  uint64_t late_in_all_milliseconds = 0;

  // Received by no listener.
  uint64_t Silent() const {
    return sent - served - served_masqueraded - reached_host - forwarded - other;
  }
  bool operator==(const StreamCount&) const = default;
};

class Streams {
 public:
  // Sends each probe's packets (UDP; kConnect or kMartian), `per_second` of each, from this call
  // on, in a thread of its own. It has listeners of its own, of UDP, at `listeners`: no port there
  // may be one of a Battery's of the same place. `node` must outlive it.
  static absl::StatusOr<std::unique_ptr<Streams>> Start(const TestNode& node,
                                                        const std::vector<Probe>& probes,
                                                        const std::vector<ListenerPorts>& listeners,
                                                        int per_second);
  // Ends the thread.
  virtual ~Streams() = default;

  // What was sent since the last call, or the start, and what became of it; waits until packets on
  // their way have come. In the order of the probes.
  virtual std::vector<StreamCount> Take() = 0;
};

// The packets of one stream since it was last asked for, by their numbers. Counts from 0 up to
// 2^32.
class StreamFates {
 public:
  uint64_t sent() const { return first_ + fates_.size(); }
  // One more was sent: it counts as lost until it is received.
  void Sent() { fates_.push_back(Outcome::kLost); }
  void Received(uint64_t number, Outcome fate);
  // Of those before `number`, and forgets them.
  StreamCount Take(uint64_t number);

 private:
  uint64_t first_ = 0;
  std::vector<Outcome> fates_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_STREAM_H_
