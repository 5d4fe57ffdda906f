// SPDX-License-Identifier: Apache-2.0
//
// What every Monitor promises, tested on those of the fake, nf_tables and legacy iptables.
#include <poll.h>

#include "tests/kernel/backend_world.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

class MonitorContractTest : public BackendContractTest {
 protected:
  void SetUp() override {
    BackendContractTest::SetUp();
    if (HasFatalFailure()) return;
    monitor_ = Watch();
  }
  // The monitor before its backend.
  void TearDown() override { monitor_.reset(); }

  std::unique_ptr<Monitor> Watch(WatchMode mode = WatchMode::kEvents) {
    auto monitor = backend().Watch(mode);
    EXPECT_THAT(monitor, IsOk());
    return monitor.ok() ? *std::move(monitor) : nullptr;
  }

  bool IsReadable() const {
    pollfd file = {.fd = monitor_->fd(), .events = POLLIN, .revents = 0};
    return poll(&file, 1, 0) == 1;
  }

  uint64_t Drain() {
    absl::StatusOr<RulesetChanges> changes = monitor_->Drain();
    EXPECT_THAT(changes, IsOk());
    return changes.ok() ? changes->count : 0;
  }

  std::unique_ptr<Monitor> monitor_;
};

TEST_P(MonitorContractTest, IsReadableOnceAnotherHasCommittedUntilItIsDrained) {
  world().Touch();
  EXPECT_TRUE(IsReadable());
  EXPECT_TRUE(IsReadable()) << "level-triggered";
  EXPECT_GT(Drain(), 0);
  EXPECT_FALSE(IsReadable());
  EXPECT_EQ(Drain(), 0);
  world().Touch();
  EXPECT_TRUE(IsReadable());
  EXPECT_GT(Drain(), 0);
}

TEST_P(MonitorContractTest, DoesNotHearUsRead) {
  Read();
  EXPECT_FALSE(IsReadable());
  world().AppendOpaqueJump("INPUT");
  Drain();
  Read();
  EXPECT_FALSE(IsReadable());
}

class OwnCommitsContractTest : public MonitorContractTest {};

TEST_P(OwnCommitsContractTest, AreNotCounted) {
  ASSERT_THAT(Apply({CreateChain{kUser}, Append(kUser, drop_)}), IsOk());
  EXPECT_EQ(Drain(), 0);
  EXPECT_FALSE(IsReadable());
}

TEST_P(MonitorContractTest, CountsOthersCommitsBetweenOurs) {
  ASSERT_THAT(Apply({CreateChain{kUser}}), IsOk());
  world().Touch();
  ASSERT_THAT(Apply({CreateChain{kOther}}), IsOk());
  EXPECT_GT(Drain(), 0);
}

TEST_P(MonitorContractTest, HearsNothingOfWhatWasBeforeIt) {
  monitor_.reset();
  world().Touch();
  monitor_ = Watch();
  EXPECT_FALSE(IsReadable());
  EXPECT_EQ(Drain(), 0);
  world().Touch();
  EXPECT_GT(Drain(), 0);
}

INSTANTIATE_TEST_SUITE_P(Monitors, MonitorContractTest, ::testing::ValuesIn(AllSubjects()),
                         [](const auto& param_info) { return param_info.param.name; });
INSTANTIATE_TEST_SUITE_P(Monitors, OwnCommitsContractTest, ::testing::ValuesIn(NftSubjects()),
                         [](const auto& param_info) { return param_info.param.name; });

// What every Backend promises of native tables, on the fake and nf_tables. iptables-legacy has
// none, and reports that.

constexpr char kName[] = "guard";
const DeleteNativeTable kDelete = {.family = Family::kIPv4, .name = kName};

NativeTable Guard(std::vector<NativeDrop> rules) {
  return {.family = Family::kIPv4,
          .name = kName,
          .chains = {NativeChain{.name = "input", .hook = 1, .priority = -1, .rules = {rules}},
                     NativeChain{.name = "output", .hook = 3, .priority = -1, .rules = {rules}}}};
}
const NativeDrop kInvalid = {.state_any = 1, .comment = "invalid"};
const NativeDrop kNotDnat = {.state_none = 6, .status_none = 0x20};

class NativeContractTest : public BackendContractTest {
 protected:
  Snapshot ReadNative(const NativeTable& table, std::vector<ChainQuery> queries = {}) {
    absl::StatusOr<Snapshot> snapshot = backend().Read(queries, &table);
    EXPECT_THAT(snapshot, IsOk());
    return snapshot.ok() ? *std::move(snapshot) : Snapshot{};
  }

  absl::Status Commit(Transaction transaction) {
    transaction.generation = Read({}).generation;
    return backend().Apply(transaction);
  }

  // Whether the kernel's table equals `table`.
  bool Exists(const NativeTable& table) {
    return ReadNative(table).native == std::make_optional(ObservedNativeTable());
  }
};

