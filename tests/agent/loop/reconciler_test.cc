// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/reconciler.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "netlink/kernel_error.h"
#include "tests/agent/loop/reconciler_fixture.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent::reconciler_test {
namespace {

using netlink::AddRule;
using ReconcilerTest = ReconcilerFixture;

TEST_F(ReconcilerTest, MakesEverythingInOneTransactionAndThenNothing) {
  for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
    FakeBackend backend;
    FakeTime time;
    Reconciler reconciler(&backend, time.clock());
    const SyncReport first = reconciler.Sync(Both(mode));
    EXPECT_THAT(first.FirstError(), IsOk());
    EXPECT_THAT(first.applied, Not(IsEmpty()));
    ASSERT_THAT(backend.applied(), SizeIs(1));
    EXPECT_TRUE(backend.applied()[0].only_of_snapshot);
    const uint32_t generation = backend.state().generation;

    const SyncReport second = reconciler.Sync(Both(mode));
    EXPECT_THAT(second.FirstError(), IsOk());
    EXPECT_THAT(second.applied, IsEmpty());
    EXPECT_EQ(backend.state().generation, generation);
  }
}

TEST_F(ReconcilerTest, ReadsAgainWhenAnotherCommitsInBetween) {
  const netlink::ChainId input = Filter("INPUT");
  kernel_.AfterNextRead([&](FakeBackend& other) { other.AppendRule(input, ForeignAccept()); });
  const SyncReport report = Sync(Mode::kCleanup);
  EXPECT_THAT(report.FirstError(), IsOk());
  EXPECT_EQ(report.checks, 2);
  EXPECT_EQ(time_.slept(), absl::ZeroDuration());
  const netlink::ObservedChain* chain = kernel_.state().Find(input);
  ASSERT_NE(chain, nullptr);
  ASSERT_THAT(chain->rules, SizeIs(2));
  EXPECT_EQ(*netlink::JumpTarget(chain->rules[0]), "KUBE-FIREWALL");
  EXPECT_NE(chain->rules[1].opaque(), nullptr);
}

TEST_F(ReconcilerTest, ANativeTableThatIsRemovedDuringAReadIsReadAgain) {
  const PolicyInput desired = Both(Mode::kCleanup);
  SupportSource support = NoXt();
  const std::string name(kNativeTable);
  kernel_.LoseXt();
  ASSERT_TRUE(PutsNative(Reconciler(&kernel_, time_.clock(), &support).Sync(desired).applied));
  kernel_.FailNextRead(absl::AbortedError("changed in between"));
  kernel_.RemoveNativeTable(Family::kIPv4, name);
  const SyncReport report = Reconciler(&kernel_, time_.clock(), &support).Sync(desired);
  EXPECT_THAT(report.FirstError(), IsOk());
  EXPECT_EQ(report.checks, 2);
  EXPECT_TRUE(PutsNative(report.applied));
  EXPECT_TRUE(kernel_.Read({}, &NativeMartians())->native.has_value());
}

TEST_F(ReconcilerTest, AReadThatIsTornEachTimeEndsInAnError) {
  time_ = FakeTime(absl::Seconds(1));
  ReadsBy torn(&kernel_, [](auto, auto) {
    return absl::AbortedError("the ruleset changed during each of 10 attempts to read it");
  });
  EXPECT_THAT(Reconciler(&torn, time_.clock()).Check(Both(Mode::kCleanup)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("other programs kept changing the ruleset")));
}

TEST_F(ReconcilerTest, ANativeTableThatCannotBeReadIsNoMissingOne) {
  ReadsBy unreadable(&kernel_, [this](auto queries, auto native) {
    if (native == nullptr) return kernel_.Read(queries, native);
    return absl::StatusOr<netlink::Snapshot>(absl::PermissionDeniedError("no CAP_NET_ADMIN"));
  });
  const SyncReport report = SyncBy(unreadable, Mode::kCleanup);
  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(kernel_.apply_count(), 0);
}

TEST_F(ReconcilerTest, ReportsTheNativeTableRemovedWithItsReplacement) {
  kernel_.PutNativeTable({.table = NativeMartians()});
  const SyncReport report = Sync(Mode::kCleanup);
  EXPECT_THAT(report.FirstError(), IsOk());
  EXPECT_TRUE(std::any_of(report.applied.begin(), report.applied.end(), [](const Change& change) {
    return std::holds_alternative<netlink::DeleteNativeTable>(change.operation);
  }));
  EXPECT_FALSE(PutsNative(report.applied));
  EXPECT_THAT(kernel_.applied(), SizeIs(1)) << "in one transaction";
}

