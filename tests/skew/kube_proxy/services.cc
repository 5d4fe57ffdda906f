// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/kube_proxy/services.h"

#include <nettle/sha2.h>

#include <array>
#include <cstdint>
#include <vector>

namespace kipt::skew {
namespace {

constexpr size_t kCharacters = 16;
constexpr char kBase32[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

}  // namespace

const char* NameOf(Protocol protocol) { return protocol == Protocol::kTcp ? "tcp" : "udp"; }

std::string ChainHash(const std::string& text) {
  const std::vector<uint8_t> input(text.begin(), text.end());
  std::array<uint8_t, SHA256_DIGEST_SIZE> digest = {};
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, input.size(), input.data());
  sha256_digest(&context, digest.size(), digest.data());

  std::string hash;
  uint32_t bits = 0;
  int held = 0;
  for (size_t i = 0; hash.size() < kCharacters; ++i) {
    bits = (bits << 8) | digest[i];
    for (held += 8; held >= 5; held -= 5) hash += kBase32[(bits >> (held - 5)) & 31U];
  }
  return hash;
}

}  // namespace kipt::skew
