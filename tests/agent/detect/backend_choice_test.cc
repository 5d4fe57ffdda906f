// SPDX-License-Identifier: Apache-2.0
//
// What --iptables-mode=auto chooses, and the check of the other mode.
#include <string>
#include <vector>

#include "agent/commands.h"
#include "agent/detect/mode_evidence.h"
#include "agent/node/node.h"
#include "tests/agent/detect/mode_sources_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

using netlink::BackendKind;

constexpr auto kNft = IptablesMode::kNft;
constexpr auto kLegacy = IptablesMode::kLegacy;
constexpr auto kNone = IptablesMode::kNone;

std::vector<FamilyMode> Modes(IptablesMode ipv4, IptablesMode ipv6) {
  return {{.family = Family::kIPv4, .mode = ipv4}, {.family = Family::kIPv6, .mode = ipv6}};
}

TEST(ChooseModeTest, FamiliesThatAgreeShareOneAndAFamilyWithoutEvidenceFollowsTheOther) {
  EXPECT_THAT(ChooseMode(Modes(kNft, kNft)), IsOkAndHolds(kNft));
  EXPECT_THAT(ChooseMode(Modes(kLegacy, kLegacy)), IsOkAndHolds(kLegacy));
  EXPECT_THAT(ChooseMode(Modes(kNone, kLegacy)), IsOkAndHolds(kLegacy));
  EXPECT_THAT(ChooseMode(Modes(kLegacy, kNone)), IsOkAndHolds(kLegacy));
  EXPECT_THAT(ChooseMode(Modes(kNone, kNone)), IsOkAndHolds(kNft)) << "a fresh node";
}

TEST(ChooseModeTest, FamiliesThatDifferAreRefusedWithTheWayOut) {
  EXPECT_THAT(ChooseMode(Modes(kNft, kLegacy)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("ip uses iptables nft and ip6 uses legacy"),
                             HasSubstr("--ip-families"), HasSubstr("--iptables-mode"))));
}

TEST(ChooseModeTest, AnUnknownFamilyIsRefusedWithItsFindings) {
  std::vector<FamilyMode> modes = Modes(kNft, IptablesMode::kUnknown);
  modes[1].findings = {"two hints", "and more"};
  EXPECT_THAT(
      ChooseMode(modes),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("cannot tell which iptables this node uses for ip6: two hints; and "
                               "more"),
                     HasSubstr("--iptables-mode=nft or --iptables-mode=legacy"))));
  modes[1].findings = {"nft cannot be read: needs CAP_NET_ADMIN"};
  EXPECT_THAT(WhyUnknown(modes[1]), EndsWith("; run this as root, or with that capability"));
}

class BackendChoiceTest : public ModeSourcesTest {
 protected:
  void UnloadNft() {
    tree_.Write("modules", "");
    tree_.Write("lib/modules.builtin", "");
  }

  // The mode of the backend that was chosen.
  absl::StatusOr<std::string> Choose(BackendRequest request = {}) {
    if (request.families.empty()) request.families = {Family::kIPv4, Family::kIPv6};
    const BackendOrError backend = ChooseBackend(request, sources_);
    if (!backend.ok()) return backend.status();
    return std::string(netlink::BackendKindName((*backend)->kind()));
  }
  OtherMode Other(BackendKind managed) {
    return ReadOtherMode(managed, netlink::kFamilies, sources_);
  }
};

TEST_F(BackendChoiceTest, AutoFollowsTheHint) {
  EXPECT_THAT(Choose(), IsOkAndHolds("nft"));
  SetLegacyTables("mangle\n");
  for (const Family family : netlink::kFamilies) {
    legacy_.AddChain(Mangle("KUBE-IPTABLES-HINT", family));
  }
  nft_listed_ = legacy_listed_ = 0;
  EXPECT_THAT(Choose(), IsOkAndHolds("legacy"));
  EXPECT_EQ(nft_listed_ + legacy_listed_, 0) << "rules may be tens of thousands";
  nft_.AddChain(Mangle("KUBE-IPTABLES-HINT"));
  EXPECT_THAT(Choose(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("both")));
  EXPECT_THAT(Choose({.off = true}), IsOkAndHolds("nft")) << "nothing is desired";
  nft_status_ = absl::PermissionDeniedError("needs CAP_NET_ADMIN");
  EXPECT_THAT(Choose(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("CAP_NET_ADMIN")));
}

