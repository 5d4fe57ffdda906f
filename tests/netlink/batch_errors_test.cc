// SPDX-License-Identifier: Apache-2.0
#include "netlink/batch_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

#include "netlink/kernel_error.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink {
namespace {

using kipt::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

// A rule of one expression, and where the kernel would point at it.
class RuleMessage {
 public:
  explicit RuleMessage(const char* expression) {
    nlmsghdr* header = mnl_nlmsg_put_header(buffer_.data());
    mnl_nlmsg_put_extra_header(header, sizeof(nfgenmsg));
    nlattr* list = mnl_attr_nest_start(header, NFTA_RULE_EXPRESSIONS);
    nlattr* element = mnl_attr_nest_start(header, NFTA_LIST_ELEM);
    offset_ = static_cast<uint32_t>(reinterpret_cast<uint8_t*>(element) - buffer_.data());
    mnl_attr_put_strz(header, NFTA_EXPR_NAME, expression);
    mnl_attr_nest_end(header, element);
    mnl_attr_nest_end(header, list);
    size_ = header->nlmsg_len;
  }

  BatchError Refused() const { return {.error_number = ENOENT, .attribute_offset = offset_}; }
  WireBytes bytes() const { return WireBytes(buffer_.data(), size_); }

 private:
  alignas(nlmsghdr) std::array<uint8_t, 256> buffer_ = {};
  uint32_t offset_ = 0;
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

TEST(BatchErrorsTest, NamesNoModuleWhereTheKernelDidNotPoint) {
  const RuleMessage message("counter");
  const absl::Status status = ExplainRule(kRule, {.error_number = ENOENT}, message.bytes());
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("nft_counter")));
}

}  // namespace
}  // namespace kipt::netlink
