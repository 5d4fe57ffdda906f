// SPDX-License-Identifier: Apache-2.0
//
// What an audit is given, gathered from backends that answer what the test says: which of them are
// asked, and that one that fails keeps none of the others from being read.
// tests/kernel/node_view_test.cc has the real ones.
#include "agent/audit/node_view.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/audit/audit.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing::node_view_test {
namespace {

using agent::BackendOrError;
using agent::GatherNodeView;
using agent::ModeSources;
using agent::NodeView;
using netlink::Survey;

// Answers surveys, one after another, the last one again and again.
class SurveyedBackend : public netlink::Backend {
 public:
  SurveyedBackend(std::vector<absl::StatusOr<Survey>> answers, int& taken)
      : answers_(std::move(answers)), taken_(taken) {}

  netlink::BackendKind kind() const override { return netlink::BackendKind::kNft; }
  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery>,
                                         const netlink::NativeTable*) override {
    return Refused();
  }
  absl::StatusOr<Survey> TakeSurvey(const netlink::SurveyFilter& keep) override {
    EXPECT_FALSE(keep) << "an audit wants every rule";
    const size_t at = static_cast<size_t>(taken_++);
    return at < answers_.size() ? answers_[at] : answers_.back();
  }
  absl::Status Apply(const netlink::Transaction&) override { return Refused(); }
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode) override {
    return Refused();
  }

 private:
  static absl::Status Refused() {
    ADD_FAILURE() << "only surveys are taken";
    return absl::InternalError("only surveys are taken");
  }

  std::vector<absl::StatusOr<Survey>> answers_;
  int& taken_;
};

Survey SurveyOf(const std::string& mode) {
  return {.mode = mode, .generation = 7, .tables = {{{"ip", "filter"}, {{"INPUT", {}}}}}};
}

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
    sources_.open_nft = [this] { return Open(nft_, nft_taken_); };
    sources_.open_legacy = [this] { return Open(legacy_, legacy_taken_); };
  }

  static BackendOrError Open(const std::vector<absl::StatusOr<Survey>>& answers, int& taken) {
    return std::make_unique<SurveyedBackend>(answers, taken);
  }

  TemporaryTree tree_;
  ModeSources sources_;
  std::vector<absl::StatusOr<Survey>> nft_ = {SurveyOf("nft")};
  std::vector<absl::StatusOr<Survey>> legacy_ = {SurveyOf("legacy")};
  int nft_taken_ = 0;
  int legacy_taken_ = 0;
};

TEST_F(NodeViewTest, LeavesOutAModeThatHoldsNothing) {
  nft_ = {Survey{.mode = "nft", .generation = 1, .tables = {}}};
  EXPECT_THAT(GatherNodeView(sources_, {}).surveys, ElementsAre(SurveyOf("legacy")));
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
  const NodeView view = GatherNodeView(sources_, {});
  EXPECT_THAT(view.surveys, IsEmpty());
  EXPECT_THAT(view.problems, IsEmpty());
}

TEST_F(NodeViewTest, LooksAgainWhileOthersChangeTheRules) {
  nft_ = {absl::AbortedError("moved"), absl::AbortedError("moved"), SurveyOf("nft")};
  EXPECT_THAT(GatherNodeView(sources_, {}).surveys, Contains(SurveyOf("nft")));
  nft_ = {absl::AbortedError("moved")};
  nft_taken_ = 0;
  const NodeView view = GatherNodeView(sources_, {});
  EXPECT_THAT(view.surveys, ElementsAre(SurveyOf("legacy")));
  EXPECT_THAT(view.problems, ElementsAre("nft tables: moved"));
  EXPECT_EQ(nft_taken_, 5);
}

TEST_F(NodeViewTest, ReadsTheOthersWhereOneFails) {
  legacy_ = {absl::DeadlineExceededError("it hangs")};
  NodeView view = GatherNodeView(sources_, {});
  EXPECT_THAT(view.surveys, ElementsAre(SurveyOf("nft")));
  EXPECT_THAT(view.problems, ElementsAre("iptables-legacy tables: it hangs"));
  sources_.open_nft = []() -> BackendOrError { return absl::PermissionDeniedError("root only"); };
  legacy_ = {SurveyOf("legacy")};
  view = GatherNodeView(sources_, {});
  EXPECT_THAT(view.surveys, ElementsAre(SurveyOf("legacy")));
  EXPECT_THAT(view.problems, ElementsAre("nft tables: root only"));
}

TEST_F(NodeViewTest, ReadsOneFamilyWhereTheOthersTablesCannotBeListed) {
  tree_.Remove("ip6_tables_names");
  tree_.Write("modules", "ip6_tables 1 - Live 0x0\nnf_tables 1 - Live 0x0\n");
  const NodeView view = GatherNodeView(sources_, {});
  EXPECT_THAT(view.surveys, ElementsAre(SurveyOf("nft"), SurveyOf("legacy")));
  EXPECT_THAT(view.problems, ElementsAre(StartsWith("iptables-legacy tables: ip6: ")));
}

TEST_F(NodeViewTest, TakesAKernelWithoutNfTablesForOneThatHoldsNothing) {
  sources_.open_nft = []() -> BackendOrError { return absl::UnavailableError("no nf_tables"); };
  const NodeView view = GatherNodeView(sources_, {});
  EXPECT_THAT(view.surveys, ElementsAre(SurveyOf("legacy")));
  EXPECT_THAT(view.problems, IsEmpty());
}

TEST_F(NodeViewTest, SaysWhereNobodyKnowsWhetherNfTablesIsThere) {
  tree_.Write("modules", "ip_tables 1 - Live 0x0\n");
  const NodeView view = GatherNodeView(sources_, {});
  EXPECT_THAT(view.surveys, ElementsAre(SurveyOf("legacy")));
  EXPECT_THAT(
      view.problems,
      ElementsAre(HasSubstr("nft tables: it is not known whether this kernel has nf_tables")));
}

}  // namespace
}  // namespace kipt::testing::node_view_test
