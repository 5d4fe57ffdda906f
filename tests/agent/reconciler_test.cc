// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/reconciler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::BorrowedBackend;
using ::kipt::testing::FakeBackend;
using ::kipt::testing::Filter;
using ::kipt::testing::IsOk;
using ::kipt::testing::StatusIs;
using netlink::Family;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Time that only passes when somebody sleeps, or by `per_look` at each question.
class FakeTime {
 public:
  explicit FakeTime(absl::Duration per_look = absl::ZeroDuration()) : per_look_(per_look) {}
  Clock clock() {
    return {.now = [this] { return now_ += per_look_; },
            .sleep =
                [this](absl::Duration duration) {
                  now_ += duration;
                  slept_ += duration;
                }};
  }
  absl::Duration slept() const { return slept_; }

 private:
  absl::Duration per_look_;
  absl::Time now_ = absl::UnixEpoch();
  absl::Duration slept_ = absl::ZeroDuration();
};

Ruleset Both(Mode mode) { return DesiredRuleset(mode, netlink::kFamilies, {}); }

TEST(ReconcilerTest, MakesEverythingInOneTransactionAndThenNothing) {
  for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
    FakeBackend backend;
    FakeTime time;
    Reconciler reconciler(&backend, time.clock());
    const SyncReport first = reconciler.Sync(Both(mode));
    EXPECT_THAT(first.FirstError(), IsOk());
    EXPECT_THAT(first.applied, Not(IsEmpty()));
    EXPECT_THAT(backend.applied(), SizeIs(1));
    const uint32_t generation = backend.state().generation;

    const SyncReport second = reconciler.Sync(Both(mode));
    EXPECT_THAT(second.FirstError(), IsOk());
    EXPECT_THAT(second.applied, IsEmpty());
    EXPECT_EQ(backend.state().generation, generation);
  }
}

TEST(ReconcilerTest, LookingChangesNothing) {
  FakeBackend backend;
  FakeTime time;
  const netlink::Snapshot before = backend.state();
  const absl::StatusOr<Plan> plan = Reconciler(&backend, time.clock()).Look(Both(Mode::kLegacy));
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(plan->diff.changes, Not(IsEmpty()));
  EXPECT_EQ(backend.state(), before);
}

TEST(ReconcilerTest, LooksAgainWhenSomebodyElseCommitsInBetween) {
  FakeBackend backend;
  FakeTime time;
  const netlink::ChainId input = Filter("INPUT");
  backend.AfterNextRead(
      [&](FakeBackend& other) { other.AppendRule(input, ::kipt::testing::ForeignAccept()); });
  const SyncReport report = Reconciler(&backend, time.clock()).Sync(Both(Mode::kCleanup));
  EXPECT_THAT(report.FirstError(), IsOk());
  EXPECT_EQ(report.looks, 2);
  EXPECT_EQ(time.slept(), absl::ZeroDuration());
  const netlink::ObservedChain* chain = backend.state().Find(input);
  ASSERT_NE(chain, nullptr);
  ASSERT_THAT(chain->rules, SizeIs(2));
  EXPECT_EQ(*netlink::JumpTarget(chain->rules[0]), "KUBE-FIREWALL");
  EXPECT_NE(chain->rules[1].opaque(), nullptr);
}

TEST(ReconcilerTest, PausesAfterTenRetriesAndGivesUpAfterFiveSeconds) {
  FakeBackend backend;
  FakeTime time;
  for (int i = 0; i < 2000; ++i) {
    backend.AfterNextRead([](FakeBackend& other) { other.Touch(); });
  }
  const SyncReport report = Reconciler(&backend, time.clock()).Sync(Both(Mode::kCleanup));
  EXPECT_THAT(report.FirstError(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                            HasSubstr("others kept changing the ruleset for 5s")));
  EXPECT_EQ(time.slept(), absl::Seconds(5));
  EXPECT_EQ(report.looks, 501);
  EXPECT_THAT(backend.applied(), IsEmpty());
}

