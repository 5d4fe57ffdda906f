// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/rule_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

using netlink::BackendKind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr HintPolicy kHint = HintPolicy::kUsable;

// A node, of which files say what a test sets.
class SupportWatchTest : public ::testing::Test {
 protected:
  bool Look(bool labels_wanted = true, BackendKind mode = BackendKind::kNft) {
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
  Look(true, BackendKind::kIptablesLegacy);
  EXPECT_EQ(labels_read_, 1) << "legacy iptables does not need nft_compat";
}

TEST_F(SupportWatchTest, LabelsAreLeftOutInBothModesWhereTheMatchIsMissing) {
  for (const BackendKind mode : {BackendKind::kNft, BackendKind::kIptablesLegacy}) {
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

// iptables could print no rule any more.
TEST_F(SupportWatchTest, LabelsAreLeftOutInBothModesWhileTheFileOfTheirNamesHasNone) {
  const kipt::testing::TemporaryTree tree;
  tree.Write("modules", "xt_connlabel 16384 8 - Live 0x0\n");
  const KernelPaths kernel = {.proc_modules = tree.Path("modules"),
                              .sys_module = tree.Path("sys"),
                              .kallsyms = tree.Path("kallsyms"),
                              .module_directories = {}};
  const std::string names = tree.Path("connlabel.conf");
  SupportWatch watch([this] { return xt_; }, [&] { return ReadConnLabelMatch(kernel, names); });
  for (const BackendKind mode : {BackendKind::kNft, BackendKind::kIptablesLegacy}) {
    watch.Look(mode, kHint, /*labels_wanted=*/true);
    EXPECT_TRUE(watch.support().conn_labels) << "no file";
    tree.Write("connlabel.conf", "# nothing\n");
    EXPECT_TRUE(watch.Look(mode, kHint, true));
    EXPECT_TRUE(watch.support().xt);
    EXPECT_FALSE(watch.support().conn_labels);
    EXPECT_THAT(watch.support().conn_labels_reason, HasSubstr(names));
    EXPECT_FALSE(watch.Look(mode, kHint, true));
    tree.Write("connlabel.conf", "114 masq\n");
    EXPECT_TRUE(watch.Look(mode, kHint, true)) << "somebody has mended it";
    EXPECT_TRUE(watch.support().conn_labels);
    tree.Write("connlabel.conf", "");
    EXPECT_TRUE(watch.Look(mode, kHint, true));
    EXPECT_FALSE(watch.support().conn_labels);
    tree.Remove("connlabel.conf");
    EXPECT_TRUE(watch.Look(mode, kHint, true)) << "or has removed it";
    EXPECT_TRUE(watch.support().conn_labels);
    EXPECT_THAT(watch.support().conn_labels_reason, IsEmpty());
  }
}

TEST_F(SupportWatchTest, TheFileOfNamesForbidsLabelsWhereNobodyKnowsAndAddsNothingWhereNoneAre) {
  const kipt::testing::TemporaryTree tree;
  tree.Write("connlabel.conf", "# nothing\n");
  KernelPaths kernel = {.proc_modules = tree.Path("modules"),
                        .proc_version = tree.Path("version"),
                        .modules_disabled = tree.Path("disabled"),
                        .sys_module = tree.Path("sys"),
                        .kallsyms = tree.Path("kallsyms"),
                        .module_directories = {tree.Path("own")}};
  const auto read = [&] { return ReadConnLabelMatch(kernel, tree.Path("connlabel.conf")); };
  ASSERT_EQ(ReadConnLabelMatch(kernel, tree.Path("none")).compat, XtCompat::kUnknown);
  EXPECT_EQ(read().compat, XtCompat::kAbsent);
  EXPECT_THAT(read().reason, HasSubstr("connlabel.conf"));
  tree.Write("modules", "nf_tables 1 - Live 0x0\n");
  tree.Write("own/modules.builtin", "");
  tree.Write("own/modules.dep", "");
  EXPECT_EQ(read().compat, XtCompat::kAbsent);
  EXPECT_THAT(read().reason, HasSubstr("xt_connlabel is not loaded"));
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
    watch_.NoteConnLabelRefusal("no such match");
    EXPECT_TRUE(Look());
    EXPECT_FALSE(support().conn_labels) << reading.reason;
    EXPECT_THAT(support().conn_labels_reason, HasSubstr("was refused"));
    EXPECT_THAT(support().conn_labels_reason, HasSubstr("no such match"));
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
  watch_.NoteConnLabelRefusal("no such match");
  Look();
  ASSERT_FALSE(support().conn_labels);
  Look(/*labels_wanted=*/false);
  EXPECT_TRUE(support().conn_labels);
  Look();
  EXPECT_TRUE(support().conn_labels);
}

// Where rules about labels are the only ones of a family, their match is what the kernel names.
TEST_F(SupportWatchTest, ARefusalIsForgottenWhereFilesTellSomethingElseOfAllMatches) {
  xt_ = {.compat = XtCompat::kUnknown, .reason = "no modules.dep"};
  watch_.NoteConnLabelRefusal("no such match");
  Look();
  ASSERT_FALSE(support().conn_labels);
  xt_ = {.compat = XtCompat::kPresent, .reason = "nft_compat is loaded"};
  EXPECT_TRUE(Look());
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
