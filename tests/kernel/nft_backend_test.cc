// SPDX-License-Identifier: Apache-2.0
//
// Facts about nf_tables that no fake can vouch for.
#include <unistd.h>

#include <future>
#include <stop_token>
#include <thread>

#include "tests/kernel/nft_fixture.h"
#include "tests/support/background_program.h"
#include "tests/support/foreign_writer.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

// Else the monitor would take the other program's commit for ours.
TEST_F(NftBackendTest, ATransactionThatIsRefusedHidesNoCommitOfAnotherProgram) {
  const ChainId user{Family::kIPv4, Table::kFilter, "USER"};
  const uint32_t generation = Read({user}).generation;
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> monitor =
      backend_->Watch(netlink::WatchMode::kPoll);
  ASSERT_THAT(monitor, IsOk());
  MustRun({"iptables-nft", "-N", "OTHER"});
  EXPECT_FALSE(backend_->Apply({.generation = generation, .operations = {CreateChain{user}}}).ok());
  uint64_t count = 0;
  for (int i = 0; i < 50 && count == 0; ++i) {
    absl::SleepFor(absl::Milliseconds(20));
    const absl::StatusOr<netlink::RulesetChanges> changes = (*monitor)->Drain();
    ASSERT_THAT(changes, IsOk());
    count += changes->count;
  }
  EXPECT_EQ(count, 1U);
}

TEST_F(NftBackendTest, CallsABaseChainHookedWhateverItsPriority) {
  MustRun({"nft", "-f", "-"}, R"(
    table ip filter {
      chain INPUT { type filter hook input priority 10; }
      chain OUTPUT { type filter hook input priority 0; }
      chain FORWARD { }
      chain KUBE-FIREWALL { type filter hook forward priority 0; }
    }
    table ip mangle {
      chain OUTPUT { type filter hook output priority mangle; }
      chain KUBE-IPTABLES-HINT { }
    }
  )");
  const ChainId input{Family::kIPv4, Table::kFilter, "INPUT"};
  const ChainId output{Family::kIPv4, Table::kFilter, "OUTPUT"};
  const ChainId forward{Family::kIPv4, Table::kFilter, "FORWARD"};
  const ChainId mangle_output{Family::kIPv4, Table::kMangle, "OUTPUT"};
  const ChainId firewall{Family::kIPv4, Table::kFilter, "KUBE-FIREWALL"};
  const ChainId hint{Family::kIPv4, Table::kMangle, "KUBE-IPTABLES-HINT"};
  const Snapshot snapshot = Read({input, output, forward, mangle_output, firewall, hint});
  EXPECT_TRUE(snapshot.Find(input)->hooked);
  EXPECT_FALSE(snapshot.Find(output)->hooked) << "on another hook";
  EXPECT_FALSE(snapshot.Find(forward)->hooked) << "on none";
  EXPECT_FALSE(snapshot.Find(mangle_output)->hooked) << "of another type";
  EXPECT_TRUE(snapshot.Find(firewall)->hooked) << "a base chain of another name";
  EXPECT_FALSE(snapshot.Find(hint)->hooked) << "a user chain";
}

