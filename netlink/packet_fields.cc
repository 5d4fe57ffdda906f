// SPDX-License-Identifier: Apache-2.0
#include "netlink/statement.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_tables.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "netlink/xt_display.h"
#include "netlink/xt_info.h"

namespace kipt::netlink {
namespace {

std::optional<Statement> ReadAddress(Family family, const PayloadLoad& load,
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

bool IsPort(const PayloadLoad& load) {
  return load.base == NFT_PAYLOAD_TRANSPORT_HEADER && load.offset <= 2 && load.offset % 2 == 0 &&
         load.length == 2;
}

// Offset of the flags in struct tcphdr.
bool IsTcpFlags(const PayloadLoad& load) {
  return load.base == NFT_PAYLOAD_TRANSPORT_HEADER && load.offset == 13 && load.length == 1;
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

uint16_t NetworkOrder(WireBytes bytes) { return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]); }

uint32_t HostOrder(WireBytes bytes) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

std::optional<Statement> ReadPayload(std::optional<Family> family, const PayloadLoad& load,
                                     const std::optional<WireBytes>& mask,
                                     const Comparison& comparison) {
  if (family) {
    if (auto address = ReadAddress(*family, load, mask, comparison)) return address;
  }
  if (comparison.data.size() != load.length) return std::nullopt;
  if (IsTcpFlags(load) && mask) {
    return TcpFlagsStatement{
        .negated = comparison.negated, .mask = (*mask)[0], .flags = comparison.data[0]};
  }
  if (mask) return std::nullopt;
  // Offsets of `protocol` in struct iphdr, of `nexthdr` in struct ipv6hdr.
  const uint32_t protocol_offset = family == Family::kIPv4 ? 9 : 6;
  if (family && load.base == NFT_PAYLOAD_NETWORK_HEADER && load.offset == protocol_offset &&
      load.length == 1) {
    return ProtocolStatement{.negated = comparison.negated, .protocol = comparison.data[0]};
  }
  if (IsPort(load)) {
    const uint16_t port = NetworkOrder(comparison.data);
    return PortStatement{
        .is_source = load.offset == 0, .negated = comparison.negated, .first = port, .last = port};
  }
  return std::nullopt;
}

std::optional<Statement> ReadPortRange(const PayloadLoad& load, const RangeComparison& range) {
  const auto fits = [](WireBytes bound) { return bound.empty() || bound.size() == 2; };
  if (!IsPort(load) || !fits(range.low) || !fits(range.high)) return std::nullopt;
  int first = range.low.empty() ? 0 : NetworkOrder(range.low);
  int last = range.high.empty() ? 0xffff : NetworkOrder(range.high);
  if (range.open) {
    if (range.low.empty()) --last;
    if (range.high.empty()) ++first;
  }
  // One that holds no port.
  if (first > last) return std::nullopt;
  return PortStatement{.is_source = load.offset == 0,
                       .negated = range.negated,
                       .first = static_cast<uint16_t>(first),
                       .last = static_cast<uint16_t>(last)};
}

std::optional<Statement> ReadMeta(uint32_t key, const std::optional<WireBytes>& mask,
                                  const Comparison& comparison) {
  const WireBytes data = comparison.data;
  if (key == NFT_META_MARK && data.size() == sizeof(uint32_t)) {
    return MarkMatch{.value = HostOrder(data),
                     .mask = mask ? HostOrder(*mask) : 0xffffffff,
                     .negated = comparison.negated};
  }
  if (mask || data.empty()) return std::nullopt;
  if (key == NFT_META_L4PROTO && data.size() == 1) {
    return ProtocolStatement{.negated = comparison.negated, .protocol = data[0]};
  }
  if ((key == NFT_META_IIFNAME || key == NFT_META_OIFNAME)) {
    const auto* const end = std::find(data.begin(), data.end(), 0);
    std::string name(data.begin(), end);
    // A comparison that ends before the NUL is one of beginnings.
    if (end == data.end()) name += '+';
    return InterfaceStatement{.is_input = key == NFT_META_IIFNAME,
                              .negated = comparison.negated,
                              .name = std::move(name)};
  }
  return std::nullopt;
}

Statement ReadXt(std::optional<Family> family, const XtExpression& xt) {
  const auto is = [&](bool target, const char* name, uint32_t revision) {
    return xt.is_target == target && xt.name == name && xt.revision == revision;
  };
  std::optional<Statement> known;
  if (is(false, kXtComment, kXtCommentRevision)) {
    // An empty comment is none in a Rule, so it must not become one.
    const auto text = DecodeXtComment(xt.info);
    if (text && !text->empty()) known = CommentStatement{.text = *text};
  } else if (is(false, kXtMark, kXtMarkRevision)) {
    if (const auto mark = DecodeXtMark(xt.info)) known = *mark;
  } else if (!xt.is_target && xt.name == kXtConntrack) {
    if (const auto state = DecodeXtCtState(xt.revision, xt.info)) {
      known = *state;
    }
  } else if (is(false, kXtConnLabel, kXtConnLabelRevision)) {
    if (const auto label = DecodeXtConnLabel(xt.info)) known = *label;
  } else if (is(true, kXtSetMark, kXtSetMarkRevision)) {
    if (const auto mark = DecodeXtSetMark(xt.info)) known = *mark;
  } else if (family && is(true, kXtMasquerade, kXtMasqueradeRevision)) {
    if (const auto masquerade = DecodeXtMasquerade(*family, xt.info)) known = *masquerade;
  }
  if (known) return *std::move(known);
  std::string text;
  if (family) {
    text = (xt.is_target ? DisplayXtTarget(*family, xt.name, xt.revision, xt.info)
                         : DisplayXtMatch(*family, xt.name, xt.revision, xt.info))
               .value_or("");
  }
  const bool spelled = !text.empty();
  if (!spelled) {
    text = absl::StrCat(xt.is_target ? "-j " : "", "[xt ", xt.name, " rev ", xt.revision, "]");
  }
  const TargetEffect effect =
      xt.is_target ? EffectOfTarget(xt.name) : TargetEffect{.decides = false};
  return OtherExpression{.name = xt.name,
                         // A comment that we cannot read still matches every packet.
                         .condition = !xt.is_target && xt.name != kXtComment,
                         .decides = effect.decides,
                         .terminal = effect.terminal,
                         .is_target = xt.is_target,
                         .text = std::move(text),
                         .target = xt.is_target && spelled ? xt.name : "",
                         .nfacct = !xt.is_target && spelled && xt.name == "nfacct",
                         .marks = xt.is_target ? MarksOfXtTarget(xt.name, xt.revision, xt.info)
                                               : MarksOfXtMatch(xt.name, xt.revision, xt.info)};
}

}  // namespace kipt::netlink
