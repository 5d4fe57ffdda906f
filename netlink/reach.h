// SPDX-License-Identifier: Apache-2.0
//
// Whether packets reach a rule: a walk along the rules of a chain and into the chains that they
// jump to. A rule that is known to choose packets counts as one that keeps no packet from the next
// rule; one of which that is not known counts as one that may keep every packet.
#ifndef KIPT_NETLINK_REACH_H_
#define KIPT_NETLINK_REACH_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/types/span.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

// The chains that ChainQuery::follow asks for, in addition to those of `read`, whose rules are
// known. Read them and call again, until there are none.
std::set<ChainId> ChainsOnTheWay(const std::map<ChainId, ObservedChain>& chains,
                                 absl::Span<const ChainQuery> queries,
                                 const std::set<ChainId>& read);

// Walks through `snapshot`, which must outlive it. A chain that was not read stops no packet.
class Walk {
 public:
  explicit Walk(const Snapshot& snapshot) : snapshot_(snapshot) {}

  // Perhaps no packet that reaches `rule` of `chain` reaches the next one: a verdict, a goto, a
  // jump to a chain that no packet returns from, or something that is not known.
  bool Stops(const ChainId& chain, const ObservedRule& rule) {
    return Stops(chain, rule, Doubt::kStops);
  }
  // The same where it is certain.
  bool StopsSurely(const ChainId& chain, const ObservedRule& rule) {
    return Stops(chain, rule, Doubt::kPasses);
  }
  // Every packet that reaches `rule` of `chain` is dropped or rejected there, or in the chain that
  // it jumps to.
  bool Drops(const ChainId& chain, const ObservedRule& rule) {
    return Drops(chain, rule, /*unheard=*/false, 0);
  }
  // Or is queued for a program, and dropped where none listens.
  bool DropsUnheard(const ChainId& chain, const ObservedRule& rule) {
    return Drops(chain, rule, /*unheard=*/true, 0);
  }
  // Every packet in `from` reaches `to`, of the same table.
  bool Leads(const ChainId& from, const ChainId& to);

 private:
  // What something that is not known counts as.
  enum class Doubt : uint8_t { kStops, kPasses };
  static bool TakesAll(const ObservedRule& rule, Doubt doubt);
  static bool Ends(const ObservedRule& rule, Doubt doubt);
  bool Stops(const ChainId& chain, const ObservedRule& rule, Doubt doubt);
  bool KeepsEveryPacket(const ChainId& chain, Doubt doubt, int depth);
  bool Drops(const ChainId& chain, const ObservedRule& rule, bool unheard, int depth);
  bool Leads(const ChainId& from, const ChainId& to, int depth, std::set<ChainId>& seen);

  const Snapshot& snapshot_;
  // Whether a chain keeps every packet, for the chains that were walked through.
  std::map<std::pair<ChainId, Doubt>, bool> keeps_;
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_REACH_H_
