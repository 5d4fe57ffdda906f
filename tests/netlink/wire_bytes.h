// SPDX-License-Identifier: Apache-2.0
//
// Messages of nf_tables made byte by byte, from linux/netfilter/nf_tables.h and nothing else: what
// the codec is tested against must not come from the codec or its library.
#ifndef KIPT_TESTS_NETLINK_WIRE_BYTES_H_
#define KIPT_TESTS_NETLINK_WIRE_BYTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "netlink/ruleset.h"

namespace kipt::testing {

using Bytes = std::vector<uint8_t>;

Bytes Join(const std::vector<Bytes>& parts);
Bytes FromHex(const std::string& hex);  // spaces are skipped
std::string ToHex(const Bytes& bytes);
Bytes Zeros(size_t count);
Bytes Text(const std::string& text);  // with its NUL
Bytes U32(uint32_t value);            // big endian
Bytes HostU32(uint32_t value);
Bytes HostU16(uint16_t value);

// One attribute with header and padding.
Bytes Attr(uint16_t type, const Bytes& payload);
Bytes Attr(uint16_t type, uint32_t value);

// Expressions, each as one element of NFTA_RULE_EXPRESSIONS. Register 1 where none is named.
Bytes ExpressionBytes(const std::string& name, const Bytes& data);
Bytes Payload(uint32_t base, uint32_t offset, uint32_t length, uint32_t to = 1);
Bytes Meta(uint32_t key, uint32_t to = 1);
Bytes Mask(const Bytes& mask, uint32_t from = 1, uint32_t to = 1);
Bytes MaskWithOp(const Bytes& mask, uint32_t op = 0);
Bytes Compare(const Bytes& data, uint32_t op = 0, uint32_t from = 1);  // 0: equal, 1: not
Bytes Range(const Bytes& low, const Bytes& high, uint32_t op = 0);
Bytes Flip(const Bytes& mask, const Bytes& bits);  // the masked register with `bits` inverted
Bytes Immediate(const Bytes& data, uint32_t to = 1);
Bytes SetMeta(uint32_t key, uint32_t from = 1);
Bytes Ct(uint32_t key, uint32_t to = 1);
Bytes SetCt(uint32_t key, uint32_t from = 1);
Bytes Lookup(const std::string& set, uint32_t from = 1);
Bytes CounterBytes();
Bytes Verdict(int32_t code, const std::string& chain = "");
Bytes XtMatch(const std::string& name, uint32_t revision, const Bytes& info);
Bytes XtTarget(const std::string& name, uint32_t revision, const Bytes& info);
// The xtables blobs, as the kernel dumps them.
Bytes XtCommentInfo(const std::string& text);
Bytes XtMarkInfo(uint32_t value, uint32_t mask, uint8_t invert);
Bytes XtCtStateInfo(uint16_t match_flags, uint16_t invert_flags, uint16_t states);
Bytes XtConnLabelInfo(uint16_t label, uint16_t options);  // 1: negated, 2: set
Bytes XtSetMarkInfo(uint32_t value, uint32_t mask);
Bytes XtMasqueradeInfo(uint32_t flags, uint32_t ranges = 1);  // IPv4
Bytes XtMasqueradeInfo6(uint32_t flags);

// A whole NFT_MSG_NEWRULE of handle 7 in filter/TEST with these expressions and, behind them,
// whatever attributes `more` holds.
Bytes RuleMessage(netlink::Family family, const std::vector<Bytes>& expressions,
                  const Bytes& more = {});
// NFTA_RULE_USERDATA with a comment, as nft and iptables-nft write it.
Bytes UserDataComment(const std::string& text);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_NETLINK_WIRE_BYTES_H_