TEST_F(NftBackendTest, WakesATableThatIsDormantAndChangesNothingElseOfIt) {
  const ChainId input{Family::kIPv4, Table::kFilter, "INPUT"};
  const auto dormant = [&] {
    const ChainQuery query{.chain = input, .follow = true};
    const absl::StatusOr<Snapshot> snapshot = backend_->Read({&query, 1});
    EXPECT_THAT(snapshot, IsOk());
    return snapshot->dormant;
  };
  const netlink::WakeTable wake{.chain = input, .flags = netlink::kTableDormant};
  MustRun({"nft", "add table ip filter { flags dormant; }"});
  const uint32_t generation = Read({}).generation;
  MustRun({"nft", "delete table ip filter"});
  EXPECT_THAT(backend_->Apply({.generation = generation, .operations = {wake}}),
              StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(RunProgram({"nft", "list", "tables"}).out, "") << "it is not made";
  MustRun({"iptables-nft", "-A", "INPUT", "-j", "ACCEPT"});
  const std::string awake = RunProgram({"nft", "-a", "list", "ruleset"}).out;
  EXPECT_THAT(dormant(), IsEmpty());
  MustRun({"nft", "add table ip filter { flags dormant; }"});
  EXPECT_EQ(dormant().at({Family::kIPv4, Table::kFilter}), netlink::kTableDormant);
  EXPECT_THAT(Apply({wake}), IsOk());
  EXPECT_THAT(dormant(), IsEmpty());
  EXPECT_EQ(RunProgram({"nft", "-a", "list", "ruleset"}).out, awake);
}

TEST_F(NftBackendTest, DistinguishesARuleOfXtablesFromOneThatNeedsNone) {
  const ChainId input{Family::kIPv4, Table::kFilter, "INPUT"};
  MustRun({"iptables-nft", "-A", "INPUT", "-m", "comment", "--comment", "x", "-j", "ACCEPT"});
  MustRun({"nft", "add rule ip filter INPUT counter accept"});
  const Snapshot snapshot = Read({input});
  const std::vector<ObservedRule>& rules = snapshot.Find(input)->rules;
  ASSERT_THAT(rules, SizeIs(2));
  EXPECT_TRUE(rules[0].xt);
  EXPECT_FALSE(rules[1].xt);
}

// A chain that takes longer to read than others need to commit.
class NftBackendStormTest : public NftBackendTest {
 protected:
  void SetUp() override {
    NftBackendTest::SetUp();
    std::vector<Operation> operations = {CreateChain{long_}, CreateChain{short_},
                                         Append(long_, Rule{.target = Jump{"SHORT"}})};
    for (int i = 0; i < kRules; ++i) operations.emplace_back(Append(long_, Rule{}));
    ASSERT_THAT(Apply(std::move(operations)), IsOk());
  }

  absl::StatusOr<Snapshot> ReadBoth() {
    // In this order a move in between shows.
    return backend_->Read({ChainQuery{.chain = short_}, ChainQuery{.chain = long_}});
  }
  // Other programs commit all the time, from now until the result ends.
  static std::jthread Storm() {
    std::promise<void> begun;
    const std::future<void> first = begun.get_future();
    std::jthread storm([begun = std::move(begun)](const std::stop_token& stop) mutable {
      const auto writer = ForeignWriter::Create();
      if (writer.ok()) (void)(*writer)->CommitChain();
      begun.set_value();
      while (writer.ok() && !stop.stop_requested()) (void)(*writer)->CommitChain();
    });
    first.wait();
    return storm;
  }

  static constexpr int kRules = 2'000;
  const ChainId long_{Family::kIPv4, Table::kFilter, "LONG"};
  const ChainId short_{Family::kIPv4, Table::kFilter, "SHORT"};
};

TEST_F(NftBackendStormTest, ItIsReadWhereOthersTouchOtherChains) {
  const std::jthread storm = Storm();
  // It stays in its namespace, whichever the reading thread is in.
  const InNetns elsewhere(NewNetns());
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<Snapshot> whole = ReadBoth();
    ASSERT_THAT(whole, IsOk());
    const std::vector<ObservedRule>& rules = whole->Find(long_)->rules;
    ASSERT_THAT(rules, SizeIs(kRules + 1));
    EXPECT_EQ(*netlink::JumpTarget(rules[0]), "SHORT");
    EXPECT_TRUE(std::is_sorted(rules.begin(), rules.end(),
                               [](const auto& a, const auto& b) { return a.handle < b.handle; }));
  }
  const absl::StatusOr<Snapshot> torn = backend_->ReadTorn({{.chain = long_}}, nullptr);
  ASSERT_THAT(torn, IsOk());
  ASSERT_FALSE(torn->Find(long_)->rules.empty());
  EXPECT_EQ(*netlink::JumpTarget(torn->Find(long_)->rules[0]), "SHORT");
}

