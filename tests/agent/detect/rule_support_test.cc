// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/rule_support.h"

#include <malloc.h>
#include <sys/utsname.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

using netlink::BackendKind;

// A node, of which files say what a test sets.
class SupportSourceTest : public ::testing::Test {
 protected:
  bool Read(bool labels_desired = true, BackendKind mode = BackendKind::kNft) {
    return watch_.Read(mode, labels_desired);
  }
  const RuleSupport& support() const { return watch_.known(); }

  XtCompatReading xt_ = {.compat = XtCompat::kPresent};
  XtCompatReading labels_ = {.compat = XtCompat::kPresent, .reason = "xt_connlabel is built in"};
  int labels_read_ = 0;
  SupportSource watch_{[this] { return xt_; },
                       [this] {
                         ++labels_read_;
                         return labels_;
                       }};
};

TEST_F(SupportSourceTest, DoesNotLookForLabelsThatNobodyWants) {
  labels_.compat = XtCompat::kAbsent;
  EXPECT_FALSE(Read(/*labels_desired=*/false));
  EXPECT_EQ(labels_read_, 0);
  EXPECT_TRUE(support().conn_labels);
  EXPECT_TRUE(Read());
  EXPECT_EQ(labels_read_, 1);
}

TEST_F(SupportSourceTest, TellsOnceWhatHasChanged) {
  const XtCompatReading present = xt_;
  EXPECT_FALSE(Read());
  EXPECT_EQ(watch_.TakeNews(), "");
  xt_ = {.compat = XtCompat::kAbsent, .reason = "no nft_compat"};
  EXPECT_TRUE(Read());
  EXPECT_EQ(watch_.TakeNews(), "iptables can hold no rules here: no nft_compat");
  EXPECT_EQ(watch_.TakeNews(), "");
  xt_ = present;
  EXPECT_TRUE(Read());
  EXPECT_EQ(watch_.TakeNews(), "iptables can hold rules now");
  const XtCompatReading with_labels = labels_;
  labels_ = {.compat = XtCompat::kAbsent, .reason = "no xt_connlabel"};
  EXPECT_TRUE(Read());
  EXPECT_EQ(watch_.TakeNews(), "connection labels are not available here: no xt_connlabel");
  labels_ = with_labels;
  EXPECT_TRUE(Read());
  EXPECT_EQ(watch_.TakeNews(), "connection labels are available now");
}

TEST_F(SupportSourceTest, LooksOnceUntilAnotherConfigurationComes) {
  xt_ = {.compat = XtCompat::kAbsent, .reason = "no nft_compat"};
  EXPECT_TRUE(watch_.ReadOnce(BackendKind::kNft, true));
  EXPECT_FALSE(support().xt);
  xt_ = {.compat = XtCompat::kPresent};
  EXPECT_FALSE(watch_.ReadOnce(BackendKind::kNft, true));
  EXPECT_FALSE(support().xt);
  watch_.ReadAgain();
  EXPECT_TRUE(watch_.ReadOnce(BackendKind::kNft, true));
  EXPECT_TRUE(support().xt);
  EXPECT_EQ(watch_.TakeNews(), "");
}

TEST_F(SupportSourceTest, WhatStandsDisprovesFilesThatSayThatThereAreNoMatches) {
  xt_ = {.compat = XtCompat::kAbsent, .reason = "no nft_compat"};
  Read();
  ASSERT_FALSE(support().xt);
  EXPECT_TRUE(watch_.NoteDisproof(BackendKind::kNft, true));
  EXPECT_TRUE(support().xt);
  EXPECT_FALSE(Read()) << "from then on";
  EXPECT_TRUE(watch_.NoteRefusal(BackendKind::kNft, true)) << "until the kernel refuses a rule";
  EXPECT_FALSE(support().xt);
}

TEST_F(SupportSourceTest, DoesNotLookForLabelsWhereNoRuleCanBeMade) {
  xt_ = {.compat = XtCompat::kAbsent, .reason = "no nft_compat"};
  Read();
  EXPECT_EQ(labels_read_, 0);
  Read(true, BackendKind::kIptablesLegacy);
  EXPECT_EQ(labels_read_, 1) << "legacy iptables does not need nft_compat";
}