TEST_F(BackendChoiceTest, TheFlagIsTakenWithoutACheck) {
  nft_.AddChain(Mangle("KUBE-IPTABLES-HINT"));
  EXPECT_THAT(Choose({.flag = kLegacy}), IsOkAndHolds("legacy"));
  EXPECT_EQ(opened(), 1);
  legacy_status_ = absl::NotFoundError("not installed");
  EXPECT_THAT(Choose({.flag = kLegacy}), StatusIs(absl::StatusCode::kNotFound, "not installed"));
}

TEST_F(BackendChoiceTest, ReadingNftThatIsNotLoadedShowsNothingAndLoadsNothing) {
  UnloadNft();
  nft_.AddChain(Mangle("KUBE-IPTABLES-HINT"));
  const BackendOrError backend =
      ChooseBackend({.families = {Family::kIPv4}, .read_only = true}, sources_);
  ASSERT_THAT(backend, IsOk());
  EXPECT_EQ(opened(), 0);
  EXPECT_EQ((*backend)->kind(), BackendKind::kNft);
  EXPECT_THAT((*backend)->TakeSurvey({}),
              IsOkAndHolds(netlink::Survey{.mode = "nft", .tables = {}}));
  const std::vector<netlink::ChainQuery> queries = {{.chain = Mangle("KUBE-IPTABLES-HINT")}};
  EXPECT_THAT((*backend)->Read(queries), IsOkAndHolds(netlink::Snapshot()));
  EXPECT_THAT((*backend)->Apply({}), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT((*backend)->Watch(netlink::WatchMode::kEvents),
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(Choose(), IsOkAndHolds("nft"));
  EXPECT_EQ(opened(), 1) << "sync may load it";
}

TEST_F(BackendChoiceTest, TheOtherModeIsListedByKubeletsChains) {
  SetLegacyTables("mangle\nnat\n");
  legacy_.AddChain(Nat("KUBE-MARK-DROP"));
  legacy_.AddChain(Nat("DOCKER"));
  legacy_.AddChain(Mangle("KUBE-KUBELET-CANARY"));
  legacy_.AddChain(Mangle("KUBE-KUBELET-CANARY", Family::kIPv6));
  const OtherMode other = Other(BackendKind::kNft);
  EXPECT_EQ(other.iptables_mode, "legacy");
  EXPECT_EQ(other.problem, "");
  EXPECT_THAT(other.chains, ElementsAre(Mangle("KUBE-KUBELET-CANARY"), Nat("KUBE-MARK-DROP"),
                                        Mangle("KUBE-KUBELET-CANARY", Family::kIPv6)));
  EXPECT_THAT(asked_, Not(IsEmpty()));
  for (const netlink::ChainQuery& query : asked_) EXPECT_FALSE(query.with_rules);
}

TEST_F(BackendChoiceTest, AModeThatMayBeThereIsNotOpened) {
  const auto visit = [this](BackendKind kind) {
    return VisitMode(kind, netlink::kFamilies, sources_,
                     [](netlink::Backend&) { return absl::OkStatus(); });
  };
  tree_.Remove("ip_tables_names");
  tree_.Write("modules", "ip_tables 1 - Live 0x0\n");
  EXPECT_THAT(visit(BackendKind::kNft),
              StatusIs(absl::StatusCode::kUnknown, HasSubstr("give --iptables-mode")));
  EXPECT_THAT(visit(BackendKind::kIptablesLegacy),
              StatusIs(absl::StatusCode::kUnknown, HasSubstr("is /proc mounted?")));
  EXPECT_EQ(opened(), 0);
}

TEST_F(BackendChoiceTest, TheOtherModeIsNotOpenedWhereNothingCanBeInIt) {
  EXPECT_EQ(Other(BackendKind::kNft), (OtherMode{.iptables_mode = "legacy"}));
  UnloadNft();
  EXPECT_EQ(Other(BackendKind::kIptablesLegacy), (OtherMode{.iptables_mode = "nft"}));
  EXPECT_EQ(opened(), 0);
}

TEST_F(BackendChoiceTest, TheOtherModesProblemIsReported) {
  SetLegacyTables("filter\n");
  legacy_status_ = absl::NotFoundError("iptables-legacy is not installed");
  EXPECT_EQ(Other(BackendKind::kNft).problem, "iptables-legacy is not installed");
  nft_status_ = absl::PermissionDeniedError("needs CAP_NET_ADMIN");
  EXPECT_EQ(Other(BackendKind::kIptablesLegacy).problem, "needs CAP_NET_ADMIN");
  nft_status_ = absl::UnavailableError("this kernel has no nf_tables");
  EXPECT_EQ(Other(BackendKind::kIptablesLegacy).problem, "");
  legacy_status_ = absl::UnavailableError("a signal ended iptables-legacy-save");
  EXPECT_EQ(Other(BackendKind::kNft).problem, "a signal ended iptables-legacy-save");
  legacy_status_ = absl::OkStatus();
  legacy_.FailNextRead(absl::PermissionDeniedError("needs CAP_NET_ADMIN"));
  EXPECT_EQ(Other(BackendKind::kNft).problem, "needs CAP_NET_ADMIN");
}

// A program that is killed (out of memory) does not show that no rule exists that sets marks.
TEST_F(BackendChoiceTest, WhoUsesTheChainsFromTheOtherModeIsUnknownWhereItCannotBeRead) {
  SetLegacyTables("filter\n");
  const auto mark_setters = [this](BackendKind managed) {
    DependentsCollector collector;
    Config config = {.emulated_version = {1, 27},
                     .gates = ResolveFeatureGates({1, 27}, {}).value()};
    config.iptables_mode =
        managed == BackendKind::kNft ? IptablesMode::kNft : IptablesMode::kLegacy;
    Node node(config, sources_);
    node.Dependents(OtherThan(managed)).other_mode(collector);
    return collector.Finish({}, {}).mark_setters.size();
  };
  EXPECT_EQ(mark_setters(BackendKind::kNft), 0U);
  EXPECT_EQ(mark_setters(BackendKind::kIptablesLegacy), 0U);
  legacy_.FailNextSurvey(absl::UnavailableError("a signal ended iptables-legacy-save"));
  EXPECT_EQ(mark_setters(BackendKind::kNft), 1U);
  nft_.FailNextSurvey(absl::UnavailableError("this kernel has no nf_tables"));
  EXPECT_EQ(mark_setters(BackendKind::kIptablesLegacy), 0U);
}

// NodeAgentOptions::longest_retry is of more than rounds.
TEST_F(BackendChoiceTest, TheNodesPatienceWithOthersThatWriteCountsForAllThatIsRead) {
  SetLegacyTables("filter\n");
  Config config = {.emulated_version = {1, 27}, .gates = ResolveFeatureGates({1, 27}, {}).value()};
  config.families = {Family::kIPv4};
  config.mode = Mode::kCleanup;
  config.iptables_mode = kNft;
  config.stale_chains = StaleChains::kRetire;
  sources_.xt_compat = sources_.conn_label_match = [](KernelSymbols) { return XtCompatReading(); };
  Node node(config, sources_, /*patience=*/absl::ZeroDuration());
  const absl::Status aborted = absl::AbortedError("written to");
  const auto gave_up = StatusIs(absl::StatusCode::kDeadlineExceeded);
  nft_.FailNextRead(aborted);
  EXPECT_THAT(PlanReport(node), gave_up);
  nft_.FailNextRead(aborted);
  EXPECT_THAT(node.RetireOtherFirst(nft_), gave_up);
  legacy_.FailNextRead(aborted);
  EXPECT_THAT(node.RetireOtherFirst(nft_)->value().status, gave_up);
  legacy_.FailNextSurvey(aborted);
  DependentsCollector collector;
  node.Dependents(BackendKind::kIptablesLegacy).other_mode(collector);
  EXPECT_THAT(collector.Finish({}, {}).mark_setters, SizeIs(1));
  EXPECT_EQ(node.MakeLoopOptions().patience, absl::ZeroDuration());
}

TEST_F(BackendChoiceTest, TheOtherModeIsAskedForTheFamiliesAskedFor) {
  SetLegacyTables("filter\n");
  for (const Family family : netlink::kFamilies) legacy_.AddChain(Filter("KUBE-FIREWALL", family));
  legacy_.AddChain(Filter("KUBE-SERVICES"));
  legacy_.AddChain(Filter("INPUT"));
  EXPECT_EQ(ReadOtherMode(BackendKind::kNft, {Family::kIPv4}, sources_),
            (OtherMode{.iptables_mode = "legacy", .chains = {Filter("KUBE-FIREWALL")}}));
}

}  // namespace
}  // namespace kipt::agent
