// SPDX-License-Identifier: Apache-2.0
//
// A table that cannot be written does not keep the other tables of its family from their rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "agent/loop/reconciler.h"
#include "agent/policy/rule_forms.h"
#include "netlink/kernel_error.h"
#include "tests/agent/loop/fake_time.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::FakeBackend;
using ::kipt::testing::FamilyRefusal;
using ::kipt::testing::Filter;
using ::kipt::testing::IsOk;
using ::kipt::testing::Mangle;
using ::kipt::testing::Nat;
using ::kipt::testing::RefusesFamily;
using ::kipt::testing::StatusIs;
using netlink::Family;
using netlink::Table;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr Table kTables[] = {Table::kFilter, Table::kNat, Table::kMangle};

PolicyInput Marking(int drop_bit) {
  return ::kipt::testing::Wanting(Mode::kLegacy, netlink::kFamilies, {.drop = drop_bit});
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
      const PolicyInput desired = ::kipt::testing::Wanting(Mode::kLegacy, netlink::kFamilies, {});
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

TYPED_TEST(ReconcilerTablesTest, AMatchThatTheKernelLacksIsNoTablesFault) {
  this->kernel_.LoseXt();
  this->refusal_.refusing = false;
  const SyncReport report =
      this->Sync(::kipt::testing::Wanting(Mode::kLegacy, netlink::kFamilies, {}));
  EXPECT_TRUE(report.LacksExtension());
  EXPECT_EQ(this->kernel_.state().Find(Filter("KUBE-FIREWALL")), nullptr);
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
  const SyncReport report =
      this->Sync(::kipt::testing::Wanting(Mode::kCleanup, netlink::kFamilies, {}));
  EXPECT_THAT(report.ResultOf(Family::kIPv4).status, Not(IsOk()));
  EXPECT_EQ(report.ResultOf(Family::kIPv4).status.message(), "no such kernel module");
  EXPECT_THAT(report.ResultOf(Family::kIPv4).refused, ElementsAre(Table::kFilter, Table::kMangle));
  EXPECT_NE(this->kernel_.state().Find(Mangle("KUBE-IPTABLES-HINT", Family::kIPv6)), nullptr);
  EXPECT_EQ(this->kernel_.state().Find(Mangle("KUBE-IPTABLES-HINT")), nullptr);
}

// ---- the order of the tables' transactions, filter, nat, mangle, is that of one family ----

class OneFamilyTest : public ::testing::Test {
 protected:
  SyncReport Sync() {
    const Family ipv4[] = {Family::kIPv4};
    return Reconciler(&kernel_, time_.clock())
        .Sync(::kipt::testing::Wanting(Mode::kLegacy, ipv4, {}));
  }
  FakeBackend kernel_;
  FakeTime time_;
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
  const Ruleset desired =
      DesiredRuleset(::kipt::testing::Wanting(Mode::kLegacy, ipv4, {.drop = 15}, ConnLabels{}));
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
  EXPECT_FALSE(waits(Filter("KUBE-FIREWALL"), ::kipt::testing::BareDrop()));
  EXPECT_FALSE(waits(Filter("INPUT"), DropMarked(13)));
  EXPECT_FALSE(waits(Nat("KUBE-FIREWALL"), DropMarked(13)));
  EXPECT_TRUE(waits(Filter("KUBELET-FIREWALL"), DropLabelled(1)));
  EXPECT_FALSE(waits(Filter("KUBELET-FIREWALL"), DropLabelled(labels.drop)));
  EXPECT_FALSE(waits(Filter("OUTPUT"), DropLabelled(1)));
  const netlink::AddRule add = {.chain = Nat("KUBE-MARK-DROP"), .rule = SetBit(13)};
  EXPECT_FALSE(WaitsForOtherTables(desired, {add, "why"}));
}

}  // namespace
}  // namespace kipt::agent
