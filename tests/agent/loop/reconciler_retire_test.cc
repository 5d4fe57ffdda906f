// SPDX-License-Identifier: Apache-2.0
//
// Retirement against a kernel that refuses, changes, or knows more than its rules show.

#include "agent/loop/reconciler.h"
#include "agent/loop/retirer.h"
#include "netlink/kernel_error.h"
#include "tests/agent/loop/reconciler_fixture.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent::reconciler_retire_test {
namespace {

RetirementSources NoUsers() {
  return {.cni = [] { return CniConfigs(); },
          .route_localnet = [] { return agent::RouteLocalnet(); },
          .other_mode = [](DependentsCollector&) {}};
}

class ReconcilerRetireTest : public ReconcilerFixture {
 protected:
  // Leftovers of legacy mode, and what cleanup mode requires.
  void SetUp() override {
    for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
      ASSERT_THAT(Sync(mode).FirstError(), IsOk());
    }
  }
  RetireReport TryRetire(netlink::Backend& backend, bool apply = true) {
    return kipt::agent::TryRetire(backend, Request(Mode::kCleanup, apply));
  }
  static RetireRequest Request(Mode mode, bool apply = true) {
    return {.input = Both(mode), .sources = NoUsers(), .apply = apply};
  }
  bool Exists(const netlink::ChainId& chain) { return kernel_.state().Find(chain) != nullptr; }
};

// A verdict map may use a chain, which no rule shows.
TEST_F(ReconcilerRetireTest, AChainInUseStaysAndAnotherThanThoseThatGoIsNoReasonToTryForEver) {
  class RefusesToDeleteMarkMasq : public BorrowedBackend {
   public:
    RefusesToDeleteMarkMasq(FakeBackend* backend, netlink::ChainId in_use)
        : BorrowedBackend(backend), in_use_(std::move(in_use)) {}
    absl::Status Apply(const netlink::Transaction& transaction) override {
      for (const netlink::Operation& operation : transaction.operations) {
        const auto* remove = std::get_if<netlink::DeleteChain>(&operation);
        if (remove == nullptr || remove->chain != Nat("KUBE-MARK-MASQ")) continue;
        absl::Status status = absl::FailedPreconditionError("it is in use");
        netlink::SetChainInUse(status, in_use_);
        return status;
      }
      return BorrowedBackend::Apply(transaction);
    }

   private:
    netlink::ChainId in_use_;
  };
  RefusesToDeleteMarkMasq another(&kernel_, Nat("ANOTHER"));
  EXPECT_THAT(TryRetire(another).status, StatusIs(absl::StatusCode::kFailedPrecondition));
  RefusesToDeleteMarkMasq used(&kernel_, Nat("KUBE-MARK-MASQ"));
  const RetireReport report = TryRetire(used);
  EXPECT_THAT(report.status, IsOk());
  EXPECT_THAT(report.dependents.references,
              ElementsAre(Field(&Reference::from, "a use that no rule shows")));
  EXPECT_TRUE(Exists(Nat("KUBE-MARK-MASQ")));
  EXPECT_FALSE(Exists(Nat("KUBE-MARK-MASQ", Family::kIPv6)));
}

TEST_F(ReconcilerRetireTest, TheNativeTableIsRemovedInModeOff) {
  kernel_.PutNativeTable({.table = NativeMartians()});
  RetireRequest request = Request(Mode::kOff);
  request.options.when_off = true;
  EXPECT_THAT(kipt::agent::TryRetire(kernel_, request).status, IsOk());
  EXPECT_FALSE(kernel_.Read({}, &NativeMartians())->native.has_value());
}

TEST_F(ReconcilerRetireTest, AnyOtherRefusalIsTheReport) {
  kernel_.FailNextApply(absl::ResourceExhaustedError("no memory"));
  const RetireReport report = TryRetire(kernel_);
  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(report.applied);
  EXPECT_TRUE(Exists(Nat("KUBE-MARK-MASQ")));
}

TEST_F(ReconcilerRetireTest, NothingIsRemovedByAFailedOrOutdatedSurvey) {
  kernel_.FailNextSurvey(absl::UnavailableError("not now"));
  EXPECT_THAT(TryRetire(kernel_).status, StatusIs(absl::StatusCode::kUnavailable));
  kernel_.FailNextRead(absl::PermissionDeniedError("no"));
  EXPECT_THAT(TryRetire(kernel_).status, StatusIs(absl::StatusCode::kPermissionDenied));
  kernel_.AfterNextRead([](FakeBackend& kernel) { kernel.Touch(); });
  EXPECT_THAT(TryRetire(kernel_, /*apply=*/false).status,
              StatusIs(absl::StatusCode::kAborted, HasSubstr("while it was surveyed")));
  EXPECT_TRUE(Exists(Nat("KUBE-MARK-MASQ")));
}

TEST_F(ReconcilerRetireTest, RulesAreSurveyedOnlyWhereSomethingMayGo) {
  const RetireReport first = TryRetire(kernel_);
  EXPECT_TRUE(first.surveyed);
  EXPECT_TRUE(first.applied);
  kernel_.FailNextSurvey(absl::UnavailableError("not asked for"));
  const RetireReport nothing_to_do = kipt::agent::TryRetire(kernel_, Request(Mode::kLegacy));
  EXPECT_THAT(nothing_to_do.status, IsOk());
  EXPECT_FALSE(nothing_to_do.surveyed);
  EXPECT_FALSE(nothing_to_do.applied);
}

