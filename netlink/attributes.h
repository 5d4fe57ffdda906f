// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/attributes.h
//
// Netlink attributes read from bytes that may be anything: nothing here trusts a length. Integers
// of nf_tables are big endian.
#ifndef KIPT_NETLINK_ATTRIBUTES_H_
#define KIPT_NETLINK_ATTRIBUTES_H_

#include <cstdint>
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

// The attributes of one nest, or of one message behind its nfgenmsg. Points into the bytes it was
// parsed from, and takes no memory of its own: a look at the kernel reads hundreds of them.
class Attributes {
 public:
  // Nothing where a length does not fit.
  static std::optional<Attributes> Parse(WireBytes bytes);
  // Those of a whole message, behind its nlmsghdr and nfgenmsg. Nothing also where it is shorter
  // than these.
  static std::optional<Attributes> OfMessage(WireBytes message);

  // In their order.
  std::vector<Attribute> all() const;

  // Every type is one of `types`, and none comes twice.
  bool HasOnly(std::initializer_list<uint16_t> types) const;

  // The first attribute of that type. Nothing where there is none, or where it has another size
  // than asked for.
  std::optional<WireBytes> Bytes(uint16_t type) const;
  std::optional<uint16_t> U16(uint16_t type) const;
  std::optional<uint32_t> U32(uint16_t type) const;
  std::optional<uint64_t> U64(uint16_t type) const;
  // Up to the NUL, or the end where there is none.
  std::optional<std::string> Text(uint16_t type) const;
  // Nothing also where the nest is malformed.
  std::optional<Attributes> Nest(uint16_t type) const;

 private:
  // Each of its lengths fits.
  WireBytes bytes_;
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_ATTRIBUTES_H_