TEST(ReconcilerTest, AReadThatFailsIsTheWholeReport) {
  FakeBackend backend;
  FakeTime time;
  // Together, and each family by itself.
  for (int i = 0; i < 3; ++i) {
    backend.FailNextRead(absl::PermissionDeniedError("no CAP_NET_ADMIN"));
  }
  const SyncReport report = Reconciler(&backend, time.clock()).Sync(Both(Mode::kCleanup));
  EXPECT_THAT(report.FirstError(), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(report.families, IsEmpty());
  EXPECT_THAT(backend.applied(), IsEmpty());
}

TEST(ReconcilerTest, AFamilyThatCannotBeReadDoesNotKeepTheOtherFromItsRules) {
  FakeBackend backend;
  FakeTime time;
  backend.FailNextRead(absl::NotFoundError("no program"));
  backend.FailNextRead(absl::NotFoundError("no program for ip"));
  const SyncReport report = Reconciler(&backend, time.clock()).Sync(Both(Mode::kLegacy));
  EXPECT_THAT(report.status, IsOk());
  ASSERT_THAT(report.families, SizeIs(2));
  EXPECT_THAT(report.families[0].status,
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no program for ip")));
  EXPECT_THAT(report.families[1].status, IsOk());
  EXPECT_THAT(report.applied, Not(IsEmpty()));
  for (const Change& change : report.applied) {
    EXPECT_EQ(netlink::ChainOf(change.operation).family, Family::kIPv6);
  }
}

TEST(ReconcilerTest, WhatIsRestrainedIsPlannedButNotDone) {
  FakeBackend backend;
  FakeTime time;
  const SyncReport report =
      Reconciler(&backend, time.clock()).Sync(Both(Mode::kCleanup), [](const Plan& plan) {
        Diff allowed = plan.diff;
        std::erase_if(allowed.changes, [](const Change& change) {
          return netlink::ChainOf(change.operation).table != netlink::Table::kMangle;
        });
        return allowed;
      });
  EXPECT_THAT(report.FirstError(), IsOk());
  EXPECT_THAT(report.applied, SizeIs(2));
  EXPECT_EQ(report.PendingOf(Family::kIPv4).size() + report.PendingOf(Family::kIPv6).size(),
            report.plan.diff.changes.size() - report.applied.size());
  EXPECT_THAT(report.PendingOf(Family::kIPv4), Not(IsEmpty()));
  EXPECT_EQ(backend.state().Find(Filter("KUBE-FIREWALL")), nullptr);
}

TEST(ReconcilerTest, TellsWhereKubeProxyLivesAndWhoElseJumpsFromBaseChains) {
  FakeBackend backend;
  FakeTime time;
  backend.AddChain({Family::kIPv6, netlink::Table::kMangle, "KUBE-PROXY-CANARY"});
  backend.AppendRule(Filter("FORWARD"), ::kipt::testing::JumpTo("cali-FORWARD"));
  backend.AppendRule(Filter("INPUT"), ::kipt::testing::JumpTo("KUBE-FIREWALL"));
  const absl::StatusOr<Plan> plan = Reconciler(&backend, time.clock()).Look(Both(Mode::kCleanup));
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(plan->claimed_by_kube_proxy, ::testing::ElementsAre(Family::kIPv6));
  EXPECT_THAT(plan->foreign_jumps,
              ::testing::ElementsAre(ForeignJump{Filter("FORWARD"), "cali-FORWARD"}));
}

// Refuses every transaction that has something of one family.
class RefusesFamily : public BorrowedBackend {
 public:
  RefusesFamily(FakeBackend* backend, Family family) : BorrowedBackend(backend), family_(family) {}
  absl::Status Apply(const netlink::Transaction& transaction) override {
    for (const netlink::Operation& operation : transaction.operations) {
      if (netlink::ChainOf(operation).family == family_) {
        return absl::NotFoundError("no such kernel module");
      }
    }
    return BorrowedBackend::Apply(transaction);
  }

 private:
  Family family_;
};

TEST(ReconcilerTest, AFamilyThatIsRefusedDoesNotKeepTheOtherFromItsRules) {
  for (const Family refused : netlink::kFamilies) {
    FakeBackend backend;
    FakeTime time;
    RefusesFamily refusing(&backend, refused);
    const SyncReport report = Reconciler(&refusing, time.clock()).Sync(Both(Mode::kLegacy));
    ASSERT_THAT(report.families, SizeIs(2));
    for (const FamilyResult& result : report.families) {
      EXPECT_EQ(result.status.ok(), result.family != refused);
    }
    EXPECT_THAT(report.applied, Not(IsEmpty()));
    for (const Change& change : report.applied) {
      EXPECT_NE(netlink::ChainOf(change.operation).family, refused);
    }
    EXPECT_THAT(backend.applied(), SizeIs(1));
    EXPECT_THAT(report.FirstError(), StatusIs(absl::StatusCode::kNotFound));
  }
}

TEST(ReconcilerTest, AKernelWithoutMatchesGetsNoChainOfTheOtherFamilyEither) {
  FakeBackend backend;
  backend.LoseXt();
  FakeTime time;
  const SyncReport report = Reconciler(&backend, time.clock()).Sync(Both(Mode::kCleanup));
  EXPECT_THAT(report.FirstError(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(backend.state().chains, IsEmpty()) << "a hint that iptables can be used";
  EXPECT_THAT(report.applied, IsEmpty());
}

TEST(ReconcilerTest, AFamilyWithNothingToChangeIsNotBlamedForTheOther) {
  FakeBackend backend;
  FakeTime time;
  RefusesFamily refusing(&backend, Family::kIPv6);
  const Family ipv4[] = {Family::kIPv4};
  Reconciler reconciler(&refusing, time.clock());
  ASSERT_THAT(reconciler.Sync(DesiredRuleset(Mode::kCleanup, ipv4, {})).FirstError(), IsOk());
  const SyncReport report = reconciler.Sync(Both(Mode::kCleanup));
  ASSERT_THAT(report.families, SizeIs(2));
  EXPECT_THAT(report.families[0].status, IsOk());
  EXPECT_THAT(report.families[1].status, StatusIs(absl::StatusCode::kNotFound));
}

// As iptables-legacy-save where somebody replaced a table in the middle of it: both families at
// once are not to be had, each alone is.
class ReadsFamiliesApart : public BorrowedBackend {
 public:
  using BorrowedBackend::BorrowedBackend;
  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery> queries) override {
    for (const netlink::ChainQuery& query : queries) {
      if (query.chain.family != queries[0].chain.family) return absl::UnavailableError("not now");
    }
    return BorrowedBackend::Read(queries);
  }
};

TEST(ReconcilerTest, TheMartianRuleIsSeenWhereTheFamiliesAreReadOneByOne) {
  FakeBackend backend;
  FakeTime time;
  ASSERT_THAT(Reconciler(&backend, time.clock()).Sync(Both(Mode::kCleanup)).FirstError(), IsOk());
  ReadsFamiliesApart apart(&backend);
  const SyncReport report = Reconciler(&apart, time.clock()).Sync(Both(Mode::kCleanup));
  ASSERT_THAT(report.FirstError(), IsOk());
  EXPECT_THAT(report.applied, IsEmpty());
  EXPECT_TRUE(report.plan.martians.stands);
}

// As legacy xtables: each family is written for itself, and one of them is refused.
class WritesFamiliesApart : public BorrowedBackend {
 public:
  WritesFamiliesApart(FakeBackend* backend, Family refused)
      : BorrowedBackend(backend), refused_(refused) {}
  bool spans_families() const override { return false; }
  absl::Status Apply(const netlink::Transaction& transaction) override {
    netlink::Transaction possible{.generation = transaction.generation, .operations = {}};
    for (const netlink::Operation& operation : transaction.operations) {
      if (netlink::ChainOf(operation).family != refused_) {
        possible.operations.push_back(operation);
      }
    }
    absl::Status status = BorrowedBackend::Apply(possible);
    const bool whole = possible.operations.size() == transaction.operations.size();
    return status.ok() && !whole ? absl::NotFoundError("no such program") : status;
  }

 private:
  Family refused_;
};

TEST(ReconcilerTest, ReportsWhatWasDoneForOneFamilyBeforeTheOtherWasRefused) {
  for (const Family refused : netlink::kFamilies) {
    FakeBackend backend;
    FakeTime time;
    WritesFamiliesApart legacy(&backend, refused);
    const SyncReport report = Reconciler(&legacy, time.clock()).Sync(Both(Mode::kLegacy));
    ASSERT_THAT(report.families, SizeIs(2));
    for (const FamilyResult& result : report.families) {
      EXPECT_EQ(result.status.ok(), result.family != refused);
    }
    ASSERT_THAT(backend.applied(), SizeIs(1));
    EXPECT_EQ(report.applied.size(), backend.applied().front().operations.size());
    for (const Change& change : report.applied) {
      EXPECT_NE(netlink::ChainOf(change.operation).family, refused);
    }
  }
}

TEST(ReconcilerTest, FlippingTheGateBackAndForthLosesNothing) {
  FakeBackend backend;
  FakeTime time;
  Reconciler reconciler(&backend, time.clock());
  ASSERT_THAT(reconciler.Sync(Both(Mode::kLegacy)).FirstError(), IsOk());
  const auto legacy = backend.state().chains;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(reconciler.Sync(Both(Mode::kCleanup)).applied, IsEmpty());
    EXPECT_THAT(reconciler.Sync(Both(Mode::kLegacy)).applied, IsEmpty());
  }
  EXPECT_EQ(backend.state().chains, legacy);
}

}  // namespace
}  // namespace kipt::agent
