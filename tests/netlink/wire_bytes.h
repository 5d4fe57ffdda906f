// SPDX-License-Identifier: Apache-2.0
//
// Messages of nf_tables made byte by byte, from linux/netfilter/nf_tables.h and nothing else: what
// the codec is tested against must not come from the codec or its library.
#ifndef KIPT_TESTS_NETLINK_WIRE_BYTES_H_
#define KIPT_TESTS_NETLINK_WIRE_BYTES_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "netlink/ruleset.h"

namespace kipt::testing {

using Bytes = std::vector<uint8_t>;

template <typename T>
Bytes HostOrder(T value) {
  Bytes bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

inline Bytes Join(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Spaces are skipped.
inline Bytes FromHex(const std::string& hex) {
  std::string digits;
  for (const char c : hex) {
    if (c != ' ') digits += c;
  }
  const std::string bytes = absl::HexStringToBytes(digits);
  return {bytes.begin(), bytes.end()};
}

inline std::string ToHex(const Bytes& bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

inline Bytes Zeros(size_t count) { return Bytes(count, 0); }
// With its NUL.
inline Bytes Text(const std::string& text) {
  Bytes bytes(text.begin(), text.end());
  bytes.push_back(0);
  return bytes;
}

// Big endian.
inline Bytes U32(uint32_t value) {
  return {static_cast<uint8_t>(value >> 24), static_cast<uint8_t>(value >> 16),
          static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)};
}

inline Bytes HostU32(uint32_t value) { return HostOrder(value); }
inline Bytes HostU16(uint16_t value) { return HostOrder(value); }

// One attribute with header and padding.
inline Bytes Attr(uint16_t type, const Bytes& payload) {
  Bytes bytes = Join({HostU16(static_cast<uint16_t>(4 + payload.size())), HostU16(type), payload});
  while (bytes.size() % 4 != 0) bytes.push_back(0);
  return bytes;
}

inline Bytes Attr(uint16_t type, uint32_t value) { return Attr(type, U32(value)); }

// Expressions, each as one element of NFTA_RULE_EXPRESSIONS. Register 1 where none is named.
inline Bytes ExpressionBytes(const std::string& name, const Bytes& data) {
  return Attr(1, Join({Attr(1, Text(name)), Attr(2, data)}));
}

inline Bytes Payload(uint32_t base, uint32_t offset, uint32_t length, uint32_t to = 1) {
  return ExpressionBytes("payload",
                         Join({Attr(1, to), Attr(2, base), Attr(3, offset), Attr(4, length)}));
}

inline Bytes Meta(uint32_t key, uint32_t to = 1) {
  return ExpressionBytes("meta", Join({Attr(2, key), Attr(1, to)}));
}

// The masked register with `bits` inverted.
inline Bytes Flip(const Bytes& mask, const Bytes& bits, uint32_t from = 1, uint32_t to = 1,
                  const Bytes& more = {}) {
  return ExpressionBytes(
      "bitwise", Join({Attr(1, from), Attr(2, to), Attr(3, static_cast<uint32_t>(mask.size())),
                       more, Attr(4, Attr(1, mask)), Attr(5, Attr(1, bits))}));
}
inline Bytes Mask(const Bytes& mask, uint32_t from = 1, uint32_t to = 1) {
  return Flip(mask, Zeros(mask.size()), from, to);
}
inline Bytes MaskWithOp(const Bytes& mask, uint32_t op = 0) {
  return Flip(mask, Zeros(mask.size()), 1, 1, Attr(6, op));
}

// 0: equal, 1: not.
inline Bytes Compare(const Bytes& data, uint32_t op = 0, uint32_t from = 1) {
  return ExpressionBytes("cmp", Join({Attr(1, from), Attr(2, op), Attr(3, Attr(1, data))}));
}

inline Bytes Range(const Bytes& low, const Bytes& high, uint32_t op = 0) {
  return ExpressionBytes(
      "range", Join({Attr(1, 1), Attr(2, op), Attr(3, Attr(1, low)), Attr(4, Attr(1, high))}));
}

inline Bytes Immediate(const Bytes& data, uint32_t to = 1) {
  return ExpressionBytes("immediate", Join({Attr(1, to), Attr(2, Attr(1, data))}));
}

inline Bytes SetMeta(uint32_t key) {
  return ExpressionBytes("meta", Join({Attr(2, key), Attr(3, 1)}));
}

inline Bytes Ct(uint32_t key, uint32_t to = 1) {
  return ExpressionBytes("ct", Join({Attr(1, to), Attr(2, key)}));
}

inline Bytes SetCt(uint32_t key) { return ExpressionBytes("ct", Join({Attr(2, key), Attr(4, 1)})); }

inline Bytes Lookup(const std::string& set, uint32_t from = 1) {
  return ExpressionBytes("lookup", Join({Attr(1, Text(set)), Attr(2, from)}));
}

inline Bytes CounterBytes() {
  return ExpressionBytes("counter", Join({Attr(1, FromHex("0000000000000054")),
                                          Attr(2, FromHex("0000000000000001"))}));
}

inline Bytes Verdict(int32_t code, const std::string& chain = "") {
  Bytes verdict = Attr(1, static_cast<uint32_t>(code));
  if (!chain.empty()) verdict = Join({verdict, Attr(2, Text(chain))});
  return ExpressionBytes("immediate", Join({Attr(1, 0), Attr(2, Attr(2, verdict))}));
}

inline Bytes Xt(const std::string& kind, const std::string& name, uint32_t revision,
                const Bytes& info) {
  return ExpressionBytes(kind, Join({Attr(1, Text(name)), Attr(2, revision), Attr(3, info)}));
}

inline Bytes XtMatch(const std::string& name, uint32_t revision, const Bytes& info) {
  return Xt("match", name, revision, info);
}

inline Bytes XtTarget(const std::string& name, uint32_t revision, const Bytes& info) {
  return Xt("target", name, revision, info);
}

// The xtables blobs, as the kernel dumps them.
inline Bytes XtCommentInfo(const std::string& text) {
  Bytes info(text.begin(), text.end());
  info.resize(256, 0);
  return info;
}

inline Bytes XtMarkInfo(uint32_t value, uint32_t mask, uint8_t invert) {
  return Join({HostU32(value), HostU32(mask), {invert}, Zeros(7)});
}

inline Bytes XtCtStateInfo(uint16_t match_flags, uint16_t invert_flags, uint16_t states) {
  return Join(
      {Zeros(146), HostU16(match_flags), HostU16(invert_flags), HostU16(states), Zeros(16)});
}

// 1: negated, 2: set.
inline Bytes XtConnLabelInfo(uint16_t label, uint16_t options) {
  return Join({HostU16(label), HostU16(options), Zeros(4)});
}

inline Bytes XtSetMarkInfo(uint32_t value, uint32_t mask) {
  return Join({HostU32(value), HostU32(mask)});
}

// IPv4.
inline Bytes XtMasqueradeInfo(uint32_t flags, uint32_t ranges = 1) {
  return Join({HostU32(ranges), HostU32(flags), Zeros(16)});
}

inline Bytes XtMasqueradeInfo6(uint32_t flags) { return Join({HostU32(flags), Zeros(36)}); }

// A whole NFT_MSG_NEWRULE of handle 7 in filter/TEST with these expressions and, after them, the
// attributes in `more`.
inline Bytes RuleMessage(netlink::Family family, const std::vector<Bytes>& expressions,
                         const Bytes& more = {}) {
  const uint8_t wire_family = family == netlink::Family::kIPv4 ? 2 : 10;
  const Bytes body = Join({{wire_family, 0, 0, 0},
                           Attr(1, Text("filter")),
                           Attr(2, Text("TEST")),
                           Attr(3, FromHex("0000000000000007")),
                           Attr(4, Join(expressions)),
                           more});
  const auto length = static_cast<uint32_t>(16 + body.size());
  return Join({HostU32(length), HostU16(0x0a06), HostU16(0), Zeros(8), body});
}

// NFTA_RULE_USERDATA with a comment, as nft and iptables-nft write it.
inline Bytes UserDataComment(const std::string& text) {
  return Attr(7, Join({{0, static_cast<uint8_t>(text.size() + 1)}, Text(text)}));
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_NETLINK_WIRE_BYTES_H_
