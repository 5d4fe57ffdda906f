// SPDX-License-Identifier: Apache-2.0
//
// Native tables in the kernel. nft(8) must be able to list, save and load them.
#include <sys/socket.h>

#include <ostream>

#include "netlink/transaction.h"
#include "tests/kernel/nft_fixture.h"
#include "tests/support/ruleset_text.h"

namespace kipt::testing::native_table_test {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

constexpr char kName[] = "own-guard";

std::string FamilyText(Family family) { return std::string(FamilyName(family)); }

// Every test that a rule can have, alone and together, and prefixes of every length.
std::vector<NativeDrop> AllDrops(Family family) {
  const bool ipv4 = family == Family::kIPv4;
  const auto match = [&](const std::string& prefix, bool negated = false) {
    return PrefixMatch{*netlink::ParsePrefix(family, prefix), negated};
  };
  const char* local = ipv4 ? "127.0.0.0/8" : "fd00::/8";
  std::vector<NativeDrop> drops = {
      NativeDrop{},
      NativeDrop{.source = match(local, true),
                 .destination = match(local),
                 .state_any = 0x41,
                 .comment = "packets of no connection"},
      NativeDrop{.source = match(local, true),
                 .destination = match(local),
                 .state_none = 6,
                 .status_none = 0x20,
                 .comment = std::string(127, 'c')},
      NativeDrop{.state_any = 0x4f, .state_none = 0x88, .status_none = 0x123f},
  };
  for (int length = 1; length <= (ipv4 ? 32 : 128); length += ipv4 ? 1 : 5) {
    const std::string text = absl::StrCat(ipv4 ? "172.219.187.221/" : "fedc:ba98::ffff/", length);
    drops.push_back(NativeDrop{.source = match(text, length % 2 == 0)});
  }
  return drops;
}

NativeTable AllOf4Chains(Family family) {
  return {.family = family,
          .name = kName,
          .chains = {NativeChain{.name = "a", .hook = 1, .priority = -1, .rules = AllDrops(family)},
                     NativeChain{.name = "b", .hook = 3, .priority = 0, .rules = {NativeDrop{}}},
                     NativeChain{.name = "c", .hook = 0, .priority = 37, .rules = {}},
                     NativeChain{.name = "d", .hook = 4, .priority = 211, .rules = {}},
                     NativeChain{.name = "e", .hook = 2, .priority = -211, .rules = {}}}};
}

NativeTable Guard() {
  return {
      .family = Family::kIPv4,
      .name = kName,
      .chains = {
          NativeChain{.name = "input",
                      .hook = 1,
                      .priority = -1,
                      .rules = {NativeDrop{.state_any = 1, .comment = "first"},
                                NativeDrop{.state_none = 6}}},
          NativeChain{
              .name = "output", .hook = 3, .priority = -1, .rules = {NativeDrop{.state_any = 1}}}}};
}

class NativeTableTest : public NftBackendTest {
 protected:
  std::optional<ObservedNativeTable> ReadNative(const NativeTable& table) {
    const absl::StatusOr<netlink::Snapshot> snapshot = backend_->Read({}, &table);
    EXPECT_THAT(snapshot, IsOk());
    return snapshot.ok() ? snapshot->native : std::nullopt;
  }

  absl::Status Put(const NativeTable& table) {
    return backend_->Apply(Transaction{.generation = NftBackendTest::Read({}).generation,
                                       .operations = {netlink::PutNativeTable{table}}});
  }