TEST_P(NativeContractTest, ReadsNothingWhereNothingIsAndMakesNothing) {
  const uint32_t generation = Read({}).generation;
  const Snapshot snapshot = ReadNative(Guard({kInvalid}));
  EXPECT_FALSE(snapshot.native.has_value());
  EXPECT_EQ(snapshot.generation, generation);
  EXPECT_EQ(Read({}).generation, generation) << "a read moved the ruleset";
}

TEST_P(NativeContractTest, ReadsWhatWasPut) {
  const NativeTable table = Guard({kInvalid, kNotDnat});
  ASSERT_THAT(Commit({.operations = {PutNativeTable{table}}}), IsOk());
  EXPECT_TRUE(Exists(table));
  EXPECT_EQ(ReadNative(Guard({kInvalid})).generation, Read({}).generation);
  NativeTable other = table;
  other.family = Family::kIPv6;
  EXPECT_FALSE(ReadNative(other).native.has_value());
}

TEST_P(NativeContractTest, IsReadTogetherWithChainsAndOnlyIfAskedFor) {
  const NativeTable table = Guard({kInvalid});
  ASSERT_THAT(
      Commit({.operations = {PutNativeTable{table}, CreateChain{kUser}, Append(kUser, drop_)}}),
      IsOk());
  const Snapshot both = ReadNative(table, {{.chain = kUser}});
  EXPECT_EQ(both.native, std::make_optional(ObservedNativeTable()));
  ASSERT_NE(both.Find(kUser), nullptr);
  EXPECT_THAT(both.Find(kUser)->rules, SizeIs(1));
  EXPECT_EQ(both.generation, Read({}).generation);
  EXPECT_FALSE(Read({kUser}).native.has_value());
  EXPECT_FALSE(Read({}).native.has_value());
}

TEST_P(NativeContractTest, ReplacesWhatExisted) {
  ASSERT_THAT(Commit({.operations = {PutNativeTable{Guard({kInvalid, kNotDnat})}}}), IsOk());
  NativeTable table = Guard({kNotDnat});
  table.chains.erase(table.chains.begin());
  ASSERT_THAT(Commit({.operations = {PutNativeTable{table}}}), IsOk());
  EXPECT_TRUE(Exists(table));
}

TEST_P(NativeContractTest, DeletesIt) {
  ASSERT_THAT(Commit({.operations = {PutNativeTable{Guard({kInvalid})}}}), IsOk());
  ASSERT_THAT(Commit({.operations = {kDelete}}), IsOk());
  EXPECT_FALSE(ReadNative(Guard({kInvalid})).native.has_value());
  EXPECT_THAT(Commit({.operations = {kDelete}}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("deleting the table ip guard")));
}

TEST_P(NativeContractTest, PutsItAndItsRulesOrNothing) {
  EXPECT_THAT(Commit({.operations = {PutNativeTable{Guard({kInvalid})}, CreateChain{kUser},
                                     Append(kUser, jump_)}}),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(ReadNative(Guard({kInvalid})).native.has_value());
  ASSERT_THAT(Commit({.operations = {PutNativeTable{Guard({kInvalid})}, CreateChain{kUser},
                                     Append(kUser, drop_)}}),
              IsOk());
  EXPECT_TRUE(Exists(Guard({kInvalid})));
  EXPECT_EQ(Rules(kUser).size(), 1U);
}

TEST_P(NativeContractTest, PutsRulesAndDeletesTheTableOrNothing) {
  ASSERT_THAT(Commit({.operations = {PutNativeTable{Guard({kInvalid})}}}), IsOk());
  const uint32_t before = Read({}).generation;
  EXPECT_THAT(Commit({.operations = {CreateChain{kUser}, DeleteNativeTable{.name = "other"}}}),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Rules(kUser), ElementsAre("absent"));
  EXPECT_EQ(Read({}).generation, before);
  ASSERT_THAT(Commit({.operations = {CreateChain{kUser}, kDelete}}), IsOk());
  EXPECT_NE(Rules(kUser), std::vector<std::string>{"absent"});
  EXPECT_FALSE(ReadNative(Guard({kInvalid})).native.has_value());
  EXPECT_EQ(Read({}).generation, before + 1) << "not one commit";
}

INSTANTIATE_TEST_SUITE_P(Backends, NativeContractTest, ::testing::ValuesIn(NftSubjects()),
                         [](const auto& param_info) { return param_info.param.name; });

class NoNativeTablesTest : public NativeContractTest {};

TEST_P(NoNativeTablesTest, HasNoneAndRefusesThem) {
  EXPECT_EQ(ReadNative(Guard({kInvalid}), {{.chain = kUser}, {.chain = kInput}}),
            Read({kUser, kInput}));
  EXPECT_FALSE(ReadNative(Guard({kInvalid})).native.has_value());
  EXPECT_THAT(Commit({.operations = {PutNativeTable{Guard({kInvalid})}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no native tables")));
  EXPECT_THAT(Commit({.operations = {CreateChain{kUser}, kDelete}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Rules(kUser), ElementsAre("absent"));
}

INSTANTIATE_TEST_SUITE_P(Backends, NoNativeTablesTest, ::testing::ValuesIn(LegacySubjects()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace kipt::testing
