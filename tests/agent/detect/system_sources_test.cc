// SPDX-License-Identifier: Apache-2.0
//
// Where this machine's evidence is found, with programs that are never run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/detect/mode_evidence.h"
#include "tests/agent/xtables/iptables_legacy_fixture.h"
#include "tests/fuzz/scripted_kernel.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using agent::KernelSymbols;
using agent::ModeSources;
using agent::SystemModeSources;
using netlink::BackendKind;
using netlink::Family;
using netlink::ListedChain;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SystemModeSourcesTest : public LegacyFixture {
 protected:
  ModeSources Sources() { return SystemModeSources(tree_.Path("host"), &runner_, Options()); }
};

TEST_F(SystemModeSourcesTest, ReadTheHostsListsOfModules) {
  EXPECT_EQ(Sources().kernel.module_directories,
            agent::SystemKernelPaths(tree_.Path("host")).module_directories);
  EXPECT_EQ(Sources().host_root.directory, tree_.Path("host"));
}

TEST_F(SystemModeSourcesTest, ReadTheMatchesOfTheKernel) {
  const ModeSources sources = Sources();
  EXPECT_EQ(sources.xt_compat(KernelSymbols::kSkip),
            agent::ReadXtCompat(sources.kernel, KernelSymbols::kSkip));
}

TEST_F(SystemModeSourcesTest, AskTheKernelForNft) {
  const ScriptedKernel silent({});
  const auto backend = Sources().open_nft();
  ASSERT_THAT(backend, IsOk());
  EXPECT_EQ((*backend)->kind(), BackendKind::kNft);
  EXPECT_THAT(Sources().list_nft(Family::kIPv4), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(SystemModeSourcesTest, RunTheProgramsOfIptablesLegacy) {
  Open("1.8.9");
  const auto backend = Sources().open_legacy();
  ASSERT_THAT(backend, IsOk());
  EXPECT_EQ((*backend)->kind(), BackendKind::kIptablesLegacy);
}

TEST_F(SystemModeSourcesTest, ReadTheNamesOfLabelsWhereTheProgramsReadThem) {
  tree_.Write("connlabel.conf", "# nothing\n");
  const ModeSources sources = Sources();
  EXPECT_EQ(sources.conn_label_match(KernelSymbols::kRead),
            agent::ReadConnLabelMatch(sources.kernel, tree_.Path("connlabel.conf"),
                                      KernelSymbols::kRead));
}

TEST_F(SystemModeSourcesTest, ListTheChainsOfIptablesLegacy) {
  Open("1.8.9");
  Saves("iptables", "*filter\n:INPUT DROP [7:420]\n:USER - [0:0]\n-A INPUT -j USER\nCOMMIT\n");
  const auto chains = Sources().list_legacy(Family::kIPv4);
  EXPECT_THAT(chains, IsOkAndHolds(ElementsAre(ListedChain{Filter("INPUT"), true, 1},
                                               ListedChain{Filter("USER"), false, 0})));
}

TEST_F(SystemModeSourcesTest, ReportAProgramThatFails) {
  Open("1.8.9");
  Saves("iptables", "");
  runner_.On(Program("iptables", "save"), Fails(absl::DeadlineExceededError("it hangs")));
  EXPECT_THAT(Sources().list_legacy(Family::kIPv4),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("it hangs")));
}

}  // namespace
}  // namespace kipt::testing