TEST_F(SupportSourceTest, LabelsAreLeftOutInBothModesWhereTheMatchIsMissing) {
  for (const BackendKind mode : {BackendKind::kNft, BackendKind::kIptablesLegacy}) {
    labels_ = {.compat = XtCompat::kAbsent, .reason = "xt_connlabel is not there"};
    EXPECT_TRUE(Read(true, mode));
    EXPECT_TRUE(support().xt);
    EXPECT_FALSE(support().conn_labels);
    EXPECT_EQ(support().conn_labels_reason, "xt_connlabel is not there");
    labels_ = {.compat = XtCompat::kPresent, .reason = "xt_connlabel is loaded"};
    EXPECT_TRUE(Read(true, mode)) << "somebody has installed it";
    EXPECT_TRUE(support().conn_labels);
    EXPECT_THAT(support().conn_labels_reason, IsEmpty());
  }
}

// iptables could print no rule any more.
TEST_F(SupportSourceTest, LabelsAreLeftOutInBothModesWhileTheFileOfTheirNamesHasNone) {
  const TemporaryTree tree;
  tree.Write("modules", "xt_connlabel 16384 8 - Live 0x0\n");
  const KernelPaths kernel = {
      .proc = tree.Path(""), .sys_module = tree.Path("sys"), .module_directories = {}};
  const std::string names = tree.Path("connlabel.conf");
  SupportSource watch([this] { return xt_; }, [&] { return ReadConnLabelMatch(kernel, names); });
  for (const BackendKind mode : {BackendKind::kNft, BackendKind::kIptablesLegacy}) {
    watch.Read(mode, /*labels_desired=*/true);
    EXPECT_TRUE(watch.known().conn_labels) << "no file";
    tree.Write("connlabel.conf", "# nothing\n");
    EXPECT_TRUE(watch.Read(mode, true));
    EXPECT_TRUE(watch.known().xt);
    EXPECT_FALSE(watch.known().conn_labels);
    EXPECT_THAT(watch.known().conn_labels_reason, HasSubstr(names));
    EXPECT_FALSE(watch.Read(mode, true));
    tree.Write("connlabel.conf", "114 masq\n");
    EXPECT_TRUE(watch.Read(mode, true)) << "somebody has repaired it";
    EXPECT_TRUE(watch.known().conn_labels);
    tree.Write("connlabel.conf", "");
    EXPECT_TRUE(watch.Read(mode, true));
    EXPECT_FALSE(watch.known().conn_labels);
    tree.Remove("connlabel.conf");
    EXPECT_TRUE(watch.Read(mode, true)) << "or has removed it";
    EXPECT_TRUE(watch.known().conn_labels);
    EXPECT_THAT(watch.known().conn_labels_reason, IsEmpty());
  }
}

