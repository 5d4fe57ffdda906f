// SPDX-License-Identifier: Apache-2.0
#include "netlink/expression.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_tables_compat.h>

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "netlink/xt_display.h"
#include "netlink/xt_info.h"

namespace kipt::netlink {
namespace {

// What expressions outside our vocabulary do to a packet. A name that is not here may do anything.
// Loads and what only notes the packet: they do not choose packets, nor change them.
constexpr absl::string_view kLoads[] = {"bitwise", "byteorder", "immediate", "last", "log"};
// Tests: they choose packets, and do not change them.
constexpr absl::string_view kTests[] = {"cmp",    "connlimit", "ct",      "dynset", "exthdr",
                                        "fib",    "hash",      "limit",   "lookup", "meta",
                                        "numgen", "osf",       "payload", "quota",  "range",
                                        "rt",     "socket",    "tunnel",  "xfrm"};
// Statements that end the rule with a verdict.
constexpr absl::string_view kVerdicts[] = {"masq", "redir", "reject"};

// The attribute that makes a test a store: it writes to the packet.
constexpr std::pair<absl::string_view, uint16_t> kStores[] = {{"ct", NFTA_CT_SREG},
                                                              {"exthdr", NFTA_EXTHDR_SREG},
                                                              {"meta", NFTA_META_SREG},
                                                              {"payload", NFTA_PAYLOAD_SREG}};

// More that have nothing to do with the packet mark or the connection's labels, whatever else they
// do.
constexpr absl::string_view kLeavesMark[] = {"dup",     "flow_offload", "fwd",      "last",  "nat",
                                             "notrack", "objref",       "synproxy", "tproxy"};

// Whether what looks like a load or a test sets the verdict or writes to the packet.
bool DecidesAfterAll(absl::string_view name, const Attributes& data) {
  // A verdict map looks verdicts up.
  if (name == "lookup") return data.U32(NFTA_LOOKUP_DREG) == NFT_REG_VERDICT;
  if (name == "immediate") return data.U32(NFTA_IMMEDIATE_DREG).value_or(0) == NFT_REG_VERDICT;
  return absl::c_any_of(
      kStores, [&](const auto& store) { return store.first == name && data.Bytes(store.second); });
}

// `ct label set`, which takes the labels of a register.
ConnLabelSet LabelsSetBy(absl::string_view name, const Attributes& data) {
  const bool sets = name == "ct" && data.Bytes(NFTA_CT_SREG).has_value() &&
                    data.U32(NFTA_CT_KEY).value_or(NFT_CT_LABELS) == NFT_CT_LABELS;
  return sets ? AllConnLabels() : ConnLabelSet();
}

}  // namespace

OtherExpression DescribeOther(const Expression& expression) {
  const std::string& name = expression.name;
  const std::optional<Attributes>& data = expression.data;
  OtherExpression other = {.name = name};
  if (!absl::c_linear_search(kLeavesMark, name)) other.marks = MarksOfUnknownTarget();
  const bool tests = absl::c_linear_search(kTests, name);
  const bool ends = absl::c_linear_search(kVerdicts, name);
  if (!data || (!tests && !ends && !absl::c_linear_search(kLoads, name))) return other;
  other.condition = tests;
  other.terminal = ends;
  other.decides = other.is_target = ends || DecidesAfterAll(name, *data);
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
    const bool has_data = parts->Bytes(NFTA_EXPR_DATA).has_value();
    expressions.push_back({.name = parts->Text(NFTA_EXPR_NAME).value_or(""),
                           .data = has_data ? parts->Nest(NFTA_EXPR_DATA) : Attributes(),
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
  const std::optional<Attributes> value = data.Nest(NFTA_IMMEDIATE_DATA);
  const std::optional<Attributes> verdict = value ? value->Nest(NFTA_DATA_VERDICT) : std::nullopt;
  const std::optional<uint32_t> code = verdict ? verdict->U32(NFTA_VERDICT_CODE) : std::nullopt;
  if (!code) return std::nullopt;
  return VerdictStatement{.code = static_cast<int32_t>(*code),
                          .chain = verdict->Text(NFTA_VERDICT_CHAIN).value_or("")};
}

std::optional<WireBytes> DataValue(const Attributes& attributes, uint16_t type) {
  const std::optional<Attributes> nest = attributes.Nest(type);
  if (!nest || !nest->HasOnly({NFTA_DATA_VALUE})) return std::nullopt;
  return nest->Bytes(NFTA_DATA_VALUE);
}

}  // namespace kipt::netlink
