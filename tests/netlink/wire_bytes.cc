// SPDX-License-Identifier: Apache-2.0
#include "tests/netlink/wire_bytes.h"

#include <cstring>

#include "absl/strings/escaping.h"

namespace kipt::testing {
namespace {

template <typename T>
Bytes HostOrder(T value) {
  Bytes bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

Bytes Xt(const std::string& kind, const std::string& name, uint32_t revision, const Bytes& info) {
  return ExpressionBytes(kind, Join({Attr(1, Text(name)), Attr(2, revision), Attr(3, info)}));
}

}  // namespace

Bytes Join(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Bytes FromHex(const std::string& hex) {
  std::string digits;
  for (const char c : hex) {
    if (c != ' ') digits += c;
  }
  const std::string bytes = absl::HexStringToBytes(digits);
  return {bytes.begin(), bytes.end()};
}

std::string ToHex(const Bytes& bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Bytes Zeros(size_t count) { return Bytes(count, 0); }

Bytes Text(const std::string& text) {
  Bytes bytes(text.begin(), text.end());
  bytes.push_back(0);
  return bytes;
}

Bytes U32(uint32_t value) {
  return {static_cast<uint8_t>(value >> 24), static_cast<uint8_t>(value >> 16),
          static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)};
}

Bytes HostU32(uint32_t value) { return HostOrder(value); }
Bytes HostU16(uint16_t value) { return HostOrder(value); }

Bytes Attr(uint16_t type, const Bytes& payload) {
  Bytes bytes = Join({HostU16(static_cast<uint16_t>(4 + payload.size())), HostU16(type), payload});
  while (bytes.size() % 4 != 0) bytes.push_back(0);
  return bytes;
}

Bytes Attr(uint16_t type, uint32_t value) { return Attr(type, U32(value)); }

Bytes ExpressionBytes(const std::string& name, const Bytes& data) {
  return Attr(1, Join({Attr(1, Text(name)), Attr(2, data)}));
}

Bytes Payload(uint32_t base, uint32_t offset, uint32_t length, uint32_t to) {
  return ExpressionBytes("payload",
                         Join({Attr(1, to), Attr(2, base), Attr(3, offset), Attr(4, length)}));
}

Bytes Meta(uint32_t key, uint32_t to) {
  return ExpressionBytes("meta", Join({Attr(2, key), Attr(1, to)}));
}

Bytes Mask(const Bytes& mask, uint32_t from, uint32_t to) {
  return ExpressionBytes(
      "bitwise", Join({Attr(1, from), Attr(2, to), Attr(3, static_cast<uint32_t>(mask.size())),
                       Attr(4, Attr(1, mask)), Attr(5, Attr(1, Zeros(mask.size())))}));
}

Bytes MaskWithOp(const Bytes& mask, uint32_t op) {
  return ExpressionBytes(
      "bitwise", Join({Attr(1, 1), Attr(2, 1), Attr(3, static_cast<uint32_t>(mask.size())),
                       Attr(6, op), Attr(4, Attr(1, mask)), Attr(5, Attr(1, Zeros(mask.size())))}));
}

Bytes Compare(const Bytes& data, uint32_t op, uint32_t from) {
  return ExpressionBytes("cmp", Join({Attr(1, from), Attr(2, op), Attr(3, Attr(1, data))}));
}

Bytes Range(const Bytes& low, const Bytes& high, uint32_t op) {
  return ExpressionBytes(
      "range", Join({Attr(1, 1), Attr(2, op), Attr(3, Attr(1, low)), Attr(4, Attr(1, high))}));
}

Bytes Flip(const Bytes& mask, const Bytes& bits) {
  return ExpressionBytes("bitwise",
                         Join({Attr(1, 1), Attr(2, 1), Attr(3, static_cast<uint32_t>(mask.size())),
                               Attr(4, Attr(1, mask)), Attr(5, Attr(1, bits))}));
}

Bytes Immediate(const Bytes& data, uint32_t to) {
  return ExpressionBytes("immediate", Join({Attr(1, to), Attr(2, Attr(1, data))}));
}

Bytes SetMeta(uint32_t key, uint32_t from) {
  return ExpressionBytes("meta", Join({Attr(2, key), Attr(3, from)}));
}

Bytes Ct(uint32_t key, uint32_t to) {
  return ExpressionBytes("ct", Join({Attr(1, to), Attr(2, key)}));
}

Bytes SetCt(uint32_t key, uint32_t from) {
  return ExpressionBytes("ct", Join({Attr(2, key), Attr(4, from)}));
}

Bytes Lookup(const std::string& set, uint32_t from) {
  return ExpressionBytes("lookup", Join({Attr(1, Text(set)), Attr(2, from)}));
}

Bytes CounterBytes() {
  return ExpressionBytes("counter", Join({Attr(1, FromHex("0000000000000054")),
                                          Attr(2, FromHex("0000000000000001"))}));
}

Bytes Verdict(int32_t code, const std::string& chain) {
  Bytes verdict = Attr(1, static_cast<uint32_t>(code));
  if (!chain.empty()) verdict = Join({verdict, Attr(2, Text(chain))});
  return ExpressionBytes("immediate", Join({Attr(1, 0), Attr(2, Attr(2, verdict))}));
}

Bytes XtMatch(const std::string& name, uint32_t revision, const Bytes& info) {
  return Xt("match", name, revision, info);
}

Bytes XtTarget(const std::string& name, uint32_t revision, const Bytes& info) {
  return Xt("target", name, revision, info);
}

Bytes XtCommentInfo(const std::string& text) {
  Bytes info(text.begin(), text.end());
  info.resize(256, 0);
  return info;
}

Bytes XtMarkInfo(uint32_t value, uint32_t mask, uint8_t invert) {
  return Join({HostU32(value), HostU32(mask), {invert}, Zeros(7)});
}

Bytes XtCtStateInfo(uint16_t match_flags, uint16_t invert_flags, uint16_t states) {
  return Join(
      {Zeros(146), HostU16(match_flags), HostU16(invert_flags), HostU16(states), Zeros(16)});
}

Bytes XtConnLabelInfo(uint16_t label, uint16_t options) {
  return Join({HostU16(label), HostU16(options), Zeros(4)});
}

Bytes XtSetMarkInfo(uint32_t value, uint32_t mask) { return Join({HostU32(value), HostU32(mask)}); }

Bytes XtMasqueradeInfo(uint32_t flags, uint32_t ranges) {
  return Join({HostU32(ranges), HostU32(flags), Zeros(16)});
}

Bytes XtMasqueradeInfo6(uint32_t flags) { return Join({HostU32(flags), Zeros(36)}); }

Bytes RuleMessage(netlink::Family family, const std::vector<Bytes>& expressions,
                  const Bytes& more) {
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

Bytes UserDataComment(const std::string& text) {
  return Attr(7, Join({{0, static_cast<uint8_t>(text.size() + 1)}, Text(text)}));
}

}  // namespace kipt::testing
