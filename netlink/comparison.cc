// SPDX-License-Identifier: Apache-2.0
#include "netlink/comparison.h"

#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "netlink/nf_tables.h"

namespace kipt::netlink {
namespace {

std::optional<AddressStatement> ReadAddress(Family family, const PayloadLoad& load,
                                            const std::optional<WireBytes>& mask,
                                            const Comparison& comparison) {
  // Offsets of saddr and daddr in struct iphdr and struct ipv6hdr.
  const size_t source = family == Family::kIPv4 ? 12 : 8;
  const size_t size = family == Family::kIPv4 ? 4 : 16;
  const bool is_source = load.offset == source;
  if (load.base != NFT_PAYLOAD_NETWORK_HEADER || load.length == 0 || load.length > size ||
      comparison.data.size() != load.length || (!is_source && load.offset != source + size)) {
    return std::nullopt;
  }
  PrefixMatch match;
  match.negated = comparison.negated;
  if (mask) {
    const std::optional<uint8_t> length = PrefixLength(*mask);
    if (!length) return std::nullopt;
    match.prefix.length = *length;
  } else {
    match.prefix.length = static_cast<uint8_t>(load.length * 8);
  }
  for (size_t i = 0; i < load.length; ++i) {
    // A bit outside the mask makes a comparison that can never hold.
    if (mask && (comparison.data[i] & ~(*mask)[i]) != 0) return std::nullopt;
    match.prefix.address[i] = comparison.data[i];
  }
  return AddressStatement{.is_source = is_source, .match = match};
}

// `bytes` has at least two.
uint16_t NetworkOrder(WireBytes bytes) { return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]); }

bool IsPort(const PayloadLoad& load) {
  return load.base == NFT_PAYLOAD_TRANSPORT_HEADER && load.offset <= 2 && load.offset % 2 == 0 &&
         load.length == 2;
}

}  // namespace

std::optional<uint8_t> PrefixLength(WireBytes mask) {
  size_t bits = 0;
  bool ended = false;
  for (const uint8_t byte : mask) {
    const int ones = std::countl_one(byte);
    if ((ended && byte != 0) || std::popcount(byte) != ones) return std::nullopt;
    bits += static_cast<size_t>(ones);
    ended = ones != 8;
  }
  return static_cast<uint8_t>(bits);
}

uint32_t HostOrder(WireBytes bytes) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

std::vector<Statement> ReadPayload(std::optional<Family> family, const PayloadLoad& load,
                                   const std::optional<WireBytes>& mask,
                                   const Comparison& comparison) {
  const bool negated = comparison.negated;
  const WireBytes data = comparison.data;
  if (family) {
    if (const auto address = ReadAddress(*family, load, mask, comparison)) return {*address};
  }
  if (data.size() != load.length) return {};
  // Offset of the flags in struct tcphdr.
  if (mask && load.base == NFT_PAYLOAD_TRANSPORT_HEADER && load.offset == 13 && load.length == 1) {
    return {TcpFlagsStatement{.negated = negated, .mask = (*mask)[0], .flags = data[0]}};
  }
  if (mask) return {};
  // Offsets of `protocol` in struct iphdr, of `nexthdr` in struct ipv6hdr.
  const uint32_t protocol_offset = family == Family::kIPv4 ? 9 : 6;
  if (family && load.base == NFT_PAYLOAD_NETWORK_HEADER && load.offset == protocol_offset &&
      load.length == 1) {
    return {ProtocolStatement{.negated = negated, .protocol = data[0]}};
  }
  const auto port = [&](bool is_source, WireBytes bytes) {
    const uint16_t number = NetworkOrder(bytes);
    return PortStatement{
        .is_source = is_source, .negated = negated, .first = number, .last = number};
  };
  if (IsPort(load)) return {port(load.offset == 0, data)};
  // iptables-nft compares both ports at once where it can. Not equal, that is neither option
  // negated: it is either of them.
  if (load.base == NFT_PAYLOAD_TRANSPORT_HEADER && load.offset == 0 && load.length == 4 &&
      !negated) {
    return {port(true, data), port(false, data.subspan(2))};
  }
  return {};
}

std::vector<Statement> ReadPortRange(const PayloadLoad& load, const RangeComparison& range) {
  const auto fits = [](WireBytes bound) { return bound.empty() || bound.size() == 2; };
  if (!IsPort(load) || !fits(range.low) || !fits(range.high)) return {};
  int first = range.low.empty() ? 0 : NetworkOrder(range.low);
  int last = range.high.empty() ? 0xffff : NetworkOrder(range.high);
  if (range.open) {
    if (range.low.empty()) --last;
    if (range.high.empty()) ++first;
  }
  // One that holds no port.
  if (first > last) return {};
  return {PortStatement{.is_source = load.offset == 0,
                        .negated = range.negated,
                        .first = static_cast<uint16_t>(first),
                        .last = static_cast<uint16_t>(last)}};
}

std::vector<Statement> ReadMeta(uint32_t key, const std::optional<WireBytes>& mask,
                                const Comparison& comparison) {
  const auto [negated, data] = comparison;
  if (key == NFT_META_MARK && data.size() == sizeof(uint32_t)) {
    return {MarkMatch{
        .value = HostOrder(data), .mask = mask ? HostOrder(*mask) : kAllMarks, .negated = negated}};
  }
  if (mask || data.empty()) return {};
  if (key == NFT_META_L4PROTO && data.size() == 1) {
    return {ProtocolStatement{.negated = negated, .protocol = data[0]}};
  }
  // LOOPBACK_IFINDEX of the kernel: in every network namespace the first interface is lo.
  if (key == NFT_META_IIF && data.size() == sizeof(uint32_t) && HostOrder(data) == 1) {
    return {InterfaceStatement{.is_input = true, .negated = negated, .name = "lo"}};
  }
  if (key != NFT_META_IIFNAME && key != NFT_META_OIFNAME) return {};
  const auto* const end = std::find(data.begin(), data.end(), 0);
  std::string name(data.begin(), end);
  // A comparison that ends before the NUL is one of beginnings.
  if (end == data.end()) name += '+';
  return {InterfaceStatement{
      .is_input = key == NFT_META_IIFNAME, .negated = negated, .name = std::move(name)}};
}

}  // namespace kipt::netlink
