// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/fingerprint.h
//
// A short value that stands for a long text: equal texts have equal fingerprints, and that two
// others have is as likely as guessing 128 bits.
#ifndef KIPT_AGENT_XTABLES_FINGERPRINT_H_
#define KIPT_AGENT_XTABLES_FINGERPRINT_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace kipt::agent {

using Fingerprint = std::array<uint64_t, 2>;
using FingerprintKey = std::array<uint64_t, 2>;

// SipHash-2-4 with 128 bits of output (Aumasson, Bernstein: "SipHash: a fast short-input PRF").
// With a secret key, no other program can make two texts that are taken for one.
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

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_FINGERPRINT_H_
