// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/stream_fates.h"

#include <algorithm>

namespace kipt::skew {

Fate FateAt(Place place, const std::string& source, const std::string& own_address,
            const std::vector<std::string>& node_addresses) {
  switch (place) {
    case Place::kNode:
      return Fate::kReachedHost;
    case Place::kPodA:
    case Place::kPodB:
    case Place::kRemotePod:
      if (source == own_address) return Fate::kServed;
      return std::find(node_addresses.begin(), node_addresses.end(), source) == node_addresses.end()
                 ? Fate::kOther
                 : Fate::kServedMasqueraded;
    case Place::kRefusedClient:
    case Place::kAllowedClient:
    case Place::kBeyond:
    case Place::kSecondNode:
      return Fate::kForwarded;
  }
  return Fate::kOther;
}

void StreamFates::Received(uint64_t number, Fate fate) {
  if (number < first_ || number >= sent()) return;
  Fate& known = fates_[static_cast<size_t>(number - first_)];
  if (known == Fate::kSilence) known = fate;
}

StreamCount StreamFates::Take(uint64_t number) {
  StreamCount count;
  uint64_t gap = 0;
  const auto end = fates_.begin() + static_cast<ptrdiff_t>(std::min(number, sent()) - first_);
  for (auto fate = fates_.begin(); fate != end; ++fate) {
    ++count.sent;
    if (*fate == Fate::kServed) ++count.served;
    if (*fate == Fate::kServedMasqueraded) ++count.served_masqueraded;
    if (*fate == Fate::kReachedHost) ++count.reached_host;
    if (*fate == Fate::kForwarded) ++count.forwarded;
    if (*fate == Fate::kOther) ++count.other;
    const bool served = *fate == Fate::kServed || *fate == Fate::kServedMasqueraded;
    gap = served ? 0 : gap + 1;
    count.longest_gap = std::max(count.longest_gap, gap);
  }
  first_ += count.sent;
  fates_.erase(fates_.begin(), end);
  return count;
}

}  // namespace kipt::skew
