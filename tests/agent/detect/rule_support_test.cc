// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/rule_support.h"

#include <malloc.h>
#include <sys/utsname.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/process/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

using netlink::BackendKind;

// A node whose files show what a test sets.
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

TEST_F(SupportSourceTest, DoesNotLookForUnusedLabels) {
  labels_.compat = XtCompat::kAbsent;
  EXPECT_FALSE(Read(/*labels_desired=*/false));
  EXPECT_EQ(labels_read_, 0);
  EXPECT_TRUE(support().conn_labels);
  EXPECT_TRUE(Read());
  EXPECT_EQ(labels_read_, 1);
}

TEST_F(SupportSourceTest, ReportsAChangeOnce) {
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

TEST_F(SupportSourceTest, ReadsOnceUntilAnotherConfigurationComes) {
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

TEST_F(SupportSourceTest, ExistingRulesDisproveFilesThatListNoMatches) {
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
    labels_ = {.compat = XtCompat::kUnknown, .reason = "no modules.dep"};
    EXPECT_TRUE(Read(true, mode));
    EXPECT_TRUE(support().conn_labels) << "tried where it is not known";
  }
}

// iptables could print no rule any more.
TEST_F(SupportSourceTest, LabelsAreLeftOutWhileTheFileOfTheirNamesHasNone) {
  const TemporaryTree tree;
  tree.Write("modules", "xt_connlabel 16384 8 - Live 0x0\n");
  const KernelPaths kernel = {.proc = tree.Path(""),
                              .sys_module = tree.Path("sys"),
                              .module_directories = {tree.Path("own")}};
  const std::string names = tree.Path("connlabel.conf");
  SupportSource watch([this] { return xt_; }, [&] { return ReadConnLabelMatch(kernel, names); });
  watch.Read(BackendKind::kNft, /*labels_desired=*/true);
  EXPECT_TRUE(watch.known().conn_labels) << "no file";
  for (const bool removed : {false, true}) {
    tree.Write("connlabel.conf", "# nothing\n");
    EXPECT_TRUE(watch.Read(BackendKind::kNft, true));
    EXPECT_TRUE(watch.known().xt);
    EXPECT_FALSE(watch.known().conn_labels);
    EXPECT_THAT(watch.known().conn_labels_reason, HasSubstr(names));
    EXPECT_FALSE(watch.Read(BackendKind::kNft, true));
    removed ? tree.Remove("connlabel.conf") : tree.Write("connlabel.conf", "114 masq\n");
    EXPECT_TRUE(watch.Read(BackendKind::kNft, true));
    EXPECT_TRUE(watch.known().conn_labels);
    EXPECT_THAT(watch.known().conn_labels_reason, IsEmpty());
  }
  // Where it is not known it forbids labels; where there are none it adds nothing.
  tree.Write("connlabel.conf", "");
  tree.Remove("modules");
  EXPECT_EQ(ReadConnLabelMatch(kernel, tree.Path("none")).compat, XtCompat::kUnknown);
  EXPECT_EQ(ReadConnLabelMatch(kernel, names).compat, XtCompat::kAbsent);
  EXPECT_THAT(ReadConnLabelMatch(kernel, names).reason, HasSubstr("connlabel.conf"));
  tree.Write("modules", "nf_tables 1 - Live 0x0\n");
  tree.Write("own/modules.builtin", "");
  tree.Write("own/modules.dep", "");
  EXPECT_THAT(ReadConnLabelMatch(kernel, names).reason, HasSubstr("xt_connlabel is not loaded"));
}

TEST_F(SupportSourceTest, ARefusalCountsUntilTheFilesChange) {
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

// Where rules about labels are the only ones of a family, their match is what the kernel names.
TEST_F(SupportSourceTest, ARefusalIsForgottenAfterARoundWithoutLabelsOrWithOtherFiles) {
  xt_ = {.compat = XtCompat::kUnknown, .reason = "no modules.dep"};
  const auto refused = [&] {
    watch_.NoteConnLabelRefusal(BackendKind::kNft, "no such match");
    Read();
    return !support().conn_labels;
  };
  ASSERT_TRUE(refused());
  Read(/*labels_desired=*/false);
  EXPECT_TRUE(support().conn_labels);
  Read();
  EXPECT_TRUE(support().conn_labels);
  ASSERT_TRUE(refused());
  xt_ = {.compat = XtCompat::kPresent, .reason = "nft_compat is loaded"};
  EXPECT_TRUE(Read());
  EXPECT_TRUE(support().conn_labels);
  xt_ = {.compat = XtCompat::kUnknown};
  watch_.NoteRefusal(BackendKind::kNft, /*labels_desired=*/true);
  Read();
  EXPECT_FALSE(support().xt) << "a refusal of another match";
  EXPECT_TRUE(support().conn_labels);
}

using Files = std::map<std::string, std::string>;

// A node with these files, among them lists of modules of the host and of its own.
class KernelFiles {
 public:
  explicit KernelFiles(const Files& files) {
    for (const auto& [name, text] : files) tree_.Write(name, text);
  }
  KernelPaths paths() const {
    return {.proc = tree_.Path(""),
            .sys_module = tree_.Path("sys"),
            .module_directories = {tree_.Path("host"), tree_.Path("own")}};
  }
  const TemporaryTree& tree() const { return tree_; }

 private:
  TemporaryTree tree_;
};

constexpr char kOther[] = "xt_connlabels 1 - Live 0x0\nx xt_connlabel 0\n";
constexpr char kLine[] = "kernel/net/netfilter/xt_connlabel.ko\n";
constexpr char kSymbol[] = "ffffffff81faf840 t connlabel_mt\n";

struct ModuleRow {
  Files files;
  ModuleState state;
  XtCompat compat;
  std::string reason;
};

TEST(ModuleTest, IsFoundInTheKernelsOwnLists) {
  const Files no_more = {{"modules", kOther}, {"sys/kernel/modules_disabled", "1\n"}};
  const std::string built_in = "xt_connlabel is built in";
  const std::string loaded = "xt_connlabel is loaded";
  const std::string missing = "xt_connlabel is not loaded and not in ";
  const std::string no_lists = "xt_connlabel is not known to be loaded, and no modules.dep shows";
  const std::string hidden = "whether xt_connlabel is built in cannot be read";
  const std::string none = "xt_connlabel is not built in, and this kernel loads no modules";
  using enum ModuleState;
  constexpr auto kYes = XtCompat::kPresent;
  constexpr auto kNo = XtCompat::kAbsent;
  constexpr auto kNotKnown = XtCompat::kUnknown;
  const ModuleRow rows[] = {
      {Files{{"modules", "x 1 - Live 0x0\nxt_connlabel 2 - Live 0x0\n"}}, kPresent, kYes, loaded},
      {Files{{"modules", kOther}, {"sys/xt_connlabel/refcnt", "1"}}, kPresent, kYes, loaded},
      {Files{{"modules", kOther}, {"own/modules.builtin", kLine}}, kPresent, kYes, built_in},
      {Files{{"modules", kOther}, {"own/modules.builtin", ""}, {"kallsyms", kSymbol}}, kLoadable,
       kNotKnown, no_lists},
      {Files{{"modules", kOther}, {"kallsyms", kSymbol}}, kPresent, kYes, built_in},
      {Files{{"version", "L"}, {"kallsyms", "ff t connlabel_mt.llvm.17\n"}}, kNothingToLoad, kYes,
       built_in},
      {Files{{"modules", kOther}, {"kallsyms", "ff t connlabel_mt\t[xt_connlabel]\n"}}, kLoadable,
       kNotKnown, no_lists},
      {Files{{"version", "L"}, {"kallsyms", "ff t connlabel_mt_x\nff t xconnlabel_mt\n"}},
       kNothingToLoad, kNo, none},
      {Files{{"modules", kOther},
             {"own/modules.builtin", "kernel/net/netfilter/xt_connlabels.ko\n"},
             {"own/modules.dep", "kernel/net/netfilter/xt_connlabel.ko.zst: kernel/a.ko.zst\n"}},
       kLoadable, kYes, "/own/modules.dep"},
      {Files{{"own/modules.dep", kLine}}, kUnknown, kYes, "/own/modules.dep"},
      {Files{{"modules", kOther},
             {"own/modules.builtin", ""},
             {"own/modules.dep", "kernel/net/xt_connlabel2.ko: kernel/net/xt_connlabel.ko\n"}},
       kMissing, kNo, missing},
      {Files{{"modules", kOther}, {"own/modules.builtin", ""}}, kLoadable, kNotKnown, no_lists},
      {Files{{"modules", kOther},
             {"host/modules.builtin", ""},
             {"host/modules.dep", ""},
             {"own/modules.builtin", kLine},
             {"own/modules.dep", kLine}},
       kMissing, kNo, "/host/modules.dep"},
      {Files{{"modules", kOther}}, kUnknown, kNotKnown, no_lists},
      {Files{{"modules", kOther}, {"own/modules.dep", ""}}, kUnknown, kNotKnown,
       "whether it is built in cannot be read"},
      {Files{{"own/modules.builtin", ""}, {"own/modules.dep", ""}}, kLoadable, kNotKnown,
       "whether it is loaded cannot be read"},
      {Files{{"version", "L"}}, kNothingToLoad, kNotKnown, hidden},
      {no_more, kNothingToLoad, kNotKnown, hidden},
      {Files(), kUnknown, kNotKnown, no_lists},
  };
  for (const ModuleRow& row : rows) {
    SCOPED_TRACE(::testing::PrintToString(row.files));
    const KernelFiles files(row.files);
    EXPECT_EQ(FindModule(files.paths(), "xt_connlabel", "connlabel_mt"), row.state);
    const XtCompatReading reading = ReadConnLabelMatch(files.paths(), "/none");
    EXPECT_EQ(reading.compat, row.compat);
    EXPECT_THAT(reading.reason, HasSubstr(row.reason));
  }
}

constexpr char kSymbols[] =
    "ffffffff81f98590 t nft_match_select_ops\nffffffff81fa7310 t mark_mt\n"
    "ffffffff81faf4a0 t comment_mt\nffffffff81fb0330 t conntrack_mt_v3\n";

std::string ListOf(const std::vector<std::string>& modules) {
  std::string text;
  for (const std::string& one : modules) absl::StrAppend(&text, "kernel/net/", one, ".ko.xz:\n");
  return text;
}

struct CompatRow {
  std::string name;
  Files files;
  XtCompat compat;
  std::string reason;
};

TEST(XtCompatTest, NeedsEachMatchAndIsAsUncertainAsTheFirstUnknownOne) {
  const std::vector<std::string> modules = {"nft_compat", "xt_comment", "xt_conntrack", "xt_mark"};
  constexpr auto kNotKnown = XtCompat::kUnknown;
  std::vector<CompatRow> rows = {
      {"built in by symbols", Files{{"version", "L"}, {"kallsyms", kSymbols}}, XtCompat::kPresent,
       ""},
      {"some loaded, some loadable",
       Files{{"modules", "nft_compat 1 1 - Live\n"}, {"own/modules.dep", ListOf(modules)}},
       XtCompat::kPresent, "loadable"},
      {"one that is absent after an unknown one",
       Files{{"modules", kOther},
             {"sys/kernel/modules_disabled", "1\n"},
             {"own/modules.dep", ListOf({"nft_compat"})},
             {"kallsyms", "ff t comment_mt\nff t conntrack_mt_v3\n"}},
       XtCompat::kAbsent, "xt_mark is not built in, and this kernel loads no modules"},
      {"the first unknown one",
       Files{{"modules", "xt_conntrack 16384 1 - Live 0x0\nxt_mark 16384 2 - Live 0x0\n"}},
       kNotKnown, "nft_compat is not known to be loaded"},
  };
  for (const std::string& missing : modules) {
    std::vector<std::string> others = modules;
    std::erase(others, missing);
    rows.push_back(
        {missing + " is missing",
         Files{
             {"modules", kOther}, {"own/modules.builtin", ""}, {"own/modules.dep", ListOf(others)}},
         XtCompat::kAbsent, missing + " is not loaded and not in "});
  }
  for (const CompatRow& row : rows) {
    SCOPED_TRACE(row.name);
    const XtCompatReading reading = ReadXtCompat(KernelFiles(row.files).paths());
    EXPECT_EQ(reading.compat, row.compat);
    EXPECT_THAT(reading.reason, HasSubstr(row.reason));
  }
  const XtCompatReading here = ReadXtCompat(SystemKernelPaths(""));
  EXPECT_EQ(here.compat, XtCompat::kPresent) << "on this machine: " << here.reason;
}

TEST(KernelSymbolsTest, AreReadOnlyWhereNothingElseDecides) {
  const std::string label = "kernel/net/netfilter/xt_connlabel.ko:\n";
  const std::pair<Files, int> rows[] = {
      {{{"modules", "xt_connlabel 16384 8 - Live 0x0\n"}}, 0},
      {{{"modules", ""}, {"own/modules.builtin", label}}, 0},
      {{{"modules", ""}, {"own/modules.dep", label}}, 0},
      {{{"modules", ""}, {"own/modules.builtin", ""}, {"own/modules.dep", ""}}, 0},
      {{{"modules", ""}, {"own/modules.dep", ""}}, 1},
      {{{"modules", ""}}, 1},
  };
  for (const auto& [given, expected] : rows) {
    SCOPED_TRACE(::testing::PrintToString(given));
    const KernelFiles files(given);
    files.tree().Write("kallsyms", kSymbols);
    absl::StatusOr<Inotify> inotify = Inotify::Create();
    ASSERT_TRUE(inotify.ok());
    ASSERT_TRUE(inotify->Watch(files.tree().Path("kallsyms"), IN_OPEN).ok());
    ReadConnLabelMatch(files.paths(), "/none");
    int reads = 0;
    EXPECT_TRUE(inotify->Take([&](const inotify_event& /*event*/) { ++reads; }).ok());
    EXPECT_EQ(reads, expected);
  }
}

TEST(KernelSymbolsTest, AreNotReadForWhoTries) {
  const KernelFiles files({{"version", "L"}, {"kallsyms", "ff t something_else\n"}});
  const KernelPaths paths = files.paths();
  EXPECT_EQ(ReadXtCompat(paths).compat, XtCompat::kAbsent);
  EXPECT_EQ(ReadXtCompat(paths, KernelSymbols::kSkip).compat, XtCompat::kUnknown);
  EXPECT_EQ(ReadConnLabelMatch(paths, "/none").compat, XtCompat::kAbsent);
  EXPECT_EQ(ReadConnLabelMatch(paths, "/none", KernelSymbols::kSkip).compat, XtCompat::kUnknown);
}

TEST(KernelListsTest, AListThatCannotBeReadShowsNothing) {
  const KernelFiles files({{"modules", kOther}});
  files.tree().Directory("own/modules.builtin");
  EXPECT_EQ(FindModule(files.paths(), "nf_tables", "nft_do_chain"), ModuleState::kUnknown);
}

TEST(KernelListsTest, ALongLineIsFreed) {
  const KernelFiles files({{"modules", std::string(1 << 20, 'x')}});
  const auto used = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const size_t before = used();
  for (int i = 0; i < 20; ++i) FindModule(files.paths(), "nf_tables", "nft_do_chain");
  EXPECT_LT(used(), before + (size_t{10} << 20));
}

TEST(SystemKernelPathsTest, ReadsTheHostsDirectoriesFirst) {
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
