// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/fingerprint.h"

#include <bit>
#include <random>

namespace kipt::agent {

Fingerprinter::Fingerprinter(const FingerprintKey& key)
    : state_{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ 0xee,
             key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573} {}

void Fingerprinter::Round() {
  auto& [v0, v1, v2, v3] = state_;
  v0 += v1;
  v1 = std::rotl(v1, 13) ^ v0;
  v0 = std::rotl(v0, 32);
  v2 += v3;
  v3 = std::rotl(v3, 16) ^ v2;
  v0 += v3;
  v3 = std::rotl(v3, 21) ^ v0;
  v2 += v1;
  v1 = std::rotl(v1, 17) ^ v2;
  v2 = std::rotl(v2, 32);
}

void Fingerprinter::Compress(uint64_t word) {
  state_[3] ^= word;
  Round();
  Round();
  state_[0] ^= word;
}

void Fingerprinter::Add(absl::string_view text) {
  for (const char c : text) {
    pending_ |= uint64_t{static_cast<unsigned char>(c)} << (8 * (length_ % 8));
    if (++length_ % 8 != 0) continue;
    Compress(pending_);
    pending_ = 0;
  }
}

Fingerprint Fingerprinter::Finish() {
  Compress(pending_ | uint64_t{length_ & 0xff} << 56);
  const auto half = [this](size_t word, uint64_t tweak) {
    state_[word] ^= tweak;
    for (int i = 0; i < 4; ++i) Round();
    return state_[0] ^ state_[1] ^ state_[2] ^ state_[3];
  };
  const uint64_t first = half(2, 0xee);
  return {first, half(1, 0xdd)};
}

FingerprintKey RandomFingerprintKey() {
  std::random_device random;
  const auto word = [&random] { return uint64_t{random()} << 32 | random(); };
  const uint64_t first = word();
  return {first, word()};
}

}  // namespace kipt::agent