TEST_F(ReconcilerTest, OneFamilyThatLacksAnExtensionIsEnough) {
  SyncReport report;
  absl::Status lacks = absl::NotFoundError("no module");
  netlink::SetMissingExtension(lacks, "comment");
  report.families = {{Family::kIPv4, absl::OkStatus()}, {Family::kIPv6, lacks}};
  EXPECT_TRUE(report.LacksExtension());
  netlink::SetMissingExtension(lacks, netlink::kConnLabelExtension);
  report.families[1].status = lacks;
  EXPECT_FALSE(report.LacksExtension()) << "that one may be missing alone";
}

TEST_F(ReconcilerTest, PausesAfterTenRetriesAndGivesUpAfterFiveSeconds) {
  for (int i = 0; i < 2000; ++i) {
    kernel_.AfterNextRead([](FakeBackend& other) { other.Touch(); });
  }
  const SyncReport report = Sync(Mode::kCleanup);
  EXPECT_THAT(report.FirstError(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("other programs kept changing the ruleset for 5s")));
  EXPECT_EQ(time_.slept(), absl::Seconds(5));
  EXPECT_EQ(report.checks, 501 + 491) << "and torn, where 50 ms have passed";
  EXPECT_THAT(kernel_.applied(), IsEmpty());
}

TEST_F(ReconcilerTest, AReadThatFailsIsTheWholeReport) {
  // Together, and each family alone.
  for (int i = 0; i < 3; ++i) {
    kernel_.FailNextRead(absl::PermissionDeniedError("no CAP_NET_ADMIN"));
  }
  const SyncReport report = Sync(Mode::kCleanup);
  EXPECT_THAT(report.FirstError(), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(report.families, IsEmpty());
  EXPECT_THAT(kernel_.applied(), IsEmpty());
}

TEST_F(ReconcilerTest, WhatIsRestrainedIsPlannedButNotDone) {
  const SyncReport report =
      Reconciler(&kernel_, time_.clock()).Sync(Both(Mode::kCleanup), [](const Plan& plan) {
        std::vector<Change> allowed = plan.diff.changes;
        std::erase_if(allowed, [](const Change& change) {
          return netlink::ChainOf(change.operation).table != netlink::Table::kMangle;
        });
        return allowed;
      });
  EXPECT_THAT(report.FirstError(), IsOk());
  EXPECT_THAT(report.applied, SizeIs(2));
  EXPECT_EQ(report.PendingOf(Family::kIPv4).size() + report.PendingOf(Family::kIPv6).size(),
            report.plan.diff.changes.size() - report.applied.size());
  EXPECT_THAT(report.PendingOf(Family::kIPv4), Not(IsEmpty()));
  EXPECT_EQ(kernel_.state().Find(Filter("KUBE-FIREWALL")), nullptr);
}

TEST_F(ReconcilerTest, ReportsFamiliesOfKubeProxyAndForeignJumpsFromBaseChains) {
  kernel_.AddChain({Family::kIPv6, netlink::Table::kMangle, "KUBE-PROXY-CANARY"});
  kernel_.AppendRule(Filter("FORWARD"), JumpTo("cali-FORWARD"));
  kernel_.AppendRule(Filter("INPUT"), JumpTo("KUBE-FIREWALL"));
  kernel_.AppendRule(Filter("KUBE-FIREWALL"), JumpTo("NOT-FROM-A-BASE-CHAIN"));
  const absl::StatusOr<Plan> plan = Reconciler(&kernel_, time_.clock()).Check(Both(Mode::kCleanup));
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(plan->claimed_by_kube_proxy, ElementsAre(Family::kIPv6));
  EXPECT_THAT(plan->foreign_jumps, ElementsAre(ForeignJump{Filter("FORWARD"), "cali-FORWARD"}));
}

TEST_F(ReconcilerTest, AWriteThatIsRefusedIsAFindingOnWhatItWasToChange) {
  absl::Status refused = absl::PermissionDeniedError("guarded");
  netlink::SetWriteRefused(refused);
  const auto chain_of_finding = [&](FakeBackend& backend) {
    const SyncReport report = SyncBy(backend, Mode::kCleanup);
    const auto finding = absl::c_find_if(report.plan.diff.findings, [](const Finding& one) {
      return one.condition == Condition::kWriteRefused;
    });
    return finding == report.plan.diff.findings.end() ? std::string("none")
                                                      : ToString(finding->chain);
  };
  FakeBackend unreadable;
  for (int i = 0; i < 20; ++i) unreadable.FailNextRead(refused);
  EXPECT_EQ(chain_of_finding(unreadable), "ip mangle KUBE-IPTABLES-HINT");
  for (const Family family : netlink::kFamilies) {
    kernel_.AddChain(Mangle("KUBE-IPTABLES-HINT", family));
  }
  for (int i = 0; i < 20; ++i) kernel_.FailNextApply(refused);
  EXPECT_EQ(chain_of_finding(kernel_), "ip filter KUBE-FIREWALL");
}

// ---- A ruleset that others change faster than it can be read. ----

// No chain can be read at one generation, the generation can.
class NeverAtRest : public BorrowedBackend {
 public:
  using BorrowedBackend::BorrowedBackend;
  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery> queries,
                                         const netlink::NativeTable* native) override {
    if (!queries.empty()) return absl::AbortedError("the ruleset changed while it was read");
    return BorrowedBackend::Read(queries, native);
  }
  absl::StatusOr<netlink::Snapshot> ReadTorn(absl::Span<const netlink::ChainQuery> queries,
                                             const netlink::NativeTable* native) override {
    absl::StatusOr<netlink::Snapshot> torn = BorrowedBackend::Read(queries, native);
    if (torn.ok()) torn->generation = 0;
    return torn;
  }
};

