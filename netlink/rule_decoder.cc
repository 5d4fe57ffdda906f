// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "netlink/nf_tables.h"
#include "netlink/rule_codec.h"
#include "netlink/statement.h"

namespace kipt::netlink {
namespace {

bool SetsLabel(const Rule& rule) { return rule.conn_label && rule.conn_label->set; }

// The comments in the content of NFTA_RULE_USERDATA, {type, length, value} each. iptables-nft and
// nft agree on type 0, a comment with its NUL; other types do not change what the rule does. Empty
// ones are left out.
std::vector<std::string> UserDataComments(WireBytes bytes) {
  std::vector<std::string> comments;
  while (bytes.size() >= 2) {
    const uint8_t type = bytes[0];
    const size_t length = bytes[1];
    bytes.remove_prefix(2);
    if (length > bytes.size()) break;
    const WireBytes text = bytes.first(length);
    if (type == 0 && !text.empty() && text[0] != 0) {
      comments.emplace_back(text.begin(), std::find(text.begin(), text.end(), 0));
    }
    bytes.remove_prefix(length);
  }
  return comments;
}

// Puts statements into a Rule as long as each has a place of its own there.
class RuleAssembler {
 public:
  void operator()(const AddressStatement& address) {
    Set(address.is_source ? rule_.source : rule_.destination, address.match);
  }
  void operator()(const MarkMatch& mark) { Set(rule_.mark, mark); }
  void operator()(const XtCtState& state) {
    fits_ = fits_ && !state.state_alias;
    Set(rule_.ct_state, state.match);
  }
  void operator()(const ConnLabelMatch& label) { Set(rule_.conn_label, label); }
  void operator()(const CommentStatement& comment) {
    // A comment after the target is in the user data.
    fits_ = fits_ && rule_.comment.empty() && !comment.text.empty();
    if (rule_.comment.empty()) rule_.comment = comment.text;
  }
  // Where it counts does not change what the rule does.
  void operator()(const RuleCounters&) {}
  void operator()(const VerdictStatement& verdict) {
    if (verdict.code == NF_DROP) {
      SetTarget(Drop{});
    } else if (verdict.code == NFT_RETURN) {
      SetTarget(Return{});
    } else if (verdict.code == NFT_JUMP && CheckChainName(verdict.chain).ok()) {
      SetTarget(Jump{.chain = verdict.chain});
    } else {
      fits_ = false;
    }
  }
  void operator()(const SetMark& mark) { SetTarget(mark); }
  void operator()(const Masquerade& masquerade) { SetTarget(masquerade); }
  // What no Rule has a place for.
  void operator()(const auto&) { fits_ = false; }

  // Whether all statements have a place in the rule.
  bool Finish() {
    if (!has_target_ && SetsLabel(rule_)) SetTarget(NoTarget{});
    return fits_ && has_target_;
  }
  // What has a place, where not all have.
  Rule Take() { return std::move(rule_); }

 private:
  template <typename T>
  void Set(std::optional<T>& place, const T& value) {
    // Twice is a rule of two conditions; after the target it comes too late.
    fits_ = fits_ && !place.has_value() && !has_target_;
    if (!place) place = value;
  }
  void SetTarget(Target target) {
    fits_ = fits_ && !has_target_;
    has_target_ = true;
    rule_.target = std::move(target);
  }

  Rule rule_;
  bool fits_ = true;
  bool has_target_ = false;
};

std::variant<Rule, OpaqueRule> ContentOf(std::optional<Family> family,
                                         const std::vector<Statement>& statements) {
  RuleAssembler assembler;
  for (const Statement& statement : statements) std::visit(assembler, statement);
  if (assembler.Finish()) return assembler.Take();
  OpaqueRule opaque = DescribeOpaqueRule(family, statements);
  opaque.known = assembler.Take();
  opaque.known.target = NoTarget{};
  return opaque;
}

std::optional<Family> RuleFamily(WireBytes message) {
  const uint8_t family = FamilyOf(message);
  if (family == NFPROTO_IPV4) return Family::kIPv4;
  return family == NFPROTO_IPV6 ? std::optional<Family>(Family::kIPv6) : std::nullopt;
}

// The spelling is only for a survey.
absl::StatusOr<SurveyRule> Decode(WireBytes message, bool spelled) {
  const std::optional<Attributes> attributes = Attributes::OfMessage(message);
  const auto handle = attributes ? attributes->U64(NFTA_RULE_HANDLE) : std::nullopt;
  if (!handle) return absl::DataLossError("a rule's message is malformed");
  const std::optional<Family> family = RuleFamily(message);
  const std::vector<Expression> expressions =
      ParseExpressions(attributes->Bytes(NFTA_RULE_EXPRESSIONS).value_or(WireBytes()));
  SurveyRule rule;
  rule.handle = *handle;
  rule.xt =
      absl::c_any_of(expressions, [](const Expression& each) { return ParseXt(each).has_value(); });
  std::vector<Statement> statements = ResolveStatements(family, expressions);
  for (const Statement& statement : statements) {
    // Of the last counter, as iptables-save prints it.
    if (const auto* counters = std::get_if<RuleCounters>(&statement)) rule.counters = *counters;
  }
  for (std::string& comment :
       UserDataComments(attributes->Bytes(NFTA_RULE_USERDATA).value_or(WireBytes()))) {
    statements.emplace_back(CommentStatement{.text = std::move(comment)});
  }
  if (attributes->Bytes(NFTA_RULE_COMPAT)) {
    // `-p` for xtables matches: a condition outside the expressions.
    statements.emplace_back(
        OtherExpression{.name = "compat", .decides = false, .is_target = false});
  }
  rule.content = ContentOf(family, statements);
  if (spelled && rule.rule() != nullptr) {
    std::string spelling = DescribeOpaqueRule(family, statements).text;
    if (spelling != ToString(family.value_or(Family::kIPv4), rule)) {
      rule.spelling = std::move(spelling);
    }
  }
  return rule;
}

}  // namespace

absl::StatusOr<ObservedRule> DecodeRule(WireBytes message) {
  absl::StatusOr<SurveyRule> rule = Decode(message, /*spelled=*/false);
  if (!rule.ok()) return rule.status();
  if (!RuleFamily(message)) return absl::DataLossError("a rule of an unexpected family");
  return ObservedRule(*std::move(rule));
}

absl::StatusOr<SurveyRule> DecodeSurveyRule(WireBytes message) {
  return Decode(message, /*spelled=*/true);
}

}  // namespace kipt::netlink
