// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/utsname.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "agent/detect/rule_support.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent::kernel_modules_test {
namespace {

using ::kipt::testing::TemporaryTree;

struct Row {
  std::string name;
  std::map<std::string, std::string> files;
  ModuleState state;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class FindModuleTest : public ::testing::TestWithParam<Row> {};

TEST_P(FindModuleTest, ReadsTheKernelsOwnLists) {
  const TemporaryTree tree;
  for (const auto& [name, text] : GetParam().files) tree.Write(name, text);
  const KernelPaths paths = {.proc = tree.Path(""),
                             .sys_module = tree.Path("sys"),
                             .module_directories = {tree.Path("host"), tree.Path("own")}};
  EXPECT_EQ(FindModule(paths, "nf_tables", "nft_do_chain"), GetParam().state);
}

constexpr char kOther[] = "nf_tables_set 1 - Live 0x0\nx nf_tables 0\n";
constexpr char kLine[] = "kernel/net/netfilter/nf_tables.ko";

INSTANTIATE_TEST_SUITE_P(
    Kernels, FindModuleTest,
    ::testing::Values(
        Row{"Loaded",
            {{"modules", "x 1 - Live 0x0\nnf_tables 2 - Live 0x0\n"}},
            ModuleState::kPresent},
        Row{"LoadedAndNothingElseToBeLoaded",
            {{"modules", "nf_tables 2 - Live 0x0\n"}, {"sys/kernel/modules_disabled", "1\n"}},
            ModuleState::kPresent},
        Row{"InSysModule",
            {{"modules", kOther}, {"sys/nf_tables/version", ""}},
            ModuleState::kPresent},
        Row{"BuiltIn",
            {{"modules", kOther}, {"own/modules.builtin", std::string(kLine) + "\n"}},
            ModuleState::kPresent},
        Row{"BuiltInBehindAnEmptyLine",
            {{"modules", kOther}, {"own/modules.builtin", "\n" + std::string(kLine) + "\n"}},
            ModuleState::kPresent},
        Row{"TheListOfBuiltInModulesCountsBeforeTheSymbols",
            {{"modules", kOther},
             {"own/modules.builtin", ""},
             {"kallsyms", "0000000000000000 T nft_do_chain\n"}},
            ModuleState::kLoadable},
        Row{"BuiltInByItsSymbol",
            {{"modules", kOther}, {"kallsyms", "0000000000000000 T nft_do_chain\n"}},
            ModuleState::kPresent},
        Row{"TheSymbolOfAModuleThatWasUnloadedMeanwhile",
            {{"modules", kOther}, {"kallsyms", "0000000000000000 t nft_do_chain\t[nf_tables]\n"}},
            ModuleState::kLoadable},
        Row{"OnDisk",
            {{"modules", kOther},
             {"own/modules.builtin", "kernel/net/netfilter/nf_tables_set.ko\n"},
             {"own/modules.dep", std::string(kLine) + ".zst: kernel/lib/libcrc32c.ko.zst\n"}},
            ModuleState::kLoadable},
        Row{"NotOnDisk",
            {{"modules", kOther},
             {"own/modules.builtin", ""},
             {"own/modules.dep", "kernel/net/netfilter/nft_compat.ko: " + std::string(kLine)}},
            ModuleState::kMissing},
        Row{"BuiltInIsKnownButWhatIsOnDiskIsNot",
            {{"modules", kOther}, {"own/modules.builtin", ""}},
            ModuleState::kLoadable},
        Row{"TheHostsListsCountBeforeOurOwn",
            {{"modules", kOther},
             {"host/modules.builtin", ""},
             {"host/modules.dep", std::string(kLine) + ":\n"},
             {"own/modules.builtin", std::string(kLine) + "\n"},
             {"own/modules.dep", ""}},
            ModuleState::kLoadable},
        Row{"AContainerWithoutListsAndSymbols", {{"modules", kOther}}, ModuleState::kUnknown},
        Row{"AKernelWithoutModules", {{"version", "Linux"}}, ModuleState::kNothingToLoad},
        Row{"AKernelThatLoadsNoMore",
            {{"modules", kOther}, {"sys/kernel/modules_disabled", "1\n"}},
            ModuleState::kNothingToLoad},
        Row{"AKernelThatStillLoads",
            {{"modules", kOther}, {"sys/kernel/modules_disabled", "0\n"}},
            ModuleState::kUnknown},
        Row{"NoProcAtAll", {}, ModuleState::kUnknown}),
    [](const auto& row) { return row.param.name; });

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
}  // namespace kipt::agent::kernel_modules_test
