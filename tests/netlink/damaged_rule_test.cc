// SPDX-License-Identifier: Apache-2.0
//
// Rules whose bytes are damaged: the kernel sends none, a fuzzer and a bug do.
#include <random>

#include "netlink/rule_codec.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink::damaged_rule_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

constexpr uint32_t kNetwork = 1;
constexpr uint32_t kMetaMark = 3;

TEST(DamagedRuleTest, NeedsAFamilyAndAHandle) {
  using ::kipt::testing::StatusIs;
  const Bytes good = RuleMessage(Family::kIPv4, {Verdict(0)});
  for (size_t length = 0; length < 20; ++length) {
    EXPECT_THAT(DecodeRule(absl::MakeConstSpan(good.data(), length)),
                StatusIs(absl::StatusCode::kDataLoss));
  }
  Bytes bridge = good;
  bridge[16] = 7;
  EXPECT_THAT(DecodeRule(bridge), StatusIs(absl::StatusCode::kDataLoss));
  const Bytes no_handle = Join({Bytes(good.begin(), good.begin() + 20), Attr(1, Text("filter"))});
  EXPECT_THAT(DecodeRule(no_handle), StatusIs(absl::StatusCode::kDataLoss));
}

// A rule with everything in it, to be broken.
Bytes RichRule() {
  return RuleMessage(
      Family::kIPv4,
      {Payload(kNetwork, 12, 4), Mask(FromHex("ff000000")), Compare(FromHex("7f000000")),
       Meta(kMetaMark, 8), Compare(HostU32(1), 1, 8), XtMatch("comment", 0, XtCommentInfo("c")),
       XtMatch("conntrack", 3, XtCtStateInfo(1, 0, 2)), CounterBytes(),
       XtTarget("MASQUERADE", 0, XtMasqueradeInfo(0)), Verdict(-3, "CHAIN")},
      UserDataComment("more"));
}

TEST(DamagedRuleTest, SurvivesEveryCutAndEveryChangedByte) {
  const Bytes rich = RichRule();
  for (size_t length = 0; length <= rich.size(); ++length) {
    // A heap copy of just that size, so that a sanitizer sees a byte too much.
    const Bytes cut(rich.begin(), rich.begin() + static_cast<ptrdiff_t>(length));
    (void)DecodeRule(cut);
  }
  for (size_t i = 0; i < rich.size(); ++i) {
    for (const uint8_t value : Bytes{0x00, 0x01, 0x03, 0x04, 0x7f, 0x80, 0xff}) {
      Bytes changed = rich;
      changed[i] = value;
      (void)DecodeRule(changed);
    }
  }
}

TEST(DamagedRuleTest, SurvivesRandomDamage) {
  const Bytes rich = RuleMessage(
      Family::kIPv4,
      {Payload(kNetwork, 12, 4), Mask(FromHex("ff000000")), Compare(FromHex("7f000000")),
       Meta(kMetaMark, 8), Compare(HostU32(1), 1, 8), XtMatch("comment", 0, XtCommentInfo("c")),
       XtMatch("conntrack", 3, XtCtStateInfo(1, 0, 2)), CounterBytes(), Verdict(-3, "CHAIN")});
  ASSERT_NE(DecodeRule(rich)->rule(), nullptr);
  int rules = 0;
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same every time
  for (int round = 0; round < 20000; ++round) {
    Bytes changed = rich;
    for (int i = 0; i < 2; ++i) changed[random() % changed.size()] = static_cast<uint8_t>(random());
    const absl::StatusOr<ObservedRule> rule = DecodeRule(changed);
    if (!rule.ok() || rule->rule() == nullptr) continue;
    ++rules;
    // What is taken for a Rule must be one that we could have written.
    const ChainId chain{.family = Family::kIPv4, .table = Table::kNat, .name = "TEST"};
    Requests messages(0);
    nlmsghdr* message = messages.Begin(/*type=*/0, /*family=*/2, /*flags=*/0);
    EXPECT_TRUE(EncodeRule(chain, *rule->rule(), message).ok())
        << ToString(Family::kIPv4, *rule->rule());
  }
  EXPECT_GT(rules, 100) << "the damage is too heavy to test anything";
}

}  // namespace
}  // namespace kipt::netlink::damaged_rule_test
