// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "netlink/nf_tables.h"
#include "netlink/statement.h"
#include "netlink/xt_display.h"

namespace kipt::netlink {
namespace {

// ---- what iptables-nft can list: by 1.8.9 and 1.8.11, which agree but for `meta mark set` ----

// These depend on nothing. Those of xtables among them: their names are iptables' own.
constexpr absl::string_view kListed[] = {"bitwise", "cmp",   "counter", "immediate",
                                         "lookup",  "match", "range",   "target"};

bool ListsMeta(const Attributes& data) {
  const uint32_t key = data.U32(NFTA_META_KEY).value_or(UINT32_MAX);
  // 1.8.11 also lists some that set the mark, and 1.8.9 none.
  if (data.Bytes(NFTA_META_SREG)) return key == NFT_META_NFTRACE;
  constexpr uint32_t kKeys[] = {NFT_META_PROTOCOL, NFT_META_MARK,    NFT_META_IIF,
                                NFT_META_OIF,      NFT_META_IIFNAME, NFT_META_OIFNAME,
                                NFT_META_PKTTYPE,  NFT_META_L4PROTO};
  return absl::c_linear_search(kKeys, key);
}

// Offsets in struct iphdr (fragments, TTL, protocol, addresses) and struct ipv6hdr.
bool ListsNetworkHeader(Family family, uint32_t offset) {
  constexpr uint32_t k4[] = {6, 8, 9, 12, 16};
  constexpr uint32_t k6[] = {6, 7, 8, 24};
  return family == Family::kIPv4 ? absl::c_linear_search(k4, offset)
                                 : absl::c_linear_search(k6, offset);
}

// Of TCP and UDP everything, of ICMP the type, and in IPv4 the code.
bool ListsTransportHeader(uint8_t protocol, uint32_t offset) {
  switch (protocol) {
    case IPPROTO_TCP:
    case IPPROTO_UDP:
      return true;
    case IPPROTO_ICMP:
      return offset <= 1;
    case IPPROTO_ICMPV6:
      return offset == 0;
    default:
      return false;
  }
}

// Whether an expression loads the protocol, which a comparison then names.
bool LoadsProtocol(Family family, const Expression& expression) {
  const Attributes& data = *expression.data;
  if (expression.name == "meta") return data.U32(NFTA_META_KEY) == NFT_META_L4PROTO;
  return expression.name == "payload" &&
         data.U32(NFTA_PAYLOAD_BASE) == NFT_PAYLOAD_NETWORK_HEADER &&
         data.U32(NFTA_PAYLOAD_OFFSET) == (family == Family::kIPv4 ? 9 : 6);
}

// `protocol`: which the expressions before have named; 0 for none.
bool IsListed(Family family, const Expression& expression, uint8_t protocol) {
  const Attributes& data = *expression.data;
  if (expression.name == "meta") return ListsMeta(data);
  if (expression.name == "payload") {
    if (data.Bytes(NFTA_PAYLOAD_SREG)) return true;
    const uint32_t base = data.U32(NFTA_PAYLOAD_BASE).value_or(UINT32_MAX);
    const uint32_t offset = data.U32(NFTA_PAYLOAD_OFFSET).value_or(UINT32_MAX);
    return base == NFT_PAYLOAD_NETWORK_HEADER     ? ListsNetworkHeader(family, offset)
           : base == NFT_PAYLOAD_TRANSPORT_HEADER ? ListsTransportHeader(protocol, offset)
                                                  : base == NFT_PAYLOAD_LL_HEADER;
  }
  if (expression.name == "limit") {
    return data.U32(NFTA_LIMIT_TYPE).value_or(NFT_LIMIT_PKTS) == NFT_LIMIT_PKTS &&
           data.U32(NFTA_LIMIT_FLAGS).value_or(0) == 0;
  }
  // So iptables since 1.8.8 writes the target NFLOG. 1.8.7 does not list that.
  if (expression.name == "log") return data.Bytes(NFTA_LOG_GROUP).has_value();
  return absl::c_linear_search(kListed, expression.name);
}

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

// Of at least two bytes.
uint16_t NetworkOrder(WireBytes bytes) { return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]); }

bool IsPort(const PayloadLoad& load) {
  return load.base == NFT_PAYLOAD_TRANSPORT_HEADER && load.offset <= 2 && load.offset % 2 == 0 &&
         load.length == 2;
}

}  // namespace

std::vector<Expression> ParseExpressions(WireBytes list) {
  std::vector<Expression> expressions;
  const std::optional<Attributes> elements = Attributes::Parse(list);
  if (!elements) return {{.name = "malformed", .data = std::nullopt, .bytes = list}};
  for (const Attribute& element : elements->all()) {
    const std::optional<Attributes> parts = Attributes::Parse(element.payload);
    if (!parts) {
      expressions.push_back({.name = "malformed", .data = std::nullopt, .bytes = element.payload});
      continue;
    }
    // Some expressions (notrack) have no data.
    const WireBytes data = parts->Bytes(NFTA_EXPR_DATA).value_or(WireBytes());
    expressions.push_back({.name = parts->Text(NFTA_EXPR_NAME).value_or(""),
                           .data = Attributes::Parse(data),
                           .bytes = element.payload});
  }
  return expressions;
}