TEST_F(SupportSourceTest, TheFileOfNamesForbidsLabelsWhereNobodyKnowsAndAddsNothingWhereNoneAre) {
  const TemporaryTree tree;
  tree.Write("connlabel.conf", "# nothing\n");
  KernelPaths kernel = {.proc = tree.Path(""),
                        .sys_module = tree.Path("sys"),
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

TEST_F(SupportSourceTest, LabelsAreTriedWhereNobodyKnows) {
  labels_ = {.compat = XtCompat::kUnknown, .reason = "no modules.dep"};
  Read();
  EXPECT_TRUE(support().conn_labels);
}

TEST_F(SupportSourceTest, ARefusalCountsWhateverFilesSayUntilTheySaySomethingElse) {
  const XtCompatReading readings[] = {
      {.compat = XtCompat::kUnknown, .reason = "no modules.dep"},
      {.compat = XtCompat::kPresent, .reason = "xt_connlabel is in /lib/modules/6.1/modules.dep"}};
  for (const XtCompatReading& reading : readings) {
    labels_ = reading;
    Read();
    ASSERT_TRUE(support().conn_labels) << reading.reason;
    EXPECT_TRUE(watch_.NoteConnLabelRefusal(BackendKind::kNft, "no such match"));
    EXPECT_FALSE(support().conn_labels) << reading.reason;
    EXPECT_THAT(support().conn_labels_reason, HasSubstr("was refused"));
    EXPECT_THAT(support().conn_labels_reason, HasSubstr("no such match"));
    EXPECT_TRUE(support().xt);
    EXPECT_FALSE(Read()) << "not tried again each minute";
    labels_ = {.compat = XtCompat::kPresent, .reason = "xt_connlabel is loaded"};
    EXPECT_TRUE(Read());
    EXPECT_TRUE(support().conn_labels);
    labels_ = reading;
    Read();
    EXPECT_TRUE(support().conn_labels) << "it is forgotten, not asleep";
  }
}

TEST_F(SupportSourceTest, ARefusalIsForgottenWhereLabelsWereNotWantedForAWhile) {
  watch_.NoteConnLabelRefusal(BackendKind::kNft, "no such match");
  Read();
  ASSERT_FALSE(support().conn_labels);
  Read(/*labels_desired=*/false);
  EXPECT_TRUE(support().conn_labels);
  Read();
  EXPECT_TRUE(support().conn_labels);
}

// Where rules about labels are the only ones of a family, their match is what the kernel names.
TEST_F(SupportSourceTest, ARefusalIsForgottenWhereFilesTellSomethingElseOfAllMatches) {
  xt_ = {.compat = XtCompat::kUnknown, .reason = "no modules.dep"};
  watch_.NoteConnLabelRefusal(BackendKind::kNft, "no such match");
  Read();
  ASSERT_FALSE(support().conn_labels);
  xt_ = {.compat = XtCompat::kPresent, .reason = "nft_compat is loaded"};
  EXPECT_TRUE(Read());
  EXPECT_TRUE(support().conn_labels);
}

TEST_F(SupportSourceTest, ARefusalOfAnotherMatchSaysNothingOfLabels) {
  xt_ = {.compat = XtCompat::kUnknown};
  watch_.NoteRefusal(BackendKind::kNft, /*labels_desired=*/true);
  Read();
  EXPECT_FALSE(support().xt);
  EXPECT_TRUE(support().conn_labels);
}

struct Row {
  std::string name;
  std::map<std::string, std::string> files;
  ModuleState state = ModuleState::kPresent;
};

constexpr char kOther[] = "nf_tables_set 1 - Live 0x0\nx nf_tables 0\n";
constexpr char kLine[] = "kernel/net/netfilter/nf_tables.ko";

TEST(FindModuleTest, ReadsTheKernelsOwnLists) {
  const Row rows[] = {
      {"Loaded", {{"modules", "x 1 - Live 0x0\nnf_tables 2 - Live 0x0\n"}}},
      {"LoadedAndNothingElseToBeLoaded",
       {{"modules", "nf_tables 2 - Live 0x0\n"}, {"sys/kernel/modules_disabled", "1\n"}}},
      {"InSysModule", {{"modules", kOther}, {"sys/nf_tables/version", ""}}},
      {"BuiltIn", {{"modules", kOther}, {"own/modules.builtin", std::string(kLine) + "\n"}}},
      {"BuiltInBehindAnEmptyLine",
       {{"modules", kOther}, {"own/modules.builtin", "\n" + std::string(kLine) + "\n"}}},
      {"TheListOfBuiltInModulesCountsBeforeTheSymbols",
       {{"modules", kOther},
        {"own/modules.builtin", ""},
        {"kallsyms", "0000000000000000 T nft_do_chain\n"}},
       ModuleState::kLoadable},
      {"BuiltInByItsSymbol",
       {{"modules", kOther}, {"kallsyms", "0000000000000000 T nft_do_chain\n"}}},
      {"TheSymbolOfAModuleThatWasUnloadedMeanwhile",
       {{"modules", kOther}, {"kallsyms", "0000000000000000 t nft_do_chain\t[nf_tables]\n"}},
       ModuleState::kLoadable},
      {"OnDisk",
       {{"modules", kOther},
        {"own/modules.builtin", "kernel/net/netfilter/nf_tables_set.ko\n"},
        {"own/modules.dep", std::string(kLine) + ".zst: kernel/lib/libcrc32c.ko.zst\n"}},
       ModuleState::kLoadable},
      {"NotOnDisk",
       {{"modules", kOther},
        {"own/modules.builtin", ""},
        {"own/modules.dep", "kernel/net/netfilter/nft_compat.ko: " + std::string(kLine)}},
       ModuleState::kMissing},
      {"BuiltInIsKnownButWhatIsOnDiskIsNot",
       {{"modules", kOther}, {"own/modules.builtin", ""}},
       ModuleState::kLoadable},
      {"TheHostsListsCountBeforeOurOwn",
       {{"modules", kOther},
        {"host/modules.builtin", ""},
        {"host/modules.dep", std::string(kLine) + ":\n"},
        {"own/modules.builtin", std::string(kLine) + "\n"},
        {"own/modules.dep", ""}},
       ModuleState::kLoadable},
      {"AContainerWithoutListsAndSymbols", {{"modules", kOther}}, ModuleState::kUnknown},
      {"AKernelWithoutModules", {{"version", "Linux"}}, ModuleState::kNothingToLoad},
      {"AKernelThatLoadsNoMore",
       {{"modules", kOther}, {"sys/kernel/modules_disabled", "1\n"}},
       ModuleState::kNothingToLoad},
      {"AKernelThatStillLoads",
       {{"modules", kOther}, {"sys/kernel/modules_disabled", "0\n"}},
       ModuleState::kUnknown},
      {"NoProcAtAll", {}, ModuleState::kUnknown},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const TemporaryTree tree;
    for (const auto& [name, text] : row.files) tree.Write(name, text);
    const KernelPaths paths = {.proc = tree.Path(""),
                               .sys_module = tree.Path("sys"),
                               .module_directories = {tree.Path("host"), tree.Path("own")}};
    EXPECT_EQ(FindModule(paths, "nf_tables", "nft_do_chain"), row.state);
  }
}

TEST(KernelListsTest, AListThatCannotBeReadShowsNothing) {
  const TemporaryTree tree;
  tree.Write("modules", kOther);
  tree.Directory("own/modules.builtin");
  const KernelPaths paths = {.proc = tree.Path(""),
                             .sys_module = tree.Path("sys"),
                             .module_directories = {tree.Path("own")}};
  EXPECT_EQ(FindModule(paths, "nf_tables", "nft_do_chain"), ModuleState::kUnknown);
}

TEST(KernelListsTest, ALongLineIsFreed) {
  const TemporaryTree tree;
  tree.Write("modules", std::string(1 << 20, 'x'));
  const KernelPaths paths = {.proc = tree.Path(""), .sys_module = tree.Path("sys")};
  const auto used = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const size_t before = used();
  for (int i = 0; i < 20; ++i) FindModule(paths, "nf_tables", "nft_do_chain");
  EXPECT_LT(used(), before + (size_t{10} << 20));
}

TEST(SystemKernelPathsTest, LooksIntoTheHostsDirectoriesFirst) {
  const KernelPaths own = SystemKernelPaths("/");
  utsname name = {};
  ASSERT_EQ(uname(&name), 0);
  const std::string release = name.release;
  EXPECT_EQ(own.module_directories,
            (std::vector<std::string>{"/lib/modules/" + release, "/usr/lib/modules/" + release}));
  EXPECT_EQ(own.module_directories, SystemKernelPaths("").module_directories);
  const KernelPaths host = SystemKernelPaths("/host");
  EXPECT_EQ(host.module_directories.size(), 2 * own.module_directories.size());
  EXPECT_EQ(host.module_directories.front(), "/host" + own.module_directories.front());
}

}  // namespace
}  // namespace kipt::agent