// One rule moves from the end of the long chain to the short one and back, one commit each.
TEST_F(NftBackendStormTest, WhatIsReadIsOfOneMoment) {
  const absl::Time begin = absl::Now();
  ASSERT_THAT(ReadBoth(), IsOk());
  const absl::Duration took = absl::Now() - begin;
  std::jthread storm([this, took](const std::stop_token& stop) {
    const auto backend = netlink::NewNftBackend();
    const auto writer = ForeignWriter::Create();
    ASSERT_TRUE(backend.ok() && writer.ok());
    const ChainId* from = &long_;
    const ChainId* to = &short_;
    for (int turn = 0; !stop.stop_requested(); ++turn) {
      // Shorter and longer than a read takes.
      const absl::Time until = absl::Now() + took * (turn * 37 % 100) / 25;
      while (absl::Now() < until) (void)(*writer)->CommitChain();
      const absl::StatusOr<Snapshot> now = (*backend)->Read({ChainQuery{.chain = *from}});
      if (!now.ok()) continue;
      const netlink::RuleHandle last = now->Find(*from)->rules.back().handle;
      const DeleteRule remove = {.chain = *from, .handle = last, .number = 1, .rule = Rule{}};
      if ((*writer)->Commit({Append(*to, Rule{}), remove}).ok()) std::swap(from, to);
    }
  });
  int moves = 0;
  size_t in_short = 0;
  const absl::Time deadline = absl::Now() + 5 * testing::kPatience;
  while (moves < 24 && absl::Now() < deadline) {
    const absl::StatusOr<Snapshot> now = ReadBoth();
    if (!now.ok()) {
      EXPECT_THAT(now, StatusIs(absl::StatusCode::kAborted));
      continue;
    }
    moves += now->Find(short_)->rules.size() == in_short ? 0 : 1;
    in_short = now->Find(short_)->rules.size();
    EXPECT_EQ(now->Find(long_)->rules.size() + in_short, kRules + 1U);
  }
  EXPECT_EQ(moves, 24) << "nothing moved, or nothing was read";
}

TEST_F(NftBackendStormTest, ATransactionOfWhatWasReadSurvivesCommitsThatTouchNothingOfIt) {
  struct Row {
    const char* name;
    std::vector<std::string> in_between;
    absl::StatusCode expected = absl::StatusCode::kAborted;
    bool only_of_snapshot = true;
  };
  const std::vector<Row> rows = {
      {"another chain", {"iptables-nft", "-N", "OTHER"}, absl::StatusCode::kOk},
      {"another chain, and more than the snapshot was asked",
       {"iptables-nft", "-X", "OTHER"},
       absl::StatusCode::kAborted,
       false},
      {"a rule of a chain that was read", {"iptables-nft", "-A", "SHORT", "-s", "192.0.2.1"}},
      {"a rule of the long one, which was kept", {"iptables-nft", "-D", "LONG", "2"}},
      {"the table", {"nft", "add", "table", "ip", "filter", "{ flags dormant; }"}},
      {"another table", {"nft", "add", "table", "ip", "own"}, absl::StatusCode::kOk},
      {"the other family", {"ip6tables-nft", "-N", "SHORT"}, absl::StatusCode::kOk},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    absl::StatusOr<Snapshot> now;
    {
      const std::jthread storm = Storm();
      now = ReadBoth();
    }
    ASSERT_THAT(now, IsOk());
    MustRun(row.in_between);
    const absl::Status applied = backend_->Apply(
        Transaction{.generation = now->generation,
                    .operations = {Append(short_, Rule{.target = netlink::Return{}})},
                    .only_of_snapshot = row.only_of_snapshot});
    EXPECT_EQ(applied.code(), row.expected) << applied;
  }
}

// Its event names the new name only, and the long chain is kept.
TEST_F(NftBackendStormTest, AChainThatIsRenamedIsMissing) {
  {
    const std::jthread storm = Storm();
    ASSERT_THAT(ReadBoth(), IsOk());
  }
  MustRun({"iptables-nft", "-E", "SHORT", "OTHER"});
  const absl::StatusOr<Snapshot> now = ReadBoth();
  ASSERT_THAT(now, IsOk());
  EXPECT_EQ(now->Find(short_), nullptr);
  EXPECT_EQ(*netlink::JumpTarget(now->Find(long_)->rules[0]), "OTHER");
}