std::optional<XtExpression> ParseXt(const Expression& expression) {
  const bool is_target = expression.name == "target";
  // NFTA_MATCH_* are numbered alike.
  if ((!is_target && expression.name != "match") || !expression.data ||
      !expression.data->HasOnly({NFTA_TARGET_NAME, NFTA_TARGET_REV, NFTA_TARGET_INFO})) {
    return std::nullopt;
  }
  auto name = expression.data->Text(NFTA_TARGET_NAME);
  const auto revision = expression.data->U32(NFTA_TARGET_REV);
  const auto info = expression.data->Bytes(NFTA_TARGET_INFO);
  if (!name || !revision || !info) return std::nullopt;
  return XtExpression{
      .is_target = is_target, .name = *std::move(name), .revision = *revision, .info = *info};
}

std::optional<VerdictStatement> ParseVerdict(const Attributes& data) {
  if (data.U32(NFTA_IMMEDIATE_DREG) != NFT_REG_VERDICT) return std::nullopt;
  const Attributes verdict = data.Nest(NFTA_IMMEDIATE_DATA).Nest(NFTA_DATA_VERDICT);
  const std::optional<uint32_t> code = verdict.U32(NFTA_VERDICT_CODE);
  if (!code) return std::nullopt;
  return VerdictStatement{.code = static_cast<int32_t>(*code),
                          .chain = verdict.Text(NFTA_VERDICT_CHAIN).value_or("")};
}

RuleCounters ParseCounter(const Attributes& data) {
  return {.packets = data.U64(NFTA_COUNTER_PACKETS).value_or(0),
          .bytes = data.U64(NFTA_COUNTER_BYTES).value_or(0)};
}

std::optional<WireBytes> DataValue(const Attributes& attributes, uint16_t type) {
  const Attributes nest = attributes.Nest(type);
  return nest.HasOnly({NFTA_DATA_VALUE}) ? nest.Bytes(NFTA_DATA_VALUE) : std::nullopt;
}

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
    return {MarkMatch{.value = HostOrder(data),
                      .mask = mask ? HostOrder(*mask) : 0xffffffff,
                      .negated = negated}};
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

Statement ReadXt(std::optional<Family> family, const XtExpression& xt) {
  const auto is = [&](bool target, const XtName& known) {
    return xt.is_target == target && xt.name == known.name && xt.revision == known.revision;
  };
  std::optional<Statement> known;
  const auto take = [&](const auto& decoded) {
    if (decoded) known = *decoded;
  };
  if (is(false, kXtComment)) {
    // An empty comment is none in a Rule, so it must not become one.
    const auto text = DecodeXtComment(xt.info);
    if (text && !text->empty()) known = CommentStatement{.text = *text};
  } else if (is(false, kXtMark)) {
    take(DecodeXtMark(xt.info));
  } else if (is(false, {kXtConntrack.name, xt.revision})) {
    take(DecodeXtCtState(xt.revision, xt.info));
  } else if (is(false, kXtConnLabel)) {
    take(DecodeXtConnLabel(xt.info));
  } else if (is(true, kXtSetMark)) {
    take(DecodeXtSetMark(xt.info));
  } else if (family && is(true, kXtMasquerade)) {
    take(DecodeXtMasquerade(*family, xt.info));
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
  return OtherExpression{
      .name = xt.name,
      // A comment that we cannot read still matches every packet.
      .condition = !xt.is_target && xt.name != kXtComment.name,
      .selects = !xt.is_target && Selects(xt.name, xt.info),
      .decides = effect.decides,
      .terminal = effect.terminal,
      .perhaps_terminal = effect.perhaps_terminal,
      .queues = xt.is_target && QueuesWithoutBypass(xt.name, xt.revision, xt.info),
      .is_target = xt.is_target,
      .text = std::move(text),
      .target = xt.is_target && spelled ? xt.name : "",
      .nfacct = !xt.is_target && spelled && xt.name == "nfacct",
      .set_directions =
          !xt.is_target && xt.name == "set" ? XtSetDirections(xt.revision, xt.info) : "",
      .marks = xt.is_target ? MarksOfXtTarget(xt.name, xt.revision, xt.info)
                            : MarksOfXtMatch(xt.name, xt.revision, xt.info)};
}

bool IsListable(Family family, absl::Span<const Expression> expressions) {
  uint8_t protocol = 0;
  bool compares_protocol = false;
  for (const Expression& each : expressions) {
    if (!each.data || !IsListed(family, each, protocol)) return false;
    if (each.name == "cmp" && compares_protocol) {
      const auto value = DataValue(*each.data, NFTA_CMP_DATA);
      if (value && value->size() == 1) protocol = value->front();
    }
    compares_protocol = LoadsProtocol(family, each);
  }
  return true;
}

}  // namespace kipt::netlink
