// SPDX-License-Identifier: Apache-2.0
//
// Families that cannot be read or written together: neither keeps the other from its rules.
#include <algorithm>
#include <functional>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "agent/loop/reconciler.h"
#include "agent/policy/rule_forms.h"
#include "netlink/kernel_error.h"
#include "tests/agent/loop/reconciler_fixture.h"
#include "tests/agent/policy/ipv4_plans.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent::reconciler_families_test {
namespace {

std::vector<Change> OfTable(std::vector<Change> changes, Table table) {
  std::erase_if(changes, [table](const Change& change) {
    return netlink::ChainOf(change.operation).table != table;
  });
  return changes;
}
// Where iptables can hold no rule: hints, and the martian protection in a native table.
SyncReport SyncNative(netlink::Backend& backend, FakeTime& time) {
  PolicyInput input = Both(Mode::kCleanup);
  input.hint = HintPolicy::kAlways;
  SupportSource support = NoXt();
  return Reconciler(&backend, time.clock(), &support).Sync(input);
}
bool NativeExists(FakeBackend& backend) {
  return backend.Read({}, &NativeMartians())->native.has_value();
}

using ReconcilerFamiliesTest = ReconcilerFixture;

TEST_F(ReconcilerFamiliesTest, AFamilyThatCannotBeReadDoesNotKeepTheOtherFromItsRules) {
  kernel_.FailNextRead(absl::NotFoundError("no program"));
  kernel_.FailNextRead(absl::NotFoundError("no program for ip"));
  const SyncReport report = Sync(Mode::kLegacy);
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

TEST_F(ReconcilerFamiliesTest, AFamilyThatCannotBeReadAfterTheOtherIsNotTheWholeReport) {
  kernel_.FailNextRead(absl::NotFoundError("no program"));
  kernel_.AfterNextRead(
      [](FakeBackend& kernel) { kernel.FailNextRead(absl::NotFoundError("no program for ip6")); });
  const SyncReport report = Sync(Mode::kLegacy);
  EXPECT_THAT(report.status, IsOk());
  ASSERT_THAT(report.families, SizeIs(2));
  EXPECT_THAT(report.families[0].status, IsOk());
  EXPECT_THAT(report.families[1].status, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(report.plan.families, ElementsAre(Family::kIPv4));
}

TEST_F(ReconcilerFamiliesTest, TheNativeTableIsStaleThoughIPv6CannotBeRead) {
  kernel_.PutNativeTable({.table = NativeMartians()});
  kernel_.FailNextRead(absl::NotFoundError("no program"));
  kernel_.AfterNextRead(
      [](FakeBackend& kernel) { kernel.FailNextRead(absl::NotFoundError("no program for ip6")); });
  const SyncReport report = Sync(Mode::kOff);
  EXPECT_THAT(report.plan.diff.stale, SizeIs(1));
}

TEST_F(ReconcilerFamiliesTest, TheOnlyFamilyIsNotReadAgainWhereThatFailed) {
  kernel_.FailNextRead(absl::NotFoundError("no program"));
  const Family ipv4[] = {Family::kIPv4};
  const SyncReport report =
      Reconciler(&kernel_, time_.clock()).Sync(Wanting(Mode::kLegacy, ipv4, {}));
  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(kernel_.read_count(), 1);
}

TEST_F(ReconcilerFamiliesTest, TheNativeTableIsPutThoughIPv6OrTheHintIsRefused) {
  for (const Family refused : netlink::kFamilies) {
    FakeBackend kernel;
    FakeTime time;
    kernel.LoseXt();
    // So that nothing but the native table is missing of IPv4.
    if (refused == Family::kIPv6) kernel.AddChain(Mangle("KUBE-IPTABLES-HINT"));
    FamilyRefusal refusal{.family = refused};
    RefusesFamily refusing(&kernel, &refusal);
    const SyncReport report = SyncNative(refusing, time);
    EXPECT_TRUE(PutsNative(report.applied));
    EXPECT_TRUE(NativeExists(kernel));
    for (const Family family : netlink::kFamilies) {
      EXPECT_EQ(report.ResultOf(family).status.ok(), family != refused);
    }
  }
}

TEST_F(ReconcilerFamiliesTest, TheNativeTableIsOfIPv4AndFailsWithIt) {
  kernel_.LoseXt();
  // Both families, IPv4 alone, the native table, the hint.
  for (int i = 0; i < 4; ++i) kernel_.FailNextApply(absl::NotFoundError("no such kernel module"));
  const SyncReport report = SyncNative(kernel_, time_);
  EXPECT_FALSE(PutsNative(report.applied)) << "what was not done is not reported as done";
  EXPECT_FALSE(NativeExists(kernel_));
  EXPECT_THAT(report.ResultOf(Family::kIPv4).status, Not(IsOk()));
  EXPECT_THAT(report.ResultOf(Family::kIPv6).status, IsOk());
}

TEST_F(ReconcilerFamiliesTest, AReadThatFailsBetweenTheFamiliesIsTheWholeReport) {
  FamilyRefusal refusal{.family = Family::kIPv6};
  RefusesFamily refusing(&kernel_, &refusal);
  kernel_.AfterNextRead([](FakeBackend& kernel) {
    kernel.FailNextRead(absl::PermissionDeniedError("no CAP_NET_ADMIN"));
  });
  const SyncReport report = SyncBy(refusing, Mode::kLegacy);
  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(report.families, IsEmpty());
}

TEST_F(ReconcilerFamiliesTest, AFamilyWithNothingToChangeIsNotBlamedForTheOther) {
  for (const Family refused : netlink::kFamilies) {
    FakeBackend backend;
    FakeTime time;
    FamilyRefusal refusal{.family = refused};
    RefusesFamily refusing(&backend, &refusal);
    const Family other[] = {refused == Family::kIPv4 ? Family::kIPv6 : Family::kIPv4};
    Reconciler reconciler(&refusing, time.clock());
    ASSERT_THAT(reconciler.Sync(Wanting(Mode::kCleanup, other, {})).FirstError(), IsOk());
    const SyncReport report = reconciler.Sync(Both(Mode::kCleanup));
    ASSERT_THAT(report.families, SizeIs(2));
    EXPECT_THAT(report.ResultOf(other[0]).status, IsOk());
    EXPECT_THAT(report.ResultOf(refused).status, StatusIs(absl::StatusCode::kNotFound));
    // Two tables of IPv4 are missing and are tried separately.
    EXPECT_EQ(refusal.count, refused == Family::kIPv4 ? 3 : 1)
        << "no other family would gain from another try";
  }
}

// As iptables-legacy-save while a table is being replaced: both families cannot be read at once,
// but each alone can.
ReadsBy::ReadFunction ReadsFamiliesApart(FakeBackend& backend) {
  return [&backend](ReadsBy::Queries queries, const netlink::NativeTable* native) {
    for (const netlink::ChainQuery& query : queries) {
      if (query.chain.family == queries[0].chain.family) continue;
      return absl::StatusOr<netlink::Snapshot>(absl::UnavailableError("not now"));
    }
    return backend.Read(queries, native);
  };
}

// Everything that a plan can hold, of both families.
void Fill(FakeBackend& backend) {
  FakeTime time;
  ASSERT_THAT(Reconciler(&backend, time.clock()).Sync(Both(Mode::kLegacy)).FirstError(), IsOk());
  backend.PutNativeTable({.table = NativeMartians()});
  for (const Family family : netlink::kFamilies) {
    backend.AddChain(Nat("KUBE-SERVICES", family));
    backend.AppendRule(Nat("PREROUTING", family), JumpTo("CNI-HOSTPORT-DNAT"));
    // As an old iptables leaves it: with its comment, without its matches.
    backend.AppendRule(Filter("KUBE-FIREWALL", family),
                       BareDrop("kubernetes firewall for dropping marked packets"));
    backend.RemoveChain(Mangle("KUBE-IPTABLES-HINT", family));
  }
}

TEST_F(ReconcilerFamiliesTest, ReadOneByOneTheyGetTheSameRulesAndTheSameReport) {
  for (const Mode mode : {Mode::kLegacy, Mode::kCleanup}) {
    FakeBackend together;
    FakeBackend one_by_one;
    Fill(together);
    Fill(one_by_one);
    ASSERT_EQ(together.state(), one_by_one.state());
    FakeTime time;
    ReadsBy apart(&one_by_one, ReadsFamiliesApart(one_by_one));
    const SyncReport expected = Reconciler(&together, time.clock()).Sync(Both(mode));
    const SyncReport found = Reconciler(&apart, time.clock()).Sync(Both(mode));
    EXPECT_EQ(ToString(one_by_one), ToString(together));
    EXPECT_EQ(NativeExists(one_by_one), NativeExists(together));
    EXPECT_THAT(found.FirstError(), IsOk());
    EXPECT_THAT(found.applied, UnorderedElementsAreArray(expected.applied));
    const Plan& plan = expected.plan;
    ASSERT_THAT(plan.diff.changes, Not(IsEmpty()));
    ASSERT_THAT(plan.diff.findings, Not(IsEmpty()));
    EXPECT_GT(found.plan.generation, 1U);
    EXPECT_THAT(found.plan.diff.changes, UnorderedElementsAreArray(plan.diff.changes));
    EXPECT_THAT(found.plan.diff.in_place, UnorderedElementsAreArray(plan.diff.in_place));
    EXPECT_THAT(found.plan.diff.stale, UnorderedElementsAreArray(plan.diff.stale));
    EXPECT_THAT(found.plan.diff.of_kube_proxy, UnorderedElementsAreArray(plan.diff.of_kube_proxy));
    EXPECT_EQ(plan.diff.of_kube_proxy.empty(), mode == Mode::kLegacy);
    EXPECT_THAT(found.plan.diff.findings, UnorderedElementsAreArray(plan.diff.findings));
    EXPECT_THAT(found.plan.claimed_by_kube_proxy,
                UnorderedElementsAreArray(plan.claimed_by_kube_proxy));
    EXPECT_THAT(found.plan.with_services, AllOf(SizeIs(2), plan.with_services));
    EXPECT_THAT(found.plan.foreign_jumps, UnorderedElementsAreArray(plan.foreign_jumps));
    EXPECT_EQ(found.plan.martians, plan.martians);
  }
}

TEST_F(ReconcilerFamiliesTest, ReadOneByOneTheyProveThatThereAreMatchesToo) {
  ASSERT_THAT(Sync(Mode::kCleanup).FirstError(), IsOk());
  ReadsBy apart(&kernel_, ReadsFamiliesApart(kernel_));
  SupportSource support = NoXt();
  const SyncReport report = Reconciler(&apart, time_.clock(), &support).Sync(Both(Mode::kCleanup));
  EXPECT_TRUE(report.plan.diff.support_disproved);
  EXPECT_TRUE(support.known().xt);
}

// A table that cannot be written does not keep the other tables of its family from their
// rules.

constexpr Table kTables[] = {Table::kFilter, Table::kNat, Table::kMangle};

PolicyInput Marking(int drop_bit) {
  return Wanting(Mode::kLegacy, netlink::kFamilies, {.drop = drop_bit});
}

// As the backend of iptables-legacy: tables are committed one by one, in the order of PlanRestore,
// until one is refused.
class WritesTablesApart : public RefusesFamily {
 public:
  using RefusesFamily::RefusesFamily;
  bool spans_families() const override { return false; }
  absl::Status Apply(const netlink::Transaction& transaction) override {
    const std::function<bool(Table, bool)> parts[] = {
        [](Table table, bool /*removes*/) { return table == Table::kMangle; },
        [](Table table, bool removes) { return table == Table::kFilter && !removes; },
        [](Table table, bool /*removes*/) { return table == Table::kNat; },
        [](Table table, bool removes) { return table == Table::kFilter && removes; }};
    for (const Family family : netlink::kFamilies) {
      for (const auto& is_in : parts) {
        netlink::Transaction part = {.generation = Read({})->generation, .operations = {}};
        for (const netlink::Operation& operation : transaction.operations) {
          const netlink::ChainId& chain = netlink::ChainOf(operation);
          const bool removes = std::holds_alternative<netlink::DeleteRule>(operation);
          if (chain.family == family && is_in(chain.table, removes)) {
            part.operations.push_back(operation);
          }
        }
        if (absl::Status status = RefusesFamily::Apply(part); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }
};

TEST(WritesTablesApartTest, ReportsNothingDoneThatWasRestrained) {
  FakeBackend kernel;
  FakeTime time;
  FamilyRefusal refusal{.family = Family::kIPv6};
  WritesTablesApart legacy(&kernel, &refusal);
  const auto nat_alone = [](const Plan& plan) { return OfTable(plan.diff.changes, Table::kNat); };
  const SyncReport report = Reconciler(&legacy, time.clock()).Sync(Both(Mode::kLegacy), nat_alone);
  EXPECT_EQ(report.applied, OfTable(report.applied, Table::kNat));
  EXPECT_THAT(report.applied, Not(IsEmpty()));
}

template <typename Backend>
class ReconcilerTablesTest : public ::testing::Test {
 protected:
  SyncReport Sync(const PolicyInput& desired) {
    return Reconciler(&refusing_, time_.clock()).Sync(desired);
  }
  FakeBackend kernel_;
  FamilyRefusal refusal_{.family = Family::kIPv4, .table = Table::kNat};
  Backend refusing_{&kernel_, &refusal_};
  FakeTime time_;
};
using Backends = ::testing::Types<RefusesFamily, WritesTablesApart>;
TYPED_TEST_SUITE(ReconcilerTablesTest, Backends);

std::vector<Change> OfTable(const std::vector<Change>& changes, Family family, Table table) {
  std::vector<Change> result = changes;
  std::erase_if(result, [&](const Change& change) {
    const netlink::ChainId& chain = netlink::ChainOf(change.operation);
    return chain.family != family || chain.table != table;
  });
  return result;
}

TYPED_TEST(ReconcilerTablesTest, TheOtherTablesGetTheirRulesAndTheReportNamesTheRefusedOne) {
  for (const Family family : netlink::kFamilies) {
    for (const Table table : kTables) {
      FakeBackend kernel;
      FamilyRefusal refusal{.family = family, .table = table};
      TypeParam refusing(&kernel, &refusal);
      const PolicyInput desired = Wanting(Mode::kLegacy, netlink::kFamilies, {});
      const SyncReport report = Reconciler(&refusing, this->time_.clock()).Sync(desired);
      ASSERT_THAT(report.families, SizeIs(2));
      for (const FamilyResult& result : report.families) {
        if (result.family != family) {
          EXPECT_THAT(result.status, IsOk());
          EXPECT_THAT(result.refused, IsEmpty());
          continue;
        }
        EXPECT_THAT(result.refused, ElementsAre(table));
        EXPECT_THAT(result.status.message(), HasSubstr("no such kernel module; refused: ip"));
      }
      const std::vector<Change> missing = ComputeDiff(desired, {}).changes;
      for (const Family each : netlink::kFamilies) {
        for (const Table other : kTables) {
          const bool refused = each == family && other == table;
          EXPECT_EQ(OfTable(ComputeDiff(desired, kernel.state()).changes, each, other).empty(),
                    !refused);
          EXPECT_THAT(OfTable(report.applied, each, other),
                      SizeIs(refused ? 0 : OfTable(missing, each, other).size()));
        }
      }
    }
  }
}

TYPED_TEST(ReconcilerTablesTest, AMarkThatIsStillSetIsStillDropped) {
  for (const Table table : {Table::kNat, Table::kFilter}) {
    FakeBackend kernel;
    FakeTime time;
    ASSERT_THAT(Reconciler(&kernel, time.clock()).Sync(Marking(15)).FirstError(), IsOk());
    FamilyRefusal refusal{.family = Family::kIPv4, .table = table};
    TypeParam refusing(&kernel, &refusal);
    Reconciler reconciler(&refusing, time.clock());
    EXPECT_THAT(reconciler.Sync(Marking(13)).ResultOf(Family::kIPv4).status, Not(IsOk()));
    const auto has = [&](const netlink::ChainId& chain, const char* mark) {
      const std::vector<netlink::ObservedRule>& rules = kernel.state().Find(chain)->rules;
      return std::any_of(rules.begin(), rules.end(), [&](const netlink::ObservedRule& rule) {
        return absl::StrContains(ToString(Family::kIPv4, rule), mark);
      });
    };
    EXPECT_TRUE(has(Nat("KUBE-MARK-DROP"), "0x8000"));
    EXPECT_TRUE(has(Filter("KUBE-FIREWALL"), "0x8000"))
        << "packets that KUBE-MARK-DROP marked pass";
    EXPECT_EQ(has(Filter("KUBE-FIREWALL"), "0x2000"), table != Table::kFilter);
    refusal.refusing = false;
    EXPECT_THAT(reconciler.Sync(Marking(13)).FirstError(), IsOk());
    EXPECT_THAT(ComputeDiff(Marking(13), kernel.state()).changes, IsEmpty());
  }
}

TYPED_TEST(ReconcilerTablesTest, WhatIsOnlyRefusedTogetherIsDoneTableByTable) {
  this->refusal_.refusing = false;
  ASSERT_THAT(this->Sync(Marking(15)).FirstError(), IsOk());
  this->kernel_.FailNextApply(absl::NotFoundError("no such kernel module"));
  PolicyInput desired = Marking(13);
  desired.families = {Family::kIPv4};
  EXPECT_THAT(this->Sync(desired).FirstError(), IsOk());
  EXPECT_THAT(ComputeDiff(desired, this->kernel_.state()).changes, IsEmpty());
}

TYPED_TEST(ReconcilerTablesTest, WhereEveryTableIsRefusedTheFamilyFails) {
  this->refusal_.table.reset();
  const SyncReport report = this->Sync(Wanting(Mode::kCleanup, netlink::kFamilies, {}));
  EXPECT_THAT(report.ResultOf(Family::kIPv4).status, Not(IsOk()));
  EXPECT_EQ(report.ResultOf(Family::kIPv4).status.message(), "no such kernel module");
  EXPECT_THAT(report.ResultOf(Family::kIPv4).refused, ElementsAre(Table::kFilter, Table::kMangle));
  EXPECT_NE(this->kernel_.state().Find(Mangle("KUBE-IPTABLES-HINT", Family::kIPv6)), nullptr);
  EXPECT_EQ(this->kernel_.state().Find(Mangle("KUBE-IPTABLES-HINT")), nullptr);
}

// ---- the order of the tables' transactions, filter, nat, mangle, is that of one family ----

class OneFamilyTest : public ReconcilerFixture {
 protected:
  SyncReport Sync() {
    const Family ipv4[] = {Family::kIPv4};
    return Reconciler(&kernel_, time_.clock()).Sync(Wanting(Mode::kLegacy, ipv4, {}));
  }
};

TEST_F(OneFamilyTest, IsLeftAloneWhereItCannotBeReadBetweenItsTables) {
  kernel_.FailNextApply(absl::NotFoundError("no such kernel module"));
  kernel_.AfterNextRead([](FakeBackend&) {});  // of all
  kernel_.AfterNextRead([](FakeBackend& kernel) {
    kernel.FailNextRead(absl::PermissionDeniedError("no CAP_NET_ADMIN"));
  });
  const SyncReport report = Sync();
  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_NE(kernel_.state().Find(Filter("KUBE-FIREWALL")), nullptr);
  EXPECT_EQ(kernel_.state().Find(Mangle("KUBE-IPTABLES-HINT")), nullptr);
}

TEST_F(OneFamilyTest, IsLeftAloneWhereOneOfItsTablesLacksAMatch) {
  kernel_.FailNextApply(absl::NotFoundError("no such kernel module"));
  absl::Status lacking = absl::NotFoundError("no match");
  netlink::SetMissingExtension(lacking, "comment");
  kernel_.FailNextApply(lacking);
  const SyncReport report = Sync();
  EXPECT_TRUE(report.LacksExtension());
  EXPECT_THAT(report.ResultOf(Family::kIPv4).refused, IsEmpty());
  EXPECT_THAT(kernel_.state().chains, IsEmpty()) << "a hint that iptables can be used";
}

TEST(WaitsForOtherTablesTest, WhatIsNoLongerDesiredOfMarksAndLabelsThatDrop) {
  const Family ipv4[] = {Family::kIPv4};
  const Ruleset desired = DesiredRuleset(Wanting(Mode::kLegacy, ipv4, {.drop = 15}, ConnLabels{}));
  const ConnLabels labels;
  const auto waits = [&](const netlink::ChainId& chain, const netlink::Rule& rule) {
    return WaitsForOtherTables(desired, {netlink::DeleteRule{.chain = chain, .rule = rule}, "why"});
  };
  EXPECT_TRUE(waits(Nat("KUBE-MARK-DROP"), SetBit(13)));
  EXPECT_FALSE(waits(Nat("KUBE-MARK-DROP"), SetBit(15))) << "a duplicate";
  EXPECT_FALSE(waits(Nat("KUBE-MARK-MASQ"), SetBit(13)));
  EXPECT_FALSE(waits(Filter("KUBE-MARK-DROP"), SetBit(13)));
  EXPECT_TRUE(waits(Nat("KUBELET-MARK-DROP"), SetLabel(1)));
  EXPECT_FALSE(waits(Nat("KUBELET-MARK-DROP"), SetLabel(labels.drop)));
  EXPECT_FALSE(waits(Filter("KUBELET-MARK-DROP"), SetLabel(1)));
  EXPECT_TRUE(waits(Filter("KUBE-FIREWALL"), DropMarked(13)));
  EXPECT_FALSE(waits(Filter("KUBE-FIREWALL"), DropMarked(15)));
  EXPECT_FALSE(waits(Filter("KUBE-FIREWALL"), BareDrop()));
  EXPECT_FALSE(waits(Filter("INPUT"), DropMarked(13)));
  EXPECT_FALSE(waits(Nat("KUBE-FIREWALL"), DropMarked(13)));
  EXPECT_TRUE(waits(Filter("KUBELET-FIREWALL"), DropLabelled(1)));
  EXPECT_FALSE(waits(Filter("KUBELET-FIREWALL"), DropLabelled(labels.drop)));
  EXPECT_FALSE(waits(Filter("OUTPUT"), DropLabelled(1)));
  const netlink::AddRule add = {.chain = Nat("KUBE-MARK-DROP"), .rule = SetBit(13)};
  EXPECT_FALSE(WaitsForOtherTables(desired, {add, "why"}));
}

}  // namespace
}  // namespace kipt::agent::reconciler_families_test
