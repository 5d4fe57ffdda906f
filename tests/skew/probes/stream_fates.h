// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_SKEW_PROBES_STREAM_FATES_H_
#define KIPT_TESTS_SKEW_PROBES_STREAM_FATES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/skew/probes/stream.h"

namespace kipt::skew {

// What became of a stream's packet. kSilence: nobody has received it yet.
enum class Fate : uint8_t {
  kSilence,
  kServed,
  kServedMasqueraded,
  kReachedHost,
  kForwarded,
  kOther
};

// A packet came to `place`, where `source` was seen. `own_address`: of who sent it.
Fate FateAt(Place place, const std::string& source, const std::string& own_address,
            const std::vector<std::string>& node_addresses);

// The packets of one stream since it was last asked for, by their numbers. Counts from 0 up to
// 2^32.
class StreamFates {
 public:
  uint64_t sent() const { return first_ + fates_.size(); }
  // Another one is on its way.
  void Sent() { fates_.push_back(Fate::kSilence); }
  void Received(uint64_t number, Fate fate);
  // Of those before `number`, and forgets them.
  StreamCount Take(uint64_t number);

 private:
  uint64_t first_ = 0;
  std::vector<Fate> fates_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_STREAM_FATES_H_