// The kernel ends a dump before a rule that does not fit a message of 32 KiB, without an error.
TEST_F(NftBackendTest, ARuleThatIsTooLargeToBeListedHidesNoOther) {
  std::vector<std::string> large = {"iptables-nft", "-A", "INPUT"};
  for (int match = 0; match < 18; ++match) {
    large.insert(large.end(),
                 {"-m", "u32", "--u32", "0=0&&4=0&&8=0&&12=0&&16=0&&20=0&&24=0&&28=0&&32=0&&36=0"});
  }
  large.insert(large.end(), {"-j", "ACCEPT"});
  MustRun(large);
  MustRun({"iptables-nft", "-A", "INPUT", "-j", "DROP"});
  const ChainId input{Family::kIPv4, Table::kFilter, "INPUT"};
  const auto incomplete = HasSubstr("listed 0 of 2; one is too large");
  EXPECT_THAT(backend_->Read({{.chain = input}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, incomplete));
  EXPECT_THAT(backend_->ReadTorn({{.chain = input}}, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition, incomplete));
  MustRun({"nft", "-f", "-"}, "add chain ip filter OTHER\nadd chain ip filter MAPS");
  // What else counts as a use of a chain.
  const std::vector<std::string> others = {"jump { drop; accept; }", "goto { drop; }",
                                           "ip saddr vmap { 192.0.2.1 : jump OTHER } drop",
                                           "ip saddr vmap { 192.0.2.1 : goto OTHER } drop"};
  for (const std::string& rule : others) {
    EXPECT_THAT(backend_->TakeSurvey({}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("fewer rules of table ip filter than")))
        << rule;
    MustRun({"nft", absl::StrCat("add rule ip filter MAPS ", rule)});
  }
  MustRun({"nft", "-f", "-"}, "add table inet fw\nadd chain inet fw OTHER\nadd chain inet fw MAPS");
  for (const std::string& rule : others) {
    MustRun({"iptables-nft", "-F", "INPUT"});
    MustRun({"nft", absl::StrCat("add rule ip filter INPUT ", rule)});
    MustRun({"nft", absl::StrCat("add rule inet fw MAPS ", rule)});
    EXPECT_THAT(backend_->TakeSurvey({}), IsOk()) << rule;
  }
}

// Its rules are counted, and never listed.
TEST_F(NftBackendTest, ATransactionThatIsOpenAndGivenUpHidesNoRule) {
  MustRun({"iptables-nft", "-A", "INPUT", "-j", "ACCEPT"});
  std::string rules = "add chain ip filter MANY\nadd rule ip filter INPUT accept\n";
  for (int i = 0; i < 30000; ++i) {
    absl::StrAppend(&rules, "add rule ip filter MANY ip saddr 10.", i >> 16, ".", i >> 8 & 255, ".",
                    i & 255, " return\n");
  }
  BackgroundProgram checks({"nft", "-c", "-f", "-"}, {}, rules);
  int reads = 0;
  for (; checks.Running(); ++reads) {
    ASSERT_THAT(backend_->Read({{.chain = {Family::kIPv4, Table::kFilter, "INPUT"}}}), IsOk());
    ASSERT_THAT(backend_->TakeSurvey({}), IsOk());
  }
  EXPECT_EQ(checks.Wait(), 0);
  EXPECT_GT(reads, 0);
}

TEST_F(NftBackendTest, TakesAnAnswerThatIsLargerThanItsBuffer) {
  std::string text = "*filter\n:BIG - [0:0]\n";
  for (int i = 0; i < 5000; ++i) {
    absl::StrAppend(&text, "-A BIG -s 10.", i / 250, ".", i % 250, ".1/32 -j DROP\n");
  }
  MustRun({"iptables-nft-restore"}, text + "COMMIT\n");
  const ChainId big{Family::kIPv4, Table::kFilter, "BIG"};
  const Snapshot snapshot = Read({big});
  ASSERT_EQ(snapshot.Find(big)->rules.size(), 5000U);
  for (const ObservedRule& rule : snapshot.Find(big)->rules) ASSERT_NE(rule.rule(), nullptr);
  // And a transaction that is larger than the socket's send buffer.
  std::vector<Operation> removals;
  for (const ObservedRule& rule : snapshot.Find(big)->rules) {
    removals.emplace_back(
        DeleteRule{.chain = big, .handle = rule.handle, .number = 1, .rule = *rule.rule()});
  }
  ASSERT_THAT(Apply(removals), IsOk());
  EXPECT_THAT(Read({big}).Find(big)->rules, IsEmpty());
}

}  // namespace
}  // namespace kipt::testing