class TornTest : public ::testing::Test {
 protected:
  void MakeAllInPlace() {
    ASSERT_THAT(Reconciler(&backend_, time_.clock()).Sync(Legacy()).FirstError(), IsOk());
  }
  SyncReport SyncUnderway() { return Reconciler(&never_, time_.clock()).Sync(Legacy()); }
  std::vector<netlink::ObservedRule> RulesOf(const netlink::ChainId& chain) const {
    return backend_.state().Find(chain)->rules;
  }

  FakeBackend backend_;
  NeverAtRest never_{&backend_};
  FakeTime time_{absl::Milliseconds(50)};
};

TEST_F(TornTest, WhatIsMissingIsAddedWhichEndsTheCall) {
  int observed = 0;
  const RoundObserver observer = [&](const auto& /*snapshot*/, const Plan& /*plan*/) {
    ++observed;
  };
  const SyncReport report = Reconciler(&never_, time_.clock(), nullptr, observer).Sync(Legacy());
  EXPECT_EQ(observed, 0) << "nothing that is of one moment";
  EXPECT_TRUE(report.plan.torn);
  EXPECT_NE(report.plan.generation, 0U) << "or the writers before it would not be known";
  EXPECT_THAT(report.FirstError(), IsOk());
  EXPECT_THAT(report.applied, Not(IsEmpty()));
  EXPECT_THAT(report.PendingOf(Family::kIPv4), IsEmpty());
  EXPECT_THAT(Reconciler(&backend_, time_.clock()).Check(Legacy())->diff.changes, IsEmpty());
}

TEST_F(TornTest, NothingIsAddedToWhatExists) {
  MakeAllInPlace();
  const netlink::Snapshot before = backend_.state();
  EXPECT_THAT(SyncUnderway().applied, IsEmpty());
  EXPECT_EQ(backend_.state(), before);
}

TEST_F(TornTest, NothingIsRemovedAndNothingMoves) {
  MakeAllInPlace();
  // A second jump is a duplicate, and the RETURN that was first has no effect at the end.
  backend_.AppendRule(Filter("INPUT"), *RulesOf(Filter("INPUT")).at(0).rule());
  const netlink::ChainId postrouting = Nat("KUBE-POSTROUTING");
  const netlink::ObservedRule first = RulesOf(postrouting).at(0);
  backend_.RemoveRule(postrouting, first.handle);
  backend_.AppendRule(postrouting, *first.rule());
  const netlink::Snapshot before = backend_.state();
  const auto plan = Reconciler(&backend_, time_.clock()).Check(Legacy());
  ASSERT_THAT(plan, IsOk());
  ASSERT_THAT(plan->diff.changes, Contains(Field(&Change::operation, VariantWith<AddRule>(_))));
  const SyncReport report = SyncUnderway();
  EXPECT_THAT(report.applied, IsEmpty());
  EXPECT_THAT(report.FirstError(), StatusIs(absl::StatusCode::kDeadlineExceeded)) << "work is left";
  EXPECT_EQ(backend_.state(), before);
}

TEST_F(TornTest, NothingIsAddedThatIsRightOnlyWithWhatIsLeftOut) {
  MakeAllInPlace();
  // Only the MASQUERADE is missing, and the XOR moves: without that it would mark what is unmarked.
  const netlink::ChainId postrouting = Nat("KUBE-POSTROUTING");
  const std::vector<netlink::ObservedRule> rules = RulesOf(postrouting);
  for (const netlink::ObservedRule& rule : rules) backend_.RemoveRule(postrouting, rule.handle);
  backend_.AppendRule(postrouting, *rules.at(1).rule());
  backend_.AppendRule(postrouting, *rules.at(0).rule());
  // A jump is missing, and the rule to which it leads is to be removed.
  backend_.AppendRule(Filter("KUBE-FIREWALL"), DropMarked(13));
  backend_.RemoveRule(Filter("INPUT"), RulesOf(Filter("INPUT")).at(0).handle);
  const netlink::Snapshot before = backend_.state();
  EXPECT_THAT(SyncUnderway().applied, IsEmpty());
  EXPECT_EQ(backend_.state(), before);
  backend_.MakeDormant(Family::kIPv4, Table::kFilter);
  EXPECT_THAT(SyncUnderway().applied, IsEmpty());
}

