// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/rule_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kipt::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr HintPolicy kHint = HintPolicy::kUsable;

// A node, of which files say what a test sets.
class SupportWatchTest : public ::testing::Test {
 protected:
  bool Look(bool labels_wanted = true, const std::string& mode = "nft") {
    return watch_.Look(mode, kHint, labels_wanted);
  }
  const RuleSupport& support() const { return watch_.support(); }

  XtCompatReading xt_ = {.compat = XtCompat::kPresent};
  XtCompatReading labels_ = {.compat = XtCompat::kPresent, .reason = "xt_connlabel is built in"};
  int labels_read_ = 0;
  SupportWatch watch_{[this] { return xt_; },
                      [this] {
                        ++labels_read_;
                        return labels_;
                      }};
};

TEST_F(SupportWatchTest, DoesNotLookForLabelsThatNobodyWants) {
  labels_.compat = XtCompat::kAbsent;
  EXPECT_FALSE(Look(/*labels_wanted=*/false));
  EXPECT_EQ(labels_read_, 0);
  EXPECT_TRUE(support().conn_labels);
  EXPECT_TRUE(Look());
  EXPECT_EQ(labels_read_, 1);
}

TEST_F(SupportWatchTest, DoesNotLookForLabelsWhereNoRuleCanBeMade) {
  xt_ = {.compat = XtCompat::kAbsent, .reason = "no nft_compat"};
  Look();
  EXPECT_EQ(labels_read_, 0);
  Look(true, "legacy");
  EXPECT_EQ(labels_read_, 1) << "legacy iptables does not need nft_compat";
}

TEST_F(SupportWatchTest, LabelsAreLeftOutInBothModesWhereTheMatchIsMissing) {
  for (const char* mode : {"nft", "legacy"}) {
    labels_ = {.compat = XtCompat::kAbsent, .reason = "xt_connlabel is not there"};
    EXPECT_TRUE(Look(true, mode));
    EXPECT_TRUE(support().xt);
    EXPECT_FALSE(support().conn_labels);
    EXPECT_EQ(support().conn_labels_reason, "xt_connlabel is not there");
    labels_ = {.compat = XtCompat::kPresent, .reason = "xt_connlabel is loaded"};
    EXPECT_TRUE(Look(true, mode)) << "somebody has installed it";
    EXPECT_TRUE(support().conn_labels);
    EXPECT_THAT(support().conn_labels_reason, IsEmpty());
  }
}

TEST_F(SupportWatchTest, LabelsAreTriedWhereNobodyKnows) {
  labels_ = {.compat = XtCompat::kUnknown, .reason = "no modules.dep"};
  Look();
  EXPECT_TRUE(support().conn_labels);
}

TEST_F(SupportWatchTest, ARefusalCountsWhateverFilesSayUntilTheySaySomethingElse) {
  const XtCompatReading readings[] = {
      {.compat = XtCompat::kUnknown, .reason = "no modules.dep"},
      {.compat = XtCompat::kPresent, .reason = "xt_connlabel is in /lib/modules/6.1/modules.dep"}};
  for (const XtCompatReading& reading : readings) {
    labels_ = reading;
    Look();
    ASSERT_TRUE(support().conn_labels) << reading.reason;
    watch_.NoteConnLabelRefusal();
    EXPECT_TRUE(Look());
    EXPECT_FALSE(support().conn_labels) << reading.reason;
    EXPECT_THAT(support().conn_labels_reason, HasSubstr("was refused"));
    EXPECT_TRUE(support().xt);
    EXPECT_FALSE(Look()) << "not tried again each minute";
    labels_ = {.compat = XtCompat::kPresent, .reason = "xt_connlabel is loaded"};
    EXPECT_TRUE(Look());
    EXPECT_TRUE(support().conn_labels);
    labels_ = reading;
    Look();
    EXPECT_TRUE(support().conn_labels) << "it is forgotten, not asleep";
  }
}

TEST_F(SupportWatchTest, ARefusalIsForgottenWhereLabelsWereNotWantedForAWhile) {
  watch_.NoteConnLabelRefusal();
  Look();
  ASSERT_FALSE(support().conn_labels);
  Look(/*labels_wanted=*/false);
  EXPECT_TRUE(support().conn_labels);
  Look();
  EXPECT_TRUE(support().conn_labels);
}

TEST_F(SupportWatchTest, ARefusalOfAnotherMatchSaysNothingOfLabels) {
  xt_ = {.compat = XtCompat::kUnknown};
  watch_.NoteRefusal();
  Look();
  EXPECT_FALSE(support().xt);
  EXPECT_TRUE(support().conn_labels);
}

}  // namespace
}  // namespace kipt::agent
