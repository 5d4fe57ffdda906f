// SPDX-License-Identifier: Apache-2.0
//
// What iptables calls a comparison of a part of the packet: no Statement where it has no option for
// it.
#ifndef KIPT_NETLINK_COMPARISON_H_
#define KIPT_NETLINK_COMPARISON_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "netlink/attributes.h"
#include "netlink/statement.h"

namespace kipt::netlink {

// The length of a prefix mask. Nothing where a one follows a zero.
std::optional<uint8_t> PrefixLength(WireBytes mask);

// `bytes` has at least four.
uint32_t HostOrder(WireBytes bytes);

// payload: `length` bytes of the packet into a register.
struct PayloadLoad {
  uint32_t base = 0;  // enum nft_payload_bases
  uint32_t offset = 0;
  uint32_t length = 0;
};

// cmp, for equality or inequality.
struct Comparison {
  bool negated = false;
  WireBytes data;
};

// range, and cmp for more or less: low <= value <= high, as numbers in network order. An empty
// bound is none; an `open` range excludes its bounds.
struct RangeComparison {
  bool negated = false;
  bool open = false;
  WireBytes low;
  WireBytes high;
};

// `mask` is as long as what is compared.
std::vector<Statement> ReadPayload(std::optional<Family> family, const PayloadLoad& load,
                                   const std::optional<WireBytes>& mask,
                                   const Comparison& comparison);
std::vector<Statement> ReadPortRange(const PayloadLoad& load, const RangeComparison& range);
// `key` is an enum nft_meta_keys.
std::vector<Statement> ReadMeta(uint32_t key, const std::optional<WireBytes>& mask,
                                const Comparison& comparison);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_COMPARISON_H_