// A kernel without NAT for IPv6, as an example.
class NeverAtRestAndRefusesIpv6 : public NeverAtRest {
 public:
  using NeverAtRest::NeverAtRest;
  absl::Status Apply(const netlink::Transaction& transaction) override {
    for (const netlink::Operation& operation : transaction.operations) {
      const netlink::ChainId& chain = netlink::ChainOf(operation);
      if (chain.family == Family::kIPv6 && chain.table == Table::kNat) {
        return absl::InvalidArgumentError("refused");
      }
    }
    return NeverAtRest::Apply(transaction);
  }
};

TEST_F(TornTest, WhatIsRefusedKeepsNothingElseFromBeingAdded) {
  NeverAtRestAndRefusesIpv6 kernel(&backend_);
  const SyncReport report = Reconciler(&kernel, time_.clock()).Sync(Both(Mode::kLegacy));
  EXPECT_THAT(report.ResultOf(Family::kIPv4).status, IsOk());
  EXPECT_THAT(report.ResultOf(Family::kIPv6),
              AllOf(Field(&FamilyResult::status, StatusIs(absl::StatusCode::kInvalidArgument)),
                    Field(&FamilyResult::refused, ElementsAre(Table::kNat))));
  EXPECT_NE(backend_.state().Find(Nat("KUBE-POSTROUTING")), nullptr);
  EXPECT_NE(backend_.state().Find(Filter("KUBE-FIREWALL", Family::kIPv6)), nullptr);
}

TEST_F(TornTest, WhatIsRefusedOnceIsTriedAgain) {
  backend_.FailNextApply(absl::NotFoundError("the rule that it goes before was deleted"));
  EXPECT_THAT(SyncUnderway().FirstError(), IsOk());
  EXPECT_THAT(backend_.applied(), SizeIs(1));
}

TEST_F(TornTest, WhatIsLeftOfOneFamilyKeepsNothingOfTheOther) {
  ASSERT_THAT(Reconciler(&backend_, time_.clock()).Sync(Both(Mode::kLegacy)).FirstError(), IsOk());
  const netlink::ChainId input6 = Filter("INPUT", Family::kIPv6);
  backend_.AppendRule(input6, *RulesOf(input6).at(0).rule());
  backend_.RemoveChain(Mangle("KUBE-KUBELET-CANARY"));
  for (int i = 0; i < 2; ++i) backend_.FailNextApply(absl::InvalidArgumentError("together"));
  const SyncReport report = Reconciler(&never_, time_.clock()).Sync(Both(Mode::kLegacy));
  EXPECT_THAT(report.ResultOf(Family::kIPv4).status, IsOk());
  EXPECT_THAT(report.ResultOf(Family::kIPv6).status, StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(TornTest, WhatIsRemovedAgainIsAddedOnceACall) {
  const std::function<void(FakeBackend&)> clear = [&](FakeBackend& other) {
    if (!other.state().chains.empty()) other.Clear();
    other.AfterNextRead(clear);
  };
  backend_.AfterNextRead(clear);
  EXPECT_THAT(SyncUnderway().FirstError(), IsOk());
  EXPECT_THAT(backend_.applied(), SizeIs(1));
}

TEST_F(TornTest, WhatIsRestrainedIsNotAdded) {
  const SyncReport report = Reconciler(&never_, time_.clock()).Sync(Legacy(), [](const Plan&) {
    return std::vector<Change>();
  });
  EXPECT_THAT(report.applied, IsEmpty());
  EXPECT_THAT(backend_.applied(), IsEmpty());
}

TEST_F(TornTest, ACommitOrTwoAreWaitedFor) {
  FakeTime quick;
  backend_.FailNextRead(absl::AbortedError("the ruleset changed while it was read"));
  backend_.AfterNextRead([](FakeBackend& other) { other.Touch(); });
  const SyncReport report = Reconciler(&backend_, quick.clock()).Sync(Legacy());
  EXPECT_THAT(report.FirstError(), IsOk());
  EXPECT_EQ(report.checks, 3) << "none of them torn";
}

}  // namespace
}  // namespace kipt::agent::reconciler_test
