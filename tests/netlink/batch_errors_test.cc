// SPDX-License-Identifier: Apache-2.0
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "netlink/batch.h"
#include "netlink/kernel_error.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink::batch_errors_test {
namespace {

// A rule of one expression, and where the kernel would point at it.
class RuleMessage {
 public:
  explicit RuleMessage(const char* expression) {
    nlmsghdr* header = mnl_nlmsg_put_header(buffer_.data());
    mnl_nlmsg_put_extra_header(header, sizeof(nfgenmsg));
    for (const uint16_t type : {NFTA_RULE_TABLE, NFTA_RULE_CHAIN, NFTA_RULE_POSITION}) {
      offsets_[type] = header->nlmsg_len;
      mnl_attr_put_strz(header, type, "any");
    }
    nlattr* list = mnl_attr_nest_start(header, NFTA_RULE_EXPRESSIONS);
    nlattr* element = mnl_attr_nest_start(header, NFTA_LIST_ELEM);
    offset_ = static_cast<uint32_t>(reinterpret_cast<uint8_t*>(element) - buffer_.data());
    mnl_attr_put_strz(header, NFTA_EXPR_NAME, expression);
    mnl_attr_nest_end(header, element);
    mnl_attr_nest_end(header, list);
    size_ = header->nlmsg_len;
  }

  BatchError Refused() const { return {.error_number = ENOENT, .attribute_offset = offset_}; }
  uint32_t OffsetOf(uint16_t attribute) const { return offsets_.at(attribute); }
  WireBytes bytes() const { return WireBytes(buffer_.data(), size_); }

 private:
  alignas(nlmsghdr) std::array<uint8_t, 256> buffer_ = {};
  uint32_t offset_ = 0;
  std::map<uint16_t, uint32_t> offsets_;
  size_t size_ = 0;
};

const AddRule kRule{.chain = {Family::kIPv4, Table::kFilter, "USER"},
                    .rule = Rule{.comment = "a rule", .target = Drop{}},
                    .before = std::nullopt,
                    .number = 0};

// Linux 5.10 has nft_counter as a module: the rule is refused for want of that one.
TEST(BatchErrorsTest, NamesTheModuleOfACounterThatTheKernelLacks) {
  const RuleMessage message("counter");
  const absl::Status status = ExplainRule(kRule, message.Refused(), message.bytes());
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("module nft_counter")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("appending to chain ip filter USER"));
  EXPECT_EQ(MissingExtension(status), std::nullopt) << "iptables' extensions may all be there";
  EXPECT_THAT(ExplainNative("adding", message.Refused(), message.bytes()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("module nft_counter")));
}

TEST(BatchErrorsTest, NamesTheModuleOfAnExpressionOfTheNativeTable) {
  const RuleMessage message("ct");
  EXPECT_THAT(ExplainNative("adding", message.Refused(), message.bytes()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("module nft_ct")));
}

// nf_tables itself has them; match and target are nft_compat's.
TEST(BatchErrorsTest, NamesNoModuleOfAnExpressionThatHasNoneOfItsName) {
  for (const char* name :
       {"bitwise", "cmp", "immediate", "match", "meta", "payload", "range", "target"}) {
    const RuleMessage message(name);
    const absl::Status status = ExplainNative("adding", message.Refused(), message.bytes());
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("module nft_"))) << name;
  }
}

