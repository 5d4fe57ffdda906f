// SPDX-License-Identifier: Apache-2.0
//
// A ruleset that others change faster than it can be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "agent/loop/reconciler.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/loop/fake_time.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent::reconciler_torn_test {
namespace {

using ::kipt::testing::BorrowedBackend;
using ::kipt::testing::FakeBackend;
using ::kipt::testing::Filter;
using ::kipt::testing::IsOk;
using ::kipt::testing::Nat;
using ::kipt::testing::StatusIs;
using netlink::AddRule;
using ::testing::_;
using ::testing::Contains;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::VariantWith;

constexpr auto kTooFast = absl::StatusCode::kDeadlineExceeded;

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

TEST_F(TornTest, WhatIsMissingIsAddedAndTheCallSaysThatTheRestIsNotKnown) {
  const SyncReport report = SyncUnderway();
  EXPECT_THAT(report.FirstError(), StatusIs(kTooFast));
  EXPECT_THAT(report.applied, Not(IsEmpty()));
  EXPECT_THAT(backend_.applied(), SizeIs(1)) << "once a call";
  EXPECT_THAT(Reconciler(&backend_, time_.clock()).Check(Legacy())->diff.changes, IsEmpty());
}

TEST_F(TornTest, NothingIsAddedToWhatStands) {
  MakeAllInPlace();
  const netlink::Snapshot before = backend_.state();
  EXPECT_THAT(SyncUnderway().applied, IsEmpty());
  EXPECT_EQ(backend_.state(), before);
}

TEST_F(TornTest, NothingIsRemovedAndNothingMoves) {
  MakeAllInPlace();
  // A second jump is one too many, and a RETURN that stood first does nothing at the end.
  backend_.AppendRule(Filter("INPUT"), *RulesOf(Filter("INPUT")).at(0).rule());
  const netlink::ChainId postrouting = Nat("KUBE-POSTROUTING");
  const netlink::ObservedRule first = RulesOf(postrouting).at(0);
  backend_.RemoveRule(postrouting, first.handle);
  backend_.AppendRule(postrouting, *first.rule());
  const netlink::Snapshot before = backend_.state();
  const auto plan = Reconciler(&backend_, time_.clock()).Check(Legacy());
  ASSERT_THAT(plan, IsOk());
  ASSERT_THAT(plan->diff.changes, Contains(Field(&Change::operation, VariantWith<AddRule>(_))));
  EXPECT_THAT(SyncUnderway().applied, IsEmpty());
  EXPECT_EQ(backend_.state(), before);
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
}  // namespace kipt::agent::reconciler_torn_test
