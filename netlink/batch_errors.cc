// SPDX-License-Identifier: Apache-2.0
#include "netlink/batch_errors.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/expression.h"
#include "netlink/kernel_error.h"

namespace kipt::netlink {
namespace {

// What was being done, for errors.
struct OperationAction {
  std::string operator()(const CreateChain& create) const {
    return absl::StrCat("creating chain ", ToString(create.chain));
  }
  std::string operator()(const AddRule& add) const {
    const std::string rule = ToString(add.chain.family, add.rule);
    if (!add.before) {
      return absl::StrCat("appending to chain ", ToString(add.chain), " the rule ", rule);
    }
    return absl::StrCat("inserting into chain ", ToString(add.chain), " before handle ",
                        *add.before, " the rule ", rule);
  }
  std::string operator()(const DeleteRule& remove) const {
    return absl::StrCat("deleting from chain ", ToString(remove.chain), " handle ", remove.handle,
                        ", the rule ", ToString(remove.chain.family, remove.rule));
  }
  std::string operator()(const DeleteChain& remove) const {
    return absl::StrCat("deleting chain ", ToString(remove.chain));
  }
  std::string operator()(const WakeTable& wake) const {
    return absl::StrCat("waking table ", FamilyName(wake.chain.family), " ",
                        TableName(wake.chain.table));
  }
  std::string operator()(const auto& native) const { return ToString(Operation(native)); }
};

// What the kernel pointed at in a message it refused.
struct Culprit {
  std::optional<uint16_t> attribute;  // of the message itself, enum nft_rule_attributes
  std::optional<Expression> expression;
};

// `offset` is that of an attribute's header, from the start of the message; 0 is unknown.
Culprit FindCulprit(WireBytes message, size_t offset) {
  const auto holds_offset = [&](const Attribute& attribute) {
    const size_t begin =
        static_cast<size_t>(attribute.payload.data() - message.data()) - NLA_HDRLEN;
    return offset >= begin && offset < begin + NLA_HDRLEN + attribute.payload.size();
  };
  const std::optional<Attributes> attributes = Attributes::OfMessage(message);
  if (!attributes) return {};
  for (const Attribute& attribute : attributes->all()) {
    if (!holds_offset(attribute)) continue;
    Culprit culprit{.attribute = attribute.type, .expression = std::nullopt};
    const std::optional<Attributes> elements = Attributes::Parse(attribute.payload);
    if (attribute.type != NFTA_RULE_EXPRESSIONS || !elements) return culprit;
    const std::vector<Expression> expressions = ParseExpressions(attribute.payload);
    const std::vector<Attribute> list = elements->all();
    for (size_t i = 0; i < list.size() && i < expressions.size(); ++i) {
      if (holds_offset(list[i])) culprit.expression = expressions[i];
    }
    return culprit;
  }
  return {};
}

// The module of an expression that need not be there; empty of those that nf_tables itself has.
std::string ModuleOf(const Expression& expression) {
  // In nf_tables itself since 5.18; Debian 11's kernel has it apart.
  if (std::holds_alternative<CounterExpression>(expression)) return "counter";
  const auto* other = std::get_if<OtherExpression>(&expression);
  return other != nullptr ? other->name : "";
}

absl::Status LacksExpression(int error_number, const std::string& action,
                             const std::string& expression) {
  return KernelError(error_number, action,
                     absl::StrCat("the kernel has no nf_tables expression ", expression,
                                  ": module nft_", expression, " is missing"));
}

}  // namespace

std::string ActionText(const Operation& operation) {
  return std::visit(OperationAction{}, operation);
}

absl::Status RefuseOperation(const Operation& operation, const absl::Status& why) {
  return absl::Status(why.code(), absl::StrCat(ActionText(operation), ": ", why.message()));
}

absl::Status ExplainRule(const AddRule& add, const BatchError& error, WireBytes message) {
  const int error_number = error.error_number;
  const Culprit culprit = FindCulprit(message, error.attribute_offset);
  const std::string action = OperationAction{}(add);
  const Jump* jump = std::get_if<Jump>(&add.rule.target);
  if (error_number == ENOENT && culprit.expression) {
    if (const auto* xt = std::get_if<XtExpression>(&*culprit.expression)) {
      absl::Status status = KernelError(
          error_number, action,
          absl::StrCat("the kernel has no xtables ", xt->is_target ? "target " : "match ", xt->name,
                       " of revision ", xt->revision, ": module xt_", xt->name,
                       " or nft_compat is missing"));
      SetMissingExtension(status, xt->name);
      return status;
    }
    if (const std::string module = ModuleOf(*culprit.expression); !module.empty()) {
      return LacksExpression(error_number, action, module);
    }
    if (jump != nullptr && std::holds_alternative<VerdictExpression>(*culprit.expression)) {
      return KernelError(error_number, action,
                         absl::StrCat("there is no chain ", jump->chain, " to jump to"));
    }
  }
  if (error_number == ENOENT) {
    switch (culprit.attribute.value_or(NFTA_RULE_UNSPEC)) {
      case NFTA_RULE_TABLE:
      case NFTA_RULE_CHAIN:
        return KernelError(error_number, action, "there is no such chain");
      case NFTA_RULE_POSITION:
        return KernelError(error_number, action, "there is no rule of that handle in the chain");
      default:
        break;
    }
  }
  if (error_number == EINVAL && std::holds_alternative<Masquerade>(add.rule.target)) {
    return KernelError(error_number, action, "MASQUERADE is for nat POSTROUTING only");
  }
  return KernelError(error_number, action);
}

absl::Status ExplainNative(const std::string& action, const BatchError& error, WireBytes message) {
  const int error_number = error.error_number;
  if (action.empty()) return KernelError(error_number, "committing to nf_tables");
  const Culprit culprit = FindCulprit(message, error.attribute_offset);
  const std::string module = culprit.expression ? ModuleOf(*culprit.expression) : "";
  if (error_number != ENOENT || module.empty()) return KernelError(error_number, action);
  return LacksExpression(error_number, action, module);
}

}  // namespace kipt::netlink
