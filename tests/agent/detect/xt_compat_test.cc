// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>

#include "agent/detect/rule_support.h"
#include "agent/process/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent::xt_compat_test {
namespace {

using Files = std::map<std::string, std::string>;

struct Row {
  std::string name;
  Files files;
  XtCompat compat;
  std::string reason;
};

void ExpectToRead(XtCompatReading (*read)(const KernelPaths&), const Row& row) {
  const TemporaryTree tree;
  for (const auto& [name, text] : row.files) tree.Write(name, text);
  const KernelPaths paths = {.proc = tree.Path(""),
                             .sys_module = tree.Path("sys"),
                             .module_directories = {tree.Path("host"), tree.Path("own")}};
  const XtCompatReading reading = read(paths);
  EXPECT_EQ(reading.compat, row.compat) << reading.reason;
  EXPECT_THAT(reading.reason, HasSubstr(row.reason));
}

XtCompatReading ReadXt(const KernelPaths& paths) { return ReadXtCompat(paths); }

constexpr char kLoaded[] =
    "nft_compat 20480 9 - Live 0x0\nxt_comment 16384 3 - Live 0x0\n"
    "xt_conntrack 16384 1 - Live 0x0\nxt_mark 16384 2 - Live 0x0\n";
constexpr char kNothingLoaded[] = "nf_tables 1 - Live 0x0\n";
constexpr char kOnDisk[] =
    "kernel/net/netfilter/nft_compat.ko.xz: kernel/net/netfilter/nf_tables.ko.xz\n"
    "kernel/net/netfilter/xt_comment.ko.xz: kernel/net/netfilter/x_tables.ko.xz\n"
    "kernel/net/netfilter/xt_conntrack.ko.xz: kernel/net/netfilter/x_tables.ko.xz\n"
    "kernel/net/netfilter/xt_mark.ko.xz: kernel/net/netfilter/x_tables.ko.xz\n";
constexpr char kOnDiskWithoutConntrack[] =
    "kernel/net/netfilter/nft_compat.ko:\nkernel/net/netfilter/xt_comment.ko:\n"
    "kernel/net/netfilter/xt_mark.ko: kernel/net/netfilter/xt_conntrack.ko\n";
constexpr char kSymbols[] =
    "ffffffff81f98590 t nft_match_select_ops\nffffffff81fa7310 t mark_mt\n"
    "ffffffff81faf4a0 t comment_mt\nffffffff81fb0330 t conntrack_mt_v3\n";
constexpr char kSymbolsOfModules[] =
    "ffffffff81f98590 t nft_match_select_ops\t[nft_compat]\nffffffff81fa7310 t mark_mt\t[xt_mark]\n"
    "ffffffff81faf4a0 t comment_mt\nffffffff81fb0330 t conntrack_mt_v3\n";

TEST(XtCompatTest, IsReadFromTheKernelsOwnLists) {
  const Row rows[] = {
      {"Loaded", Files{{"modules", kLoaded}}, XtCompat::kPresent, "loaded"},
      {"LoadedAndNothingElseToBeLoaded",
       Files{{"modules", kLoaded}, {"sys/kernel/modules_disabled", "1\n"}}, XtCompat::kPresent,
       "loaded"},
      {"BuiltInByTheList", Files{{"modules", kNothingLoaded}, {"own/modules.builtin", kOnDisk}},
       XtCompat::kPresent, "built in"},
      {"BuiltInByItsSymbols", Files{{"version", "L"}, {"kallsyms", kSymbols}}, XtCompat::kPresent,
       ""},
      {"BuiltInByACompilerThatRenames",
       Files{{"version", "L"},
             {"kallsyms",
              "ff t nft_match_select_ops.llvm.17\nff t mark_mt.llvm.4\nff t comment_mt.llvm.0\n"
              "ff t conntrack_mt_v3.llvm.1\n"}},
       XtCompat::kPresent, ""},
      {"SymbolsOfOtherNames",
       Files{
           {"version", "L"},
           {"kallsyms",
            "ff t nft_match_select_ops_x\nff t xmark_mt\nff t comment_mt\nff t conntrack_mt_v3\n"}},
       XtCompat::kAbsent, "nft_compat is not built in, and this kernel loads no modules"},
      {"Loadable",
       Files{
           {"modules", kNothingLoaded}, {"own/modules.builtin", ""}, {"own/modules.dep", kOnDisk}},
       XtCompat::kPresent, "loadable"},
      {"SomeLoadedSomeLoadable",
       Files{{"modules", "nft_compat 1 1 - Live\n"}, {"own/modules.dep", kOnDisk}},
       XtCompat::kPresent, "loadable"},
      {"OnDiskWhateverIsBuiltIn", Files{{"own/modules.dep", kOnDisk}}, XtCompat::kPresent,
       "loadable"},
      {"Missing",
       Files{{"modules", kNothingLoaded}, {"own/modules.builtin", ""}, {"own/modules.dep", ""}},
       XtCompat::kAbsent, "nft_compat is not loaded and not in "},
      {"MissingByTheKernelsSymbols",
       Files{{"modules", kNothingLoaded}, {"kallsyms", kSymbolsOfModules}, {"own/modules.dep", ""}},
       XtCompat::kAbsent, "/own/modules.dep"},
      {"OneMatchMissing",
       Files{{"modules", kNothingLoaded},
             {"own/modules.builtin", ""},
             {"own/modules.dep", kOnDiskWithoutConntrack}},
       XtCompat::kAbsent, "xt_conntrack is not loaded"},
      {"OneMatchMissingBehindOneThatNobodyKnows",
       Files{{"modules", kNothingLoaded},
             {"sys/kernel/modules_disabled", "1\n"},
             {"sys/nft_compat/refcnt", "1"},
             {"own/modules.builtin", "kernel/net/netfilter/xt_comment.ko\n"}},
       XtCompat::kAbsent, "xt_conntrack is not built in, and this kernel loads no modules"},
      {"TheFirstThatNobodyKnowsDecides",
       Files{{"modules", "xt_conntrack 16384 1 - Live 0x0\nxt_mark 16384 2 - Live 0x0\n"}},
       XtCompat::kUnknown, "nft_compat is not known to be loaded"},
      {"OnDiskWhereNothingIsLoadedAndNobodyKnowsWhatIsBuiltIn",
       Files{{"modules", kNothingLoaded},
             {"sys/kernel/modules_disabled", "1\n"},
             {"own/modules.dep", "kernel/net/netfilter/nft_compat.ko:\n"},
             {"kallsyms", kSymbols}},
       XtCompat::kUnknown, "whether nft_compat is built in cannot be read"},
      {"OneThatIsAbsentDecidesAfterOneThatNobodyKnows",
       Files{{"modules", kNothingLoaded},
             {"sys/kernel/modules_disabled", "1\n"},
             {"own/modules.dep", "kernel/net/netfilter/nft_compat.ko:\n"},
             {"kallsyms", "ff t comment_mt\nff t conntrack_mt_v3\n"}},
       XtCompat::kAbsent, "xt_mark is not built in, and this kernel loads no modules"},
      {"TheHostsListsCountBeforeOurOwn",
       Files{{"modules", kNothingLoaded},
             {"host/modules.builtin", ""},
             {"host/modules.dep", ""},
             {"own/modules.builtin", kOnDisk},
             {"own/modules.dep", kOnDisk}},
       XtCompat::kAbsent, "/host/modules.dep"},
      {"AContainerWithoutLists",
       Files{{"modules", kNothingLoaded}, {"kallsyms", kSymbolsOfModules}}, XtCompat::kUnknown,
       "no modules.dep"},
      {"NotOnDiskAndNobodyKnowsWhatIsBuiltIn",
       Files{{"modules", kNothingLoaded}, {"own/modules.dep", ""}}, XtCompat::kUnknown,
       "whether it is built in cannot be read"},
      {"NotOnDiskAndNobodyKnowsWhatIsLoaded",
       Files{{"own/modules.builtin", ""}, {"own/modules.dep", ""}}, XtCompat::kUnknown,
       "whether it is loaded cannot be read"},
      {"AKernelWithoutModulesWhoseSymbolsAreHidden", Files{{"version", "L"}}, XtCompat::kUnknown,
       "whether nft_compat is built in cannot be read"},
      {"AKernelWithoutModulesWhoseSymbolsAreAnEmptyFile", Files{{"version", "L"}, {"kallsyms", ""}},
       XtCompat::kUnknown, "whether nft_compat is built in cannot be read"},
      {"NotOnDiskAndSymbolsAreAnEmptyFile",
       Files{{"modules", kNothingLoaded}, {"kallsyms", ""}, {"own/modules.dep", ""}},
       XtCompat::kUnknown, "whether it is built in cannot be read"},
      {"NoProcAtAll", Files(), XtCompat::kUnknown, "no modules.dep"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    ExpectToRead(ReadXt, row);
  }
}

TEST(XtCompatMatchesTest, EachMatchIsNeeded) {
  const std::string modules[] = {"nft_compat", "xt_comment", "xt_conntrack", "xt_mark"};
  for (const std::string& missing : modules) {
    SCOPED_TRACE(missing);
    std::string on_disk;
    for (const std::string& module : modules) {
      if (module != missing) on_disk += "kernel/net/netfilter/" + module + ".ko:\n";
    }
    ExpectToRead(ReadXt, {.name = missing,
                          .files = {{"modules", kNothingLoaded},
                                    {"own/modules.builtin", ""},
                                    {"own/modules.dep", on_disk}},
                          .compat = XtCompat::kAbsent,
                          .reason = missing + " is not loaded and not in "});
  }
}

TEST(KernelSymbolsTest, AreReadOnlyWhereNothingElseDecides) {
  struct SymbolsRow {
    std::string name;
    std::map<std::string, std::string> files;
    int reads = 0;
  };
  const std::string label = "kernel/net/netfilter/xt_connlabel.ko:\n";
  const SymbolsRow rows[] = {
      {"loaded", {{"modules", "xt_connlabel 16384 8 - Live 0x0\n"}}},
      {"built in", {{"modules", ""}, {"own/modules.builtin", label}}},
      {"on disk", {{"modules", ""}, {"own/modules.dep", label}}},
      {"known to be missing",
       {{"modules", ""}, {"own/modules.builtin", ""}, {"own/modules.dep", ""}}},
      {"not on disk, and perhaps built in", {{"modules", ""}, {"own/modules.dep", ""}}, 1},
      {"no lists", {{"modules", ""}}, 1},
  };
  for (const SymbolsRow& row : rows) {
    SCOPED_TRACE(row.name);
    const TemporaryTree tree;
    for (const auto& [name, text] : row.files) tree.Write(name, text);
    tree.Write("kallsyms", kSymbols);
    const KernelPaths paths = {.proc = tree.Path(""),
                               .sys_module = tree.Path("sys"),
                               .module_directories = {tree.Path("own")}};
    absl::StatusOr<Inotify> inotify = Inotify::Create();
    ASSERT_TRUE(inotify.ok());
    ASSERT_TRUE(inotify->Watch(tree.Path("kallsyms"), IN_OPEN).ok());
    ReadConnLabelMatch(paths, "/none");
    int reads = 0;
    EXPECT_TRUE(inotify->Take([&](const inotify_event& /*event*/) { ++reads; }).ok());
    EXPECT_EQ(reads, row.reads);
  }
}

TEST(XtCompatOfWhoTriesTest, DoesNotReadTheKernelsSymbolsForWhoTries) {
  const TemporaryTree tree;
  tree.Write("version", "L");
  tree.Write("kallsyms", "ff t something_else\n");
  const KernelPaths paths = {
      .proc = tree.Path(""), .sys_module = tree.Path("sys"), .module_directories = {}};
  EXPECT_EQ(ReadXtCompat(paths).compat, XtCompat::kAbsent);
  EXPECT_EQ(ReadXtCompat(paths, KernelSymbols::kSkip).compat, XtCompat::kUnknown);
  EXPECT_EQ(ReadConnLabelMatch(paths, "/none").compat, XtCompat::kAbsent);
  EXPECT_EQ(ReadConnLabelMatch(paths, "/none", KernelSymbols::kSkip).compat, XtCompat::kUnknown);
}

// All that iptables-nft needs is there; connlabel is looked for by itself.
TEST(ConnLabelMatchTest, IsReadFromTheKernelsOwnLists) {
  const Row rows[] = {
      {"Loaded", Files{{"modules", "xt_connlabel 16384 8 - Live 0x0\n"}}, XtCompat::kPresent,
       "xt_connlabel is loaded"},
      {"LoadedByItsDirectory",
       Files{{"sys/xt_connlabel/refcnt", "1"}, {"own/modules.dep", kOnDisk}}, XtCompat::kPresent,
       "xt_connlabel is loaded"},
      {"BuiltInByTheList",
       Files{{"modules", kLoaded},
             {"own/modules.builtin", "kernel/net/netfilter/xt_connlabel.ko\n"}},
       XtCompat::kPresent, "xt_connlabel is built in"},
      {"BuiltInByItsSymbol",
       Files{{"version", "L"}, {"kallsyms", "ffffffff81faf840 t connlabel_mt\n"}},
       XtCompat::kPresent, "xt_connlabel is built in"},
      {"Loadable",
       Files{{"modules", kLoaded},
             {"own/modules.builtin", ""},
             {"own/modules.dep", "kernel/net/netfilter/xt_connlabel.ko.xz: a.ko.xz\n"}},
       XtCompat::kPresent, "/own/modules.dep"},
      {"MissingBesideAllTheOthers",
       Files{{"modules", kLoaded}, {"own/modules.builtin", ""}, {"own/modules.dep", kOnDisk}},
       XtCompat::kAbsent, "xt_connlabel is not loaded and not in "},
      {"NotBuiltInWhereNothingIsLoaded", Files{{"version", "L"}, {"kallsyms", kSymbols}},
       XtCompat::kAbsent, "xt_connlabel is not built in, and this kernel loads no modules"},
      {"AModuleThatIsNamedAlike",
       Files{{"modules", "xt_connlabels 1 0 - Live 0x0\n"},
             {"kallsyms", "ff t connlabel_mt_check\n"},
             {"own/modules.dep", "kernel/net/xt_connlabel2.ko: kernel/net/xt_connlabel.ko\n"}},
       XtCompat::kAbsent, "xt_connlabel is not loaded and not in "},
      {"AContainerWithoutLists", Files{{"modules", kLoaded}}, XtCompat::kUnknown, "no modules.dep"},
      {"NoProcAtAll", Files(), XtCompat::kUnknown, "no modules.dep"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);

    ExpectToRead([](const KernelPaths& paths) { return ReadConnLabelMatch(paths, "/none"); }, row);
  }
}

TEST(XtCompatOfThisMachineTest, IsPresent) {
  const XtCompatReading reading = ReadXtCompat(SystemKernelPaths(""));
  EXPECT_EQ(reading.compat, XtCompat::kPresent) << reading.reason;
}

}  // namespace
}  // namespace kipt::agent::xt_compat_test