TEST_F(ReconcilerRetireTest, AnAttemptThatOthersWroteIntoIsMadeAgainFromTheStart) {
  kernel_.AfterNextRead([](FakeBackend& kernel) { kernel.Touch(); });
  const RetireReport report = Retire(kernel_, time_.clock(), Request(Mode::kCleanup));
  EXPECT_THAT(report.status, IsOk());
  EXPECT_TRUE(report.applied);
  EXPECT_EQ(report.generation + 1, kernel_.state().generation);
  EXPECT_FALSE(Exists(Nat("KUBE-MARK-MASQ")));
}

// What a running agent does at its quiet moments.
class RetirerTest : public ReconcilerRetireTest {
 protected:
  void SetUp() override {
    ReconcilerRetireTest::SetUp();
    retirer_ = Retirer(NoUsers());
  }
  // Whether there was an attempt; its result is in report_.
  bool Tries() {
    std::optional<RetireReport> report =
        retirer_.Run(kernel_, time_.clock(), Both(Mode::kCleanup), {}, /*quiet=*/true);
    if (report) report_ = *std::move(report);
    return report.has_value();
  }
  void ClaimAllOfIPv6() {
    const netlink::ChainId chain = Nat("PREROUTING", Family::kIPv6);
    kernel_.AddChain(chain);
    for (const char* used : {"KUBE-MARK-MASQ", "KUBE-MARK-DROP"}) {
      kernel_.AppendRule(chain, JumpTo(used));
    }
  }

  Retirer retirer_;
  RetireReport report_;
};

TEST_F(RetirerTest, WaitsTenMinutesOnlyWhereAllThatIsStaleIsClaimed) {
  ClaimAllOfIPv6();
  ASSERT_TRUE(Tries());
  EXPECT_TRUE(report_.applied);
  ASSERT_TRUE(Tries());
  EXPECT_FALSE(report_.applied);
  EXPECT_FALSE(Tries());
  time_.clock().sleep(absl::Minutes(10));
  EXPECT_TRUE(Tries());
}

TEST_F(RetirerTest, AFamilyThatWaitedForItsRepairIsTriedAtTheNextQuietMoment) {
  ClaimAllOfIPv6();
  kernel_.RemoveChain(Mangle("KUBE-IPTABLES-HINT"));
  ASSERT_TRUE(Tries());
  ASSERT_TRUE(report_.surveyed);
  ASSERT_FALSE(report_.applied);
  ASSERT_THAT(report_.plan.unsettled, ElementsAre(Family::kIPv4));
  ASSERT_THAT(Sync(Mode::kCleanup).FirstError(), IsOk());
  EXPECT_TRUE(Tries());
  EXPECT_TRUE(report_.applied);
  EXPECT_FALSE(Exists(Nat("KUBE-MARK-MASQ")));
  EXPECT_TRUE(Exists(Nat("KUBE-MARK-MASQ", Family::kIPv6)));
}

TEST_F(RetirerTest, AnAttemptThatOthersWroteIntoIsMadeAgainWhetherItIsQuietOrNot) {
  kernel_.AfterNextRead([](FakeBackend& kernel) { kernel.Touch(); });
  ASSERT_TRUE(Tries());
  EXPECT_THAT(report_.status, StatusIs(absl::StatusCode::kAborted));
  const auto tries_in_noise = [&] {
    return retirer_.Run(kernel_, time_.clock(), Both(Mode::kCleanup), {}, /*quiet=*/false)
        .has_value();
  };
  EXPECT_FALSE(tries_in_noise());
  EXPECT_EQ(retirer_.next(), time_.clock().now() + absl::Milliseconds(50));
  time_.clock().sleep(absl::Milliseconds(50));
  EXPECT_TRUE(tries_in_noise());
  EXPECT_FALSE(Exists(Nat("KUBE-MARK-MASQ")));
  EXPECT_EQ(retirer_.next(), SteadyTime::InfiniteFuture());
  EXPECT_FALSE(tries_in_noise());
}

TEST_F(RetirerTest, APauseIsTenTimesAsLongAsTheAttemptBefore) {
  FakeTime time(absl::Seconds(1));
  kernel_.AfterNextRead([](FakeBackend& kernel) { kernel.Touch(); });
  ASSERT_TRUE(retirer_.Run(kernel_, time.clock(), Both(Mode::kCleanup), {}, /*quiet=*/true));
  EXPECT_EQ(retirer_.next() - time.clock().now(), absl::Seconds(9)) << "a second ago";
}

TEST_F(RetirerTest, ARefusedAttemptIsMadeAgainAfterTenMinutes) {
  kernel_.FailNextApply(absl::ResourceExhaustedError("no memory"));
  ASSERT_TRUE(Tries());
  ASSERT_TRUE(report_.surveyed);
  EXPECT_FALSE(Tries());
  time_.clock().sleep(absl::Minutes(10));
  EXPECT_TRUE(Tries());
  EXPECT_TRUE(report_.applied);
}

}  // namespace
}  // namespace kipt::agent::reconciler_retire_test