TEST(BatchErrorsTest, SaysWhatIsMissingWhereTheKernelPointed) {
  const RuleMessage message("counter");
  const struct {
    std::string name;
    uint16_t attribute;
    std::string advice;
  } rows[] = {
      {"the table", NFTA_RULE_TABLE, "(there is no such chain)"},
      {"the chain", NFTA_RULE_CHAIN, "(there is no such chain)"},
      {"the rule that it goes before", NFTA_RULE_POSITION,
       "(there is no rule of that handle in the chain)"},
  };
  const auto explain = [&](uint32_t offset, int error_number) {
    return std::string(ExplainRule(kRule,
                                   {.error_number = error_number, .attribute_offset = offset},
                                   message.bytes())
                           .message());
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const uint32_t begin = message.OffsetOf(row.attribute);
    // Its header, its text "any" with the NUL, and the first byte of what comes next.
    EXPECT_THAT(explain(begin, ENOENT), HasSubstr(row.advice));
    EXPECT_THAT(explain(begin + 7, ENOENT), HasSubstr(row.advice));
    EXPECT_THAT(explain(begin, EINVAL), Not(HasSubstr("there is no")));
  }
  EXPECT_THAT(explain(message.OffsetOf(NFTA_RULE_POSITION) - 1, ENOENT),
              HasSubstr("(there is no such chain)"));
  EXPECT_THAT(explain(message.OffsetOf(NFTA_RULE_POSITION) + 8, ENOENT),
              Not(HasSubstr("there is no")));
  EXPECT_THAT(explain(0, ENOENT), Not(HasSubstr("there is no"))) << "the kernel did not point";
}

TEST(BatchErrorsTest, SaysWhereARuleWasToGo) {
  AddRule insert = kRule;
  insert.before = 5;
  EXPECT_THAT(ActionText(insert),
              HasSubstr("inserting into chain ip filter USER before handle 5 the rule"));
  EXPECT_THAT(ActionText(kRule), HasSubstr("appending to chain ip filter USER the rule"));
}

TEST(BatchErrorsTest, SaysWhereMasqueradingIsAllowed) {
  const RuleMessage message("masq");
  AddRule masquerade = kRule;
  masquerade.rule.target = Masquerade{};
  const auto explain = [&](const AddRule& add, int error_number) {
    return std::string(ExplainRule(add, {.error_number = error_number}, message.bytes()).message());
  };
  const std::string advice = "MASQUERADE is for nat POSTROUTING only";
  EXPECT_THAT(explain(masquerade, EINVAL), HasSubstr(advice));
  EXPECT_THAT(explain(masquerade, ENOMEM), Not(HasSubstr(advice)));
  EXPECT_THAT(explain(kRule, EINVAL), Not(HasSubstr(advice)));
}

TEST(BatchErrorsTest, BlamesAMissingChainForAJumpOnlyWhereTheRuleJumps) {
  AddRule jump = kRule;
  jump.rule.target = Jump{"GONE"};
  const RuleMessage verdict("immediate");
  const RuleMessage other("bitwise");
  EXPECT_THAT(std::string(ExplainRule(kRule, verdict.Refused(), verdict.bytes()).message()),
              Not(HasSubstr("to jump to")));
  EXPECT_THAT(std::string(ExplainRule(jump, other.Refused(), other.bytes()).message()),
              Not(HasSubstr("to jump to")));
}

TEST(BatchErrorsTest, NamesTheNativeActionOnlyWhereThereIsOneAndAModuleOnlyWhereItIsMissing) {
  const RuleMessage message("counter");
  const auto explain = [&](const std::string& action, BatchError error) {
    return std::string(ExplainNative(action, error, message.bytes()).message());
  };
  EXPECT_THAT(explain("", message.Refused()), HasSubstr("committing to nf_tables"));
  BatchError refused = message.Refused();
  refused.error_number = EOPNOTSUPP;
  EXPECT_THAT(explain("adding", refused), Not(HasSubstr("nft_counter")));
  EXPECT_THAT(explain("adding", {.error_number = ENOENT}), Not(HasSubstr("nft_counter")));
}

TEST(BatchErrorsTest, NamesNoModuleWhereTheKernelDidNotPoint) {
  const RuleMessage message("counter");
  const absl::Status status = ExplainRule(kRule, {.error_number = ENOENT}, message.bytes());
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("nft_counter")));
}

}  // namespace
}  // namespace kipt::netlink::batch_errors_test
