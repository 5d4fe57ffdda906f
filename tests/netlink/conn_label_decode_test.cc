// SPDX-License-Identifier: Apache-2.0
//
// Wire to Rule, of rules about labels of connections.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "netlink/rule_codec.h"
#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink::conn_label_decode_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

constexpr uint32_t kNotEqual = 1;

struct Row {
  std::string name;
  std::vector<Bytes> expressions;
  std::string text = {};  // of the Rule; empty where the rule must be opaque
  Family family = Family::kIPv4;
};

TEST(DecodeConnLabelTest, ReadsLabelsOfConnections) {
  const Bytes drop = Verdict(0);
  const Bytes count = CounterBytes();
  const auto label = [](uint16_t number, uint16_t options) {
    return XtMatch("connlabel", 0, XtConnLabelInfo(number, options));
  };
  const std::vector<Row> rows = {
      {"tested", {label(0, 0), count, drop}, "-m connlabel --label \"0\" -j DROP"},
      {"not",
       {label(127, 1), count, drop},
       "-m connlabel ! --label \"127\" -j DROP",
       Family::kIPv6},
      {"set, and nothing else", {label(114, 2), count}, "-m connlabel --label \"114\" --set"},
      {"set without a counter", {label(1, 2)}, "-m connlabel --label \"1\" --set"},
      {"set, and where that could be done a target",
       {label(1, 2), count, Verdict(-3, "X")},
       "-m connlabel --label \"1\" --set -j X",
       Family::kIPv6},
      {"set, and where it could not be done a target",
       {label(1, 3), drop},
       "-m connlabel ! --label \"1\" --set -j DROP"},
      {"before the others",
       {label(3, 0), XtMatch("comment", 0, XtCommentInfo("c")),
        XtMatch("mark", 1, XtMarkInfo(1, 1, 0)), drop},
       "-m comment --comment c -m mark --mark 0x1/0x1 -m connlabel --label \"3\" -j DROP"},
      {"no label of the kernel's", {label(128, 0), drop}},
      {"an option that we do not know", {label(1, 4), drop}},
      {"another revision", {XtMatch("connlabel", 1, XtConnLabelInfo(1, 0)), drop}},
      {"half of it", {XtMatch("connlabel", 0, HostU16(1)), drop}},
      {"two labels", {label(1, 0), label(1, 0), drop}},
      {"set, and one that we do not know", {label(1, 2), XtMatch("statistic", 0, Zeros(24))}},
      {"tested, and only counted", {label(1, 0), count}},
      {"not, and only counted", {label(1, 1), count}},
      {"set, and no more than \"continue\"", {label(1, 2), Verdict(-1)}},
      {"behind the target", {drop, label(1, 2)}},
      {"a target of that name", {XtTarget("connlabel", 0, XtConnLabelInfo(1, 2))}},
      {"native, tested",
       {ExpressionBytes("ct", Join({Attr(2, 13), Attr(1, 1)})), Mask(HostU32(2)),
        Compare(HostU32(0), kNotEqual), drop}},
      {"native, set",
       {ExpressionBytes("immediate",
                        Join({Attr(1, 1), Attr(2, Attr(1, Join({HostU32(2), Zeros(12)})))})),
        ExpressionBytes("ct", Join({Attr(2, 13), Attr(4, 1)}))}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const absl::StatusOr<ObservedRule> rule = DecodeRule(RuleMessage(row.family, row.expressions));
    ASSERT_TRUE(rule.ok()) << rule.status();
    ASSERT_EQ(rule->rule() == nullptr, row.text.empty()) << ToString(row.family, *rule);
    if (rule->rule() != nullptr) {
      EXPECT_EQ(ToString(row.family, *rule->rule()), row.text);
    }
  }
}

}  // namespace
}  // namespace kipt::netlink::conn_label_decode_test
