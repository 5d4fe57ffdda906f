// SPDX-License-Identifier: Apache-2.0
//
// Netlink attributes, read from bytes that may be anything. Integers of nf_tables are big endian,
// those of rtnetlink and generic netlink are in the machine's order (Host).
#ifndef KIPT_NETLINK_ATTRIBUTES_H_
#define KIPT_NETLINK_ATTRIBUTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace kipt::netlink {

using WireBytes = absl::Span<const uint8_t>;

struct Attribute {
  uint16_t type = 0;  // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
  WireBytes payload;
};

// The attributes of one nest, or of one message after its protocol's header. Points into the bytes
// that it was parsed from.
class Attributes {
 public:
  // Nothing where a length does not fit.
  static std::optional<Attributes> Parse(WireBytes bytes);
  // Those of a whole message, its nlmsghdr included, after `header` bytes (nfgenmsg, genlmsghdr:
  // 4). None where it is malformed.
  static Attributes OfMessage(WireBytes message, size_t header = 4);

  std::vector<Attribute> all() const;

  // Every type is one of `types`, and none comes twice.
  bool HasOnly(std::initializer_list<uint16_t> types) const;

  // The first attribute of that type. Nothing where there is none, or where its size is another.
  std::optional<WireBytes> Bytes(uint16_t type) const;
  std::optional<uint16_t> U16(uint16_t type) const;
  std::optional<uint32_t> U32(uint16_t type) const;
  std::optional<uint64_t> U64(uint16_t type) const;
  template <typename T>
  std::optional<T> Host(uint16_t type) const {
    const std::optional<WireBytes> bytes = Bytes(type);
    if (!bytes || bytes->size() != sizeof(T)) return std::nullopt;
    T value = {};
    std::memcpy(&value, bytes->data(), sizeof value);
    return value;
  }
  // Up to the NUL, or the end where there is none.
  std::optional<std::string> Text(uint16_t type) const;
  // None where there is no such nest, or it is malformed.
  Attributes Nest(uint16_t type) const;

 private:
  WireBytes bytes_;  // whose lengths fit
};

// nfgen_family of a message that has attributes.
uint8_t FamilyOf(WireBytes message);

// nlmsg_type of an NFT_MSG_*.
uint16_t NftMessageType(uint16_t type);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_ATTRIBUTES_H_
