// SPDX-License-Identifier: Apache-2.0
#include "netlink/expression.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_tables_compat.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "netlink/xt_display.h"
#include "netlink/xt_info.h"

namespace kipt::netlink {
namespace {

// What expressions outside our vocabulary do to a packet. A name that is not here may do anything.
struct KnownExpression {
  absl::string_view name;
  bool condition;
  bool decides;
  bool terminal;
  // The attribute that makes it a store: it writes to the packet.
  uint16_t source = 0;
};

constexpr KnownExpression kKnown[] = {
    // Loads and tests: they choose packets, and do not change them.
    {"bitwise", false, false, false},
    {"byteorder", false, false, false},
    {"cmp", true, false, false},
    {"connlimit", true, false, false},
    {"ct", true, false, false, NFTA_CT_SREG},
    {"dynset", true, false, false},
    {"exthdr", true, false, false, NFTA_EXTHDR_SREG},
    {"fib", true, false, false},
    {"hash", true, false, false},
    {"immediate", false, false, false},
    {"last", false, false, false},
    {"limit", true, false, false},
    {"log", false, false, false},
    {"lookup", true, false, false},
    {"meta", true, false, false, NFTA_META_SREG},
    {"numgen", true, false, false},
    {"osf", true, false, false},
    {"payload", true, false, false, NFTA_PAYLOAD_SREG},
    {"quota", true, false, false},
    {"range", true, false, false},
    {"rt", true, false, false},
    {"socket", true, false, false},
    {"tunnel", true, false, false},
    {"xfrm", true, false, false},
    // Statements that end the rule with a verdict.
    {"masq", false, true, true},
    {"redir", false, true, true},
    {"reject", false, true, true},
};

// More that have nothing to do with the packet mark or the connection's labels, whatever else they
// do.
constexpr absl::string_view kLeavesMark[] = {"dup",     "flow_offload", "fwd",      "last",  "nat",
                                             "notrack", "objref",       "synproxy", "tproxy"};

// Whether what looks like a load or a test sets the verdict or writes to the packet.
bool DecidesAfterAll(const KnownExpression& known, const Attributes& data) {
  // A verdict map looks verdicts up.
  if (known.name == "lookup") return data.U32(NFTA_LOOKUP_DREG) == NFT_REG_VERDICT;
  if (known.name == "immediate") {
    return data.U32(NFTA_IMMEDIATE_DREG).value_or(0) == NFT_REG_VERDICT;
  }
  return known.source != 0 && data.Bytes(known.source).has_value();
}

bool LeavesMark(absl::string_view name) {
  return std::find(std::begin(kLeavesMark), std::end(kLeavesMark), name) != std::end(kLeavesMark);
}

// One that may do anything.
OtherExpression Unknown(absl::string_view name) {
  if (LeavesMark(name)) return {.name = std::string(name)};
  return {.name = std::string(name), .marks = MarksOfUnknownTarget()};
}

// `ct label set`, which takes the labels of a register.
ConnLabelSet LabelsSetBy(absl::string_view name, const Attributes& data) {
  const bool sets = name == "ct" && data.Bytes(NFTA_CT_SREG).has_value() &&
                    data.U32(NFTA_CT_KEY).value_or(NFT_CT_LABELS) == NFT_CT_LABELS;
  return sets ? AllConnLabels() : ConnLabelSet();
}

OtherExpression Other(absl::string_view name, const std::optional<Attributes>& data) {
  OtherExpression other = Unknown(name);
  const auto* const known =
      std::find_if(std::begin(kKnown), std::end(kKnown),
                   [&](const KnownExpression& candidate) { return candidate.name == name; });
  if (known == std::end(kKnown) || !data) return other;
  other.condition = known->condition;
  other.decides = known->decides;
  other.terminal = known->terminal;
  other.is_target = known->decides;
  if (DecidesAfterAll(*known, *data)) other.decides = other.is_target = true;
  other.text = DisplayNative(name, *data);
  if (absl::StartsWith(other.text, "-j ")) other.is_target = true;
  // A verdict that could not be read.
  if (name == "immediate" && other.decides) return other;
  other.marks.labels_set = LabelsSetBy(name, *data);
  // The same of a store.
  if (name == "meta" && other.decides) return other;
  // A lookup of the route that the mark chooses.
  const bool route =
      name == "fib" && (data->U32(NFTA_FIB_FLAGS).value_or(0) & NFTA_FIB_F_MARK) != 0;
  other.marks.tested = route || name == "meta" ? kAllMarks : 0;
  other.marks.set = 0;
  return other;
}

std::optional<Expression> ParsePayload(const Attributes& data) {
  if (!data.HasOnly(
          {NFTA_PAYLOAD_DREG, NFTA_PAYLOAD_BASE, NFTA_PAYLOAD_OFFSET, NFTA_PAYLOAD_LEN})) {
    return std::nullopt;
  }
  const auto to = data.U32(NFTA_PAYLOAD_DREG);
  const auto base = data.U32(NFTA_PAYLOAD_BASE);
  const auto offset = data.U32(NFTA_PAYLOAD_OFFSET);
  const auto length = data.U32(NFTA_PAYLOAD_LEN);
  if (!to || !base || !offset || !length) return std::nullopt;
  return PayloadLoad{.to = *to, .base = *base, .offset = *offset, .length = *length};
}

std::optional<Expression> ParseMeta(const Attributes& data) {
  if (data.HasOnly({NFTA_META_SREG, NFTA_META_KEY})) {
    const auto from = data.U32(NFTA_META_SREG);
    const auto key = data.U32(NFTA_META_KEY);
    if (from && key) return MetaStore{.from = *from, .key = *key};
  }
  if (!data.HasOnly({NFTA_META_DREG, NFTA_META_KEY})) return std::nullopt;
  const auto to = data.U32(NFTA_META_DREG);
  const auto key = data.U32(NFTA_META_KEY);
  if (!to || !key) return std::nullopt;
  return MetaLoad{.to = *to, .key = *key};
}

// NFTA_*_DATA with nothing but a value in it.
std::optional<WireBytes> DataValue(const Attributes& attributes, uint16_t type) {
  const std::optional<Attributes> nest = attributes.Nest(type);
  if (!nest || !nest->HasOnly({NFTA_DATA_VALUE})) return std::nullopt;
  return nest->Bytes(NFTA_DATA_VALUE);
}

std::optional<Expression> ParseBitwise(const Attributes& data) {
  // Kernels since 5.6 dump the operation; without it there was only this one. A number, because
  // NFT_BITWISE_MASK_XOR has had more than one name.
  constexpr uint32_t kMaskXor = 0;
  if (!data.HasOnly({NFTA_BITWISE_SREG, NFTA_BITWISE_DREG, NFTA_BITWISE_LEN, NFTA_BITWISE_MASK,
                     NFTA_BITWISE_XOR, NFTA_BITWISE_OP}) ||
      (data.Bytes(NFTA_BITWISE_OP) && data.U32(NFTA_BITWISE_OP) != kMaskXor)) {
    return std::nullopt;
  }
  const auto from = data.U32(NFTA_BITWISE_SREG);
  const auto to = data.U32(NFTA_BITWISE_DREG);
  const auto length = data.U32(NFTA_BITWISE_LEN);
  const auto mask = DataValue(data, NFTA_BITWISE_MASK);
  const auto flip = DataValue(data, NFTA_BITWISE_XOR);
  if (!from || !to || !length || !mask || !flip) return std::nullopt;
  if (mask->size() != *length || flip->size() != *length) return std::nullopt;
  const bool flips =
      std::any_of(flip->begin(), flip->end(), [](uint8_t byte) { return byte != 0; });
  return Masking{.from = *from, .to = *to, .mask = *mask, .flip = flips ? *flip : WireBytes()};
}

std::optional<Expression> ParseComparison(const Attributes& data) {
  if (!data.HasOnly({NFTA_CMP_SREG, NFTA_CMP_OP, NFTA_CMP_DATA})) return std::nullopt;
  const auto from = data.U32(NFTA_CMP_SREG);
  const auto op = data.U32(NFTA_CMP_OP);
  const auto value = DataValue(data, NFTA_CMP_DATA);
  if (!from || !op || !value) return std::nullopt;
  switch (*op) {
    case NFT_CMP_EQ:
    case NFT_CMP_NEQ:
      return Comparison{.from = *from, .negated = op == NFT_CMP_NEQ, .data = *value};
    case NFT_CMP_LT:
    case NFT_CMP_LTE:
      return RangeComparison{.from = *from, .open = op == NFT_CMP_LT, .low = {}, .high = *value};
    case NFT_CMP_GT:
    case NFT_CMP_GTE:
      return RangeComparison{.from = *from, .open = op == NFT_CMP_GT, .low = *value, .high = {}};
    default:
      return std::nullopt;
  }
}

std::optional<Expression> ParseRange(const Attributes& data) {
  if (!data.HasOnly({NFTA_RANGE_SREG, NFTA_RANGE_OP, NFTA_RANGE_FROM_DATA, NFTA_RANGE_TO_DATA})) {
    return std::nullopt;
  }
  const auto from = data.U32(NFTA_RANGE_SREG);
  const auto op = data.U32(NFTA_RANGE_OP);
  const auto low = DataValue(data, NFTA_RANGE_FROM_DATA);
  const auto high = DataValue(data, NFTA_RANGE_TO_DATA);
  const bool negated = op == NFT_RANGE_NEQ;
  if (!from || !low || !high || low->empty() || high->empty() || (op != NFT_RANGE_EQ && !negated)) {
    return std::nullopt;
  }
  return RangeComparison{.from = *from, .negated = negated, .low = *low, .high = *high};
}

std::optional<Expression> ParseImmediate(const Attributes& data) {
  const auto to = data.U32(NFTA_IMMEDIATE_DREG);
  if (to != NFT_REG_VERDICT) {
    const auto loaded = DataValue(data, NFTA_IMMEDIATE_DATA);
    if (!to || !loaded || loaded->empty() ||
        !data.HasOnly({NFTA_IMMEDIATE_DREG, NFTA_IMMEDIATE_DATA})) {
      return std::nullopt;
    }
    return ImmediateLoad{.to = *to, .data = *loaded};
  }
  const std::optional<Attributes> value = data.Nest(NFTA_IMMEDIATE_DATA);
  const std::optional<Attributes> verdict =
      value ? value->Nest(NFTA_DATA_VERDICT) : std::optional<Attributes>();
  const auto code = verdict ? verdict->U32(NFTA_VERDICT_CODE) : std::optional<uint32_t>();
  if (!code) return std::nullopt;
  return VerdictExpression{.code = static_cast<int32_t>(*code),
                           .chain = verdict->Text(NFTA_VERDICT_CHAIN).value_or("")};
}

std::optional<Expression> ParseXt(const Attributes& data, bool is_target) {
  // NFTA_MATCH_* are numbered alike.
  if (!data.HasOnly({NFTA_TARGET_NAME, NFTA_TARGET_REV, NFTA_TARGET_INFO})) return std::nullopt;
  auto name = data.Text(NFTA_TARGET_NAME);
  const auto revision = data.U32(NFTA_TARGET_REV);
  const auto info = data.Bytes(NFTA_TARGET_INFO);
  if (!name || !revision || !info) return std::nullopt;
  return XtExpression{
      .is_target = is_target, .name = *std::move(name), .revision = *revision, .info = *info};
}

std::optional<Expression> ParseKnown(absl::string_view name, const Attributes& data) {
  if (name == "payload") return ParsePayload(data);
  if (name == "meta") return ParseMeta(data);
  if (name == "bitwise") return ParseBitwise(data);
  if (name == "cmp") return ParseComparison(data);
  if (name == "immediate") return ParseImmediate(data);
  if (name == "match") return ParseXt(data, /*is_target=*/false);
  if (name == "target") return ParseXt(data, /*is_target=*/true);
  if (name == "range") return ParseRange(data);
  if (name == "counter") {
    return CounterExpression{.packets = data.U64(NFTA_COUNTER_PACKETS).value_or(0),
                             .bytes = data.U64(NFTA_COUNTER_BYTES).value_or(0)};
  }
  return std::nullopt;
}

}  // namespace

std::vector<Expression> ParseExpressions(WireBytes list) {
  std::vector<Expression> expressions;
  const std::optional<Attributes> elements = Attributes::Parse(list);
  if (!elements) return {Unknown("malformed")};
  for (const Attribute& element : elements->all()) {
    const std::optional<Attributes> parts = Attributes::Parse(element.payload);
    if (!parts) {
      expressions.emplace_back(Unknown("malformed"));
      continue;
    }
    const std::string name = parts->Text(NFTA_EXPR_NAME).value_or("");
    // Some expressions (notrack) have no data.
    const std::optional<Attributes> data = parts->Bytes(NFTA_EXPR_DATA)
                                               ? parts->Nest(NFTA_EXPR_DATA)
                                               : std::make_optional<Attributes>();
    std::optional<Expression> known = data ? ParseKnown(name, *data) : std::nullopt;
    expressions.push_back(known ? *std::move(known) : Other(name, data));
  }
  return expressions;
}

}  // namespace kipt::netlink
