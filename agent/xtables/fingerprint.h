// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/fingerprint.h
//
// A short value that stands for a long text: equal texts have equal fingerprints, and that two
// others have is as likely as guessing 128 bits.
#ifndef KIPT_AGENT_XTABLES_FINGERPRINT_H_
#define KIPT_AGENT_XTABLES_FINGERPRINT_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

using Fingerprint = std::array<uint64_t, 2>;
using FingerprintKey = std::array<uint64_t, 2>;

// SipHash-2-4 with 128 bits of output (Aumasson, Bernstein: "SipHash: a fast short-input PRF").
// With a key that others do not know, nobody can make two texts that are taken for one.
class Fingerprinter {
 public:
  explicit Fingerprinter(const FingerprintKey& key);

  void Add(absl::string_view text);
  // To be called once, last.
  Fingerprint Finish();

 private:
  void Compress(uint64_t word);
  void Round();

  std::array<uint64_t, 4> state_;
  // Bytes that do not fill a word yet, lowest first.
  uint64_t pending_ = 0;
  size_t length_ = 0;
};

FingerprintKey RandomFingerprintKey();

// The rules of each family at one time; nothing for a family that was not read.
using IptablesLegacyContent = std::map<netlink::Family, Fingerprint>;

// Numbers for rulesets that have none of their own. Each content has a number, from 1. One that
// comes back has its number again, if it is among the last ones seen.
class IptablesLegacyGenerations {
 public:
  uint32_t NumberOf(const IptablesLegacyContent& content) {
    for (const auto& [number, known] : known_) {
      if (known == content) return number;
    }
    known_.emplace_front(++last_, content);
    if (known_.size() > kMost) known_.pop_back();
    return last_;
  }

  // Null where that number was never given, or long ago.
  const IptablesLegacyContent* Find(uint32_t number) const {
    const auto found = std::find_if(known_.begin(), known_.end(),
                                    [&](const auto& each) { return each.first == number; });
    return found != known_.end() ? &found->second : nullptr;
  }

 private:
  // Only the last ones can still be current.
  static constexpr size_t kMost = 16;

  uint32_t last_ = 0;
  std::deque<std::pair<uint32_t, IptablesLegacyContent>> known_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_FINGERPRINT_H_
