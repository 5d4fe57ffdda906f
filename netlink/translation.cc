// SPDX-License-Identifier: Apache-2.0
//
// What nft(8) makes of its own listing of iptables' rules. Exact: one expression more or less, or
// in another place, is another program's rule.
#include "netlink/translation.h"

#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_nat.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "netlink/comparison.h"
#include "netlink/nf_tables.h"
#include "netlink/statement.h"

namespace kipt::netlink {
namespace {

using Expressions = absl::Span<const Expression>;

// (value & mask) ^ flip.
struct Bits {
  WireBytes mask;
  WireBytes flip;
};

bool IsZero(WireBytes bytes) {
  return absl::c_all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

// `expression` is a load or store of `key`: {register}. The types are NFTA_META_* or NFTA_CT_*.
std::optional<uint32_t> RegisterOf(const Expression& expression, absl::string_view name,
                                   uint16_t register_type, uint16_t key_type, uint32_t key) {
  if (expression.name != name || !expression.data ||
      !expression.data->HasOnly({register_type, key_type}) ||
      expression.data->U32(key_type) != key) {
    return std::nullopt;
  }
  return expression.data->U32(register_type);
}

// `expression` changes `number` in place.
std::optional<Bits> BitsOf(const Expression& expression, std::optional<uint32_t> number,
                           size_t length) {
  if (expression.name != "bitwise" || !expression.data || !number) return std::nullopt;
  const Attributes& data = *expression.data;
  const auto mask = DataValue(data, NFTA_BITWISE_MASK);
  const auto flip = DataValue(data, NFTA_BITWISE_XOR);
  // The operation of kernels since 5.6: 0 is (value & mask) ^ flip.
  const bool known = data.HasOnly({NFTA_BITWISE_SREG, NFTA_BITWISE_DREG, NFTA_BITWISE_LEN,
                                   NFTA_BITWISE_MASK, NFTA_BITWISE_XOR, NFTA_BITWISE_OP}) &&
                     data.U32(NFTA_BITWISE_OP).value_or(0) == 0 &&
                     data.U32(NFTA_BITWISE_SREG) == number && data.U32(NFTA_BITWISE_DREG) == number;
  if (!known || !mask || !flip || mask->size() != length || flip->size() != length) {
    return std::nullopt;
  }
  return Bits{.mask = *mask, .flip = *flip};
}

// `ct KEY & mask != 0`, of three expressions: the mask.
std::optional<WireBytes> TestedBits(Expressions three, uint32_t key, size_t length) {
  const auto number = RegisterOf(three[0], "ct", NFTA_CT_DREG, NFTA_CT_KEY, key);
  const auto bits = BitsOf(three[1], number, length);
  if (!bits || !IsZero(bits->flip) || three[2].name != "cmp" || !three[2].data) {
    return std::nullopt;
  }
  const Attributes& compared = *three[2].data;
  const auto zero = DataValue(compared, NFTA_CMP_DATA);
  const bool not_zero = compared.HasOnly({NFTA_CMP_SREG, NFTA_CMP_OP, NFTA_CMP_DATA}) &&
                        compared.U32(NFTA_CMP_SREG) == number &&
                        compared.U32(NFTA_CMP_OP) == NFT_CMP_NEQ && zero &&
                        zero->size() == length && IsZero(*zero);
  return not_zero ? std::optional<WireBytes>(bits->mask) : std::nullopt;
}

constexpr size_t kLabelBytes = (kMostConnLabel + 1) / 8;

// The label of a set of one, which is an array of longs in the kernel.
std::optional<uint8_t> OnlyLabel(WireBytes labels) {
  constexpr size_t kBits = sizeof(unsigned long) * 8;  // NOLINT(google-runtime-int)
  std::array<unsigned long, kLabelBytes / sizeof(unsigned long)> words = {};  // NOLINT
  std::copy(labels.begin(), labels.end(), reinterpret_cast<uint8_t*>(words.data()));
  std::optional<uint8_t> only;
  for (size_t label = 0; label < kLabelBytes * 8; ++label) {
    if ((words.at(label / kBits) >> (label % kBits) & 1) == 0) continue;
    if (only) return std::nullopt;
    only = static_cast<uint8_t>(label);
  }
  return only;
}

// `ct label set N`, of two expressions.
std::optional<uint8_t> LabelSet(Expressions two) {
  const auto number = RegisterOf(two[1], "ct", NFTA_CT_SREG, NFTA_CT_KEY, NFT_CT_LABELS);
  if (!number || two[0].name != "immediate" || !two[0].data ||
      !two[0].data->HasOnly({NFTA_IMMEDIATE_DREG, NFTA_IMMEDIATE_DATA}) ||
      two[0].data->U32(NFTA_IMMEDIATE_DREG) != number) {
    return std::nullopt;
  }
  const auto labels = DataValue(*two[0].data, NFTA_IMMEDIATE_DATA);
  return labels && labels->size() == kLabelBytes ? OnlyLabel(*labels) : std::nullopt;
}

// Takes a test of the connection from the end of `matches`, with the label that it is set before.
bool TakeConnection(Expressions& matches, Rule& rule) {
  if (matches.size() < 3) return false;
  const Expressions last = matches.last(3);
  if (const auto status = TestedBits(last, NFT_CT_STATUS, sizeof(uint32_t))) {
    if (HostOrder(*status) != IPS_DST_NAT) return false;
    rule.ct_state = CtStateMatch{.states = kCtDnat};
  } else if (const auto labels = TestedBits(last, NFT_CT_LABELS, kLabelBytes)) {
    const std::optional<uint8_t> label = OnlyLabel(*labels);
    if (!label) return false;
    rule.conn_label = ConnLabelMatch{.label = *label};
  } else {
    return false;
  }
  matches.remove_suffix(3);
  if (!rule.conn_label || matches.size() < 2) return true;
  if (const auto set = LabelSet(matches.last(2)); set && *set == rule.conn_label->label) {
    rule.conn_label->set = true;
    matches.remove_suffix(2);
  }
  return true;
}

bool TakeMatches(Family family, Expressions matches, Rule& rule) {
  TakeConnection(matches, rule);
  const std::vector<Expression> rest(matches.begin(), matches.end());
  for (const Statement& statement : ResolveStatements(family, rest)) {
    if (const auto* address = std::get_if<AddressStatement>(&statement)) {
      auto& place = address->is_source ? rule.source : rule.destination;
      if (place || rule.mark) return false;
      place = address->match;
    } else if (const auto* mark = std::get_if<MarkMatch>(&statement); mark && !rule.mark) {
      rule.mark = *mark;
    } else {
      return false;
    }
  }
  return true;
}

std::optional<Target> TargetOf(Expressions target, const Rule& rule) {
  const bool sets_label = rule.conn_label && rule.conn_label->set;
  if (target.empty()) {
    // A counter alone does nothing.
    const bool known = sets_label || IsUnconditional(rule);
    return known ? std::optional<Target>(NoTarget{}) : std::nullopt;
  }
  const std::optional<Attributes>& data = target[0].data;
  if (target.size() == 3) {
    // meta mark set mark & ... ^ ...
    const auto number = RegisterOf(target[0], "meta", NFTA_META_DREG, NFTA_META_KEY, NFT_META_MARK);
    const auto bits = BitsOf(target[1], number, sizeof(uint32_t));
    if (!bits ||
        RegisterOf(target[2], "meta", NFTA_META_SREG, NFTA_META_KEY, NFT_META_MARK) != number) {
      return std::nullopt;
    }
    return SetMark{.value = HostOrder(bits->flip), .mask = ~HostOrder(bits->mask)};
  }
  if (target.size() != 1 || !data) return std::nullopt;
  if (target[0].name == "masq" && data->HasOnly({NFTA_MASQ_FLAGS})) {
    const uint32_t flags = data->U32(NFTA_MASQ_FLAGS).value_or(0);
    if (flags == 0) return Masquerade{};
    if (flags == NF_NAT_RANGE_PROTO_RANDOM_FULLY) return Masquerade{.random_fully = true};
  }
  if (target[0].name != "immediate") return std::nullopt;
  const std::optional<VerdictStatement> verdict = ParseVerdict(*data);
  if (verdict && verdict->code == NF_DROP) return Drop{};
  return std::nullopt;
}

// ---- what iptables-nft can list: by 1.8.9 and 1.8.11, which agree except for `meta mark set` ----

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

// Everything of TCP and UDP, the type of ICMP, and in IPv4 its code.
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

}  // namespace

std::optional<Rule> ReadTranslation(Family family, Expressions expressions) {
  const auto counter =
      absl::c_find_if(expressions, [](const Expression& each) { return each.name == "counter"; });
  if (counter == expressions.end()) return std::nullopt;
  const auto at = static_cast<size_t>(counter - expressions.begin());
  Rule rule;
  if (!TakeMatches(family, expressions.first(at), rule)) return std::nullopt;
  const std::optional<Target> target = TargetOf(expressions.subspan(at + 1), rule);
  if (!target) return std::nullopt;
  rule.target = *target;
  return rule;
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