  static std::string List(Family family, bool counters = false) {
    std::vector<std::string> argv = {"nft", "list", "table", FamilyText(family), kName};
    if (!counters) argv.insert(argv.begin() + 1, "--stateless");
    const ProgramResult result = RunProgram(argv);
    EXPECT_EQ(result.exit_code, 0) << result;
    return result.out;
  }
};

class NativeFamilyTest : public NativeTableTest, public ::testing::WithParamInterface<Family> {};

TEST_P(NativeFamilyTest, IsListedByNftAsWePrintIt) {
  const NativeTable table = AllOf4Chains(GetParam());
  ASSERT_THAT(Put(table), IsOk());
  EXPECT_EQ(List(GetParam()), ToString(table));
}

TEST_P(NativeFamilyTest, IsReadTheSameWhenNftHasLoadedOurText) {
  const NativeTable table = AllOf4Chains(GetParam());
  MustRun({"nft", "-f", "-"}, ToString(table));
  EXPECT_EQ(ReadNative(table), ObservedNativeTable());
}

INSTANTIATE_TEST_SUITE_P(Families, NativeFamilyTest, ::testing::ValuesIn(netlink::kFamilies),
                         [](const auto& param_info) { return FamilyText(param_info.param); });

struct Alteration {
  std::string name;
  // Input of `nft -f -` when the table is as desired.
  std::string commands;
};
void PrintTo(const Alteration& row, std::ostream* out) { *out << row.name; }

class AlterationTest : public NativeTableTest, public ::testing::WithParamInterface<Alteration> {};

TEST_P(AlterationTest, ShowsAndIsUndoneByOneCommit) {
  ASSERT_THAT(Put(Guard()), IsOk());
  ASSERT_EQ(ReadNative(Guard()), ObservedNativeTable());
  MustRun({"nft", "-f", "-"}, GetParam().commands);
  EXPECT_NE(ReadNative(Guard()), ObservedNativeTable());
  const uint32_t before = NftBackendTest::Read({}).generation;
  ASSERT_THAT(Put(Guard()), IsOk());
  EXPECT_EQ(ReadNative(Guard()), ObservedNativeTable());
  EXPECT_EQ(NftBackendTest::Read({}).generation, before + 1);
}

INSTANTIATE_TEST_SUITE_P(
    Commands, AlterationTest,
    ::testing::Values(
        Alteration{"ARuleMore", "add rule ip own-guard input ip saddr 10.0.0.1 counter drop"},
        Alteration{"ARuleFirst", "insert rule ip own-guard output accept"},
        Alteration{"NoRules", "flush chain ip own-guard output"},
        Alteration{"NoRulesAtAll", "flush table ip own-guard"},
        Alteration{"NoOutput", "delete chain ip own-guard output"},
        Alteration{"APlainChainMore", "add chain ip own-guard more"},
        Alteration{"ABaseChainMore",
                   "add chain ip own-guard more { type filter hook forward priority 0; }"},
        Alteration{"ADropPolicy", "add chain ip own-guard input { policy drop; }"},
        Alteration{"ASet", "add set ip own-guard more { type ipv4_addr; }"},
        Alteration{"ACounter", "add counter ip own-guard more"},
        Alteration{"Dormant", "add table ip own-guard { flags dormant; }"},
        Alteration{"AnotherPriority",
                   "delete chain ip own-guard output\n"
                   "add chain ip own-guard output { type filter hook output priority 5; }\n"
                   "add rule ip own-guard output ct state invalid counter drop"},
        Alteration{"AnotherHook",
                   "delete chain ip own-guard output\n"
                   "add chain ip own-guard output { type filter hook forward priority -1; }\n"
                   "add rule ip own-guard output ct state invalid counter drop"},
        Alteration{"AnotherType",
                   "delete chain ip own-guard output\n"
                   "add chain ip own-guard output { type route hook output priority -1; }\n"
                   "add rule ip own-guard output ct state invalid counter drop"},
        Alteration{"NoCounter",
                   "flush chain ip own-guard output\n"
                   "add rule ip own-guard output ct state invalid drop"},
        Alteration{"ASetOfStates",
                   "flush chain ip own-guard output\n"
                   "add rule ip own-guard output ct state { invalid, new } counter drop"},
        Alteration{"AnotherComment",
                   "flush chain ip own-guard output\n"
                   "add rule ip own-guard output ct state invalid counter drop comment \"mine\""},
        Alteration{"Replaced", "delete table ip own-guard\nadd table ip own-guard"}),
    [](const auto& row) { return row.param.name; });

TEST_F(NativeTableTest, IsNotAlteredByOtherTables) {
  ASSERT_THAT(Put(Guard()), IsOk());
  MustRun({"nft", "-f", "-"},
          "table ip own-guard2 { set s { type ipv4_addr; }; chain input { type filter hook input "
          "priority -1; policy drop; }; }\n"
          "table ip6 own-guard { chain c { drop; }; }\n");
  EXPECT_EQ(ReadNative(Guard()), ObservedNativeTable());
  // Also where no rule of the table shows that it is the right one.
  NativeTable empty = Guard();
  for (NativeChain& chain : empty.chains) chain.rules.clear();
  ASSERT_THAT(Put(empty), IsOk());
  EXPECT_EQ(ReadNative(empty), ObservedNativeTable());
}

TEST_F(NativeTableTest, IsRefusedByNameWhereTheKernelHasNoSuchHook) {
  NativeTable table = Guard();
  table.chains[1].hook = 7;
  EXPECT_THAT(Put(table), StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("the table ip own-guard, chain output")));
  EXPECT_FALSE(ReadNative(table).has_value());
}

}  // namespace
}  // namespace kipt::testing::native_table_test
