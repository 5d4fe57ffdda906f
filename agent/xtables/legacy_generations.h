// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/legacy_generations.h
//
// Numbers for rulesets that have none of their own.
#ifndef KIPT_AGENT_XTABLES_LEGACY_GENERATIONS_H_
#define KIPT_AGENT_XTABLES_LEGACY_GENERATIONS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "agent/xtables/fingerprint.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// What stood in each family at one time; nothing for a family that was not read.
using LegacyContent = std::map<netlink::Family, Fingerprint>;

// Gives each content a number, from 1. One that comes back has its number again, if it is among the
// last ones seen.
class LegacyGenerations {
 public:
  uint32_t NumberOf(const LegacyContent& content) {
    for (const auto& [number, known] : known_) {
      if (known == content) return number;
    }
    known_.emplace_front(++last_, content);
    if (known_.size() > kMost) known_.pop_back();
    return last_;
  }

  // Null where that number was never given, or long ago.
  const LegacyContent* Find(uint32_t number) const {
    const auto found = std::find_if(known_.begin(), known_.end(),
                                    [&](const auto& each) { return each.first == number; });
    return found != known_.end() ? &found->second : nullptr;
  }

 private:
  // Only the last ones can still stand.
  static constexpr size_t kMost = 16;

  uint32_t last_ = 0;
  std::deque<std::pair<uint32_t, LegacyContent>> known_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_LEGACY_GENERATIONS_H_
