// SPDX-License-Identifier: Apache-2.0
//
// The input of an audit, gathered from scripted backends: which of them are read, and that one that
// fails does not keep the others from being read.
// BeforeChangeTest and EveryCommandTest have the real ones.
#include "agent/audit/node_view.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing::node_view_test {
namespace {

using namespace ::kipt::agent;  // NOLINT(google-build-using-namespace): its vocabulary

// A machine with nf_tables and ip_tables loaded.
class NodeViewTest : public ::testing::Test {
 protected:
  NodeViewTest() {
    tree_.Write("modules", "ip_tables 1 - Live 0x0\nnf_tables 1 - Live 0x0\n");
    tree_.Write("version", "Linux");
    tree_.Write("ip_tables_names", "raw\n");
    tree_.Write("ip6_tables_names", "");
    sources_.kernel.proc = tree_.Path("");
    sources_.kernel.sys_module = tree_.Path("sys");
    sources_.kernel.module_directories = {tree_.Path("lib")};
    sources_.table_names_path = tree_.Path("%s_tables_names");
    tree_.Write("dev", "");
    for (FakeBackend* backend : {&nft_, &legacy_}) {
      backend->AppendRule(Filter("INPUT"), ForeignAccept());
    }
    sources_.open_nft = [this] { return std::make_unique<BorrowedBackend>(&nft_); };
    sources_.open_legacy = [this] { return std::make_unique<BorrowedBackend>(&legacy_); };
  }

  // The modes in which the rule was seen.
  std::vector<std::string> Seen() {
    view_ = GatherNodeView(sources_, {});
    std::vector<std::string> modes;
    for (const netlink::Survey& survey : view_.surveys) {
      EXPECT_THAT(survey.tables.at({"ip", "filter"}).at("INPUT").rules, SizeIs(1));
      modes.push_back(survey.mode);
    }
    return modes;
  }

  TemporaryTree tree_;
  ModeSources sources_;
  FakeBackend nft_;
  FakeBackend legacy_{netlink::BackendKind::kIptablesLegacy};
  NodeView view_;
};

TEST_F(NodeViewTest, LeavesOutAModeThatHoldsNothing) {
  nft_.Clear();
  EXPECT_THAT(Seen(), ElementsAre("legacy"));
}

TEST_F(NodeViewTest, AsksNothingThatIsNotThere) {
  tree_.Write("modules", "");
  tree_.Write("lib/modules.dep", "kernel/net/netfilter/nf_tables.ko:\n");
  tree_.Write("lib/modules.builtin", "");
  tree_.Write("ip_tables_names", "");
  sources_.open_nft = []() -> BackendOrError {
    ADD_FAILURE() << "that loads nf_tables";
    return absl::InternalError("opened");
  };
  sources_.open_legacy = []() -> BackendOrError {
    ADD_FAILURE() << "that runs a program";
    return absl::InternalError("opened");
  };
  EXPECT_THAT(Seen(), IsEmpty());
  EXPECT_THAT(view_.problems, IsEmpty());
}

TEST_F(NodeViewTest, ReadsFiveTimesWhileOthersChangeTheRules) {
  for (int i = 0; i < 4; ++i) nft_.FailNextSurvey(absl::AbortedError("moved"));
  EXPECT_THAT(Seen(), ElementsAre("nft", "legacy"));
  for (int i = 0; i < 5; ++i) nft_.FailNextSurvey(absl::AbortedError("moved"));
  EXPECT_THAT(Seen(), ElementsAre("legacy"));
  EXPECT_THAT(view_.problems, ElementsAre("nft tables: moved"));
}

TEST_F(NodeViewTest, ReadsTheOthersWhereOneFails) {
  legacy_.FailNextSurvey(absl::DeadlineExceededError("it hangs"));
  EXPECT_THAT(Seen(), ElementsAre("nft"));
  EXPECT_THAT(view_.problems, ElementsAre("iptables-legacy tables: it hangs"));
  sources_.open_nft = []() -> BackendOrError { return absl::PermissionDeniedError("root only"); };
  EXPECT_THAT(Seen(), ElementsAre("legacy"));
  EXPECT_THAT(view_.problems, ElementsAre("nft tables: root only"));
  // A kernel without nf_tables holds nothing there.
  sources_.open_nft = []() -> BackendOrError { return absl::UnavailableError("no nf_tables"); };
  EXPECT_THAT(Seen(), ElementsAre("legacy"));
  EXPECT_THAT(view_.problems, IsEmpty());
}

TEST_F(NodeViewTest, ReadsOneFamilyWhereTheOthersTablesCannotBeListed) {
  tree_.Remove("ip6_tables_names");
  tree_.Write("modules", "ip6_tables 1 - Live 0x0\nnf_tables 1 - Live 0x0\n");
  EXPECT_THAT(Seen(), ElementsAre("nft", "legacy"));
  EXPECT_THAT(view_.problems, ElementsAre(StartsWith("iptables-legacy tables: ip6: ")));
}

TEST_F(NodeViewTest, ReportsThatNfTablesMightBeMissing) {
  tree_.Write("modules", "ip_tables 1 - Live 0x0\n");
  EXPECT_THAT(Seen(), ElementsAre("legacy"));
  EXPECT_THAT(
      view_.problems,
      ElementsAre(HasSubstr("nft tables: it is not known whether this kernel has nf_tables")));
}

}  // namespace
}  // namespace kipt::testing::node_view_test
