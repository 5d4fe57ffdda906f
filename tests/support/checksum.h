// SPDX-License-Identifier: Apache-2.0
//
// The Internet checksum (RFC 1071) of packets that tests make.
#ifndef KIPT_TESTS_SUPPORT_CHECKSUM_H_
#define KIPT_TESTS_SUPPORT_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kipt::testing {

inline uint16_t Checksum(const std::vector<uint8_t>& bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i < bytes.size(); i += 2) {
    const uint32_t low = i + 1 < bytes.size() ? bytes[i + 1] : 0;
    sum += static_cast<uint32_t>(bytes[i]) << 8 | low;
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum & 0xffff);
}

inline void SetChecksum(std::vector<uint8_t>& bytes, size_t offset, uint16_t checksum) {
  bytes[offset] = static_cast<uint8_t>(checksum >> 8);
  bytes[offset + 1] = static_cast<uint8_t>(checksum & 0xff);
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_CHECKSUM_H_
