// SPDX-License-Identifier: Apache-2.0
#include "netlink/expression.h"

#include <utility>

#include "netlink/nf_tables.h"

namespace kipt::netlink {

std::vector<Expression> ParseExpressions(WireBytes list) {
  std::vector<Expression> expressions;
  const std::optional<Attributes> elements = Attributes::Parse(list);
  if (!elements) return {{.name = "malformed", .data = std::nullopt, .bytes = list}};
  const std::vector<Attribute> all = elements->all();
  expressions.reserve(all.size());
  for (const Attribute& element : all) {
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

RuleCounters ParseCounter(const Attributes& data) {
  return {.packets = data.U64(NFTA_COUNTER_PACKETS).value_or(0),
          .bytes = data.U64(NFTA_COUNTER_BYTES).value_or(0)};
}

std::optional<WireBytes> DataValue(const Attributes& attributes, uint16_t type) {
  const Attributes nest = attributes.Nest(type);
  return nest.HasOnly({NFTA_DATA_VALUE}) ? nest.Bytes(NFTA_DATA_VALUE) : std::nullopt;
}

}  // namespace kipt::netlink
