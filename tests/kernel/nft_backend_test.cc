// SPDX-License-Identifier: Apache-2.0
//
// Facts about nf_tables that no fake can vouch for.
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "netlink/backend.h"
#include "tests/kernel/nft_fixture.h"
#include "tests/support/background_program.h"
#include "tests/support/foreign_writer.h"
#include "tests/support/generation_listener.h"
#include "tests/support/matchers.h"
#include "tests/support/raw_rules.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using netlink::AddRule;
using netlink::Backend;
using netlink::ChainId;
using netlink::ChainQuery;
using netlink::CreateChain;
using netlink::DeleteChain;
using netlink::DeleteRule;
using netlink::Family;
using netlink::Jump;
using netlink::ObservedRule;
using netlink::Operation;
using netlink::Rule;
using netlink::Snapshot;
using netlink::Table;
using netlink::Transaction;

TEST_F(NftBackendTest, ReadsTheChainsOnTheWayHoweverFarTheyAre) {
  for (const char* name : {"A", "B", "USER"}) MustRun({"iptables-nft", "-N", name});
  MustRun({"iptables-nft", "-A", "INPUT", "-j", "A"});
  MustRun({"iptables-nft", "-A", "INPUT", "-j", "USER"});
  MustRun({"iptables-nft", "-A", "A", "-j", "B"});
  MustRun({"iptables-nft", "-A", "B", "-j", "DROP"});
  const auto chain = [](const char* name) { return ChainId{Family::kIPv4, Table::kFilter, name}; };
  const std::vector<ChainQuery> queries = {{.chain = chain("INPUT"), .follow = true},
                                           {.chain = chain("USER")}};
  const absl::StatusOr<Snapshot> snapshot = backend_->Read(queries);
  ASSERT_THAT(snapshot, IsOk());
  for (const char* name : {"A", "B"}) {
    ASSERT_NE(snapshot->Find(chain(name)), nullptr) << name;
    EXPECT_THAT(snapshot->Find(chain(name))->rules, SizeIs(1)) << name;
  }
  EXPECT_EQ(backend_->kind(), netlink::BackendKind::kNft);
}

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

TEST_F(NftBackendTest, LeavesTheAdministratorsPolicyAlone) {
  MustRun({"iptables-nft", "-P", "INPUT", "DROP"});
  MustRun({"iptables-nft", "-t", "nat", "-A", "POSTROUTING", "-j", "ACCEPT"});
  const ChainId input{Family::kIPv4, Table::kFilter, "INPUT"};
  const ChainId user{Family::kIPv4, Table::kFilter, "USER"};
  ASSERT_THAT(
      Apply({CreateChain{user}, CreateChain{input}, Append(input, Rule{.target = Jump{"USER"}})}),
      IsOk());
  EXPECT_THAT(Save(Family::kIPv4), HasSubstr(":INPUT DROP "));
}

TEST_F(NftBackendTest, CallsABaseChainHookedWhateverItsPriority) {
  MustRun({"nft", "-f", "-"}, R"(
    table ip filter {
      chain INPUT { type filter hook input priority 10; }
      chain OUTPUT { type filter hook input priority 0; }
      chain FORWARD { }
    }
    table ip mangle {
      chain OUTPUT { type filter hook output priority mangle; }
    }
  )");
  const ChainId input{Family::kIPv4, Table::kFilter, "INPUT"};
  const ChainId output{Family::kIPv4, Table::kFilter, "OUTPUT"};
  const ChainId forward{Family::kIPv4, Table::kFilter, "FORWARD"};
  const ChainId mangle_output{Family::kIPv4, Table::kMangle, "OUTPUT"};
  const Snapshot snapshot = Read({input, output, forward, mangle_output});
  EXPECT_TRUE(snapshot.Find(input)->hooked);
  EXPECT_FALSE(snapshot.Find(output)->hooked) << "on another hook";
  EXPECT_FALSE(snapshot.Find(forward)->hooked) << "on none";
  EXPECT_FALSE(snapshot.Find(mangle_output)->hooked) << "of another type";
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

TEST_F(NftBackendTest, TellsARuleOfXtablesFromOneThatNeedsNone) {
  const ChainId input{Family::kIPv4, Table::kFilter, "INPUT"};
  MustRun({"iptables-nft", "-A", "INPUT", "-m", "comment", "--comment", "x", "-j", "ACCEPT"});
  MustRun({"nft", "add rule ip filter INPUT counter accept"});
  const Snapshot snapshot = Read({input});
  const std::vector<ObservedRule>& rules = snapshot.Find(input)->rules;
  ASSERT_THAT(rules, SizeIs(2));
  EXPECT_TRUE(rules[0].xt);
  EXPECT_FALSE(rules[1].xt);
}

TEST_F(NftBackendTest, ReadsWithoutMakingTables) {
  Read({{Family::kIPv4, Table::kFilter, "INPUT"}, {Family::kIPv6, Table::kNat, "X"}});
  EXPECT_EQ(RunProgram({"nft", "list", "tables"}).out, "");
}

TEST_F(NftBackendTest, CommitsOnceForATransactionAndNeverForAnEmptyOne) {
  auto listener = GenerationListener::Create();
  ASSERT_THAT(listener, IsOk());
  std::vector<Operation> operations = AllOperations(Family::kIPv4);
  for (const Operation& operation : AllOperations(Family::kIPv6)) operations.push_back(operation);
  ASSERT_THAT(Apply(operations), IsOk());
  EXPECT_THAT((*listener)->Drain(), IsOkAndHolds(SizeIs(1)));
  ASSERT_THAT(backend_->Apply(Transaction{}), IsOk());
  Read({{Family::kIPv4, Table::kFilter, "TEST"}});
  EXPECT_THAT((*listener)->Drain(), IsOkAndHolds(IsEmpty()));
  // Refused whole.
  EXPECT_THAT(Apply({CreateChain{{Family::kIPv4, Table::kMangle, "NEW"}},
                     DeleteChain{{Family::kIPv4, Table::kFilter, "ELSE"}}}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT((*listener)->Drain(), IsOkAndHolds(IsEmpty()));
}

// Some 400 rules of other programs, of all kinds that we have no words for.
std::string ForeignRules() {
  std::string text = "*filter\n:FOREIGN - [0:0]\n:SHARED - [0:0]\n";
  const std::vector<std::string> kinds = {
      "-m statistic --mode random --probability 0.33333333349 -j RETURN",
      "-p tcp -m multiport --dports 80,443,8000:8080 -j ACCEPT",
      "-m addrtype --dst-type LOCAL -j FOREIGN",
      "-p udp -m hashlimit --hashlimit-upto 5/sec --hashlimit-burst 5 --hashlimit-mode srcip "
      "--hashlimit-name h -j ACCEPT",
      "-m limit --limit 3/min -j LOG --log-prefix \"foreign: \"",
      "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j REJECT --reject-with tcp-reset",
      "-i eth+ -o lo -p icmp -m icmp --icmp-type 8 -j ACCEPT",
      "-m conntrack --ctstate INVALID --ctproto 6 -j DROP",
      "-m state --state NEW -j ACCEPT",
      "-m comment --comment one -m comment --comment two -j DROP",
      "-m mark --mark 0x1/0x1 -m mark ! --mark 0x2/0x2 -j DROP",
      "-s 10.0.0.0/8 -g FOREIGN",
      "-m owner --uid-owner 0 -j RETURN",
      "-m time --timestart 10:00:00 --timestop 11:00:00 -j DROP",
      "-j NFLOG --nflog-group 1",
      "-d 10.1.2.3/32 -m comment --comment \"ours, but not ours\" -j ACCEPT",
  };
  for (int i = 0; i < 25; ++i) {
    for (const std::string& kind : kinds) {
      const char* chain = kind.find("FOREIGN") == std::string::npos ? "FOREIGN" : "SHARED";
      absl::StrAppend(&text, "-A ", i % 2 == 0 ? "SHARED" : chain, " ", kind, "\n");
    }
  }
  absl::StrAppend(&text,
                  "COMMIT\n*nat\n-A POSTROUTING -s 10.0.0.0/8 ! -o docker0 -p tcp -j MASQUERADE ",
                  "--to-ports 1024-65535\n-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT ",
                  "--to-destination 10.0.0.1:8080\n-A OUTPUT -p tcp -m tcp --dport 81 -j REDIRECT ",
                  "--to-ports 8081\nCOMMIT\n");
  return text;
}

TEST_F(NftBackendTest, LeavesHundredsOfStrangeRulesUnchangedByteForByte) {
  MustRun({"iptables-nft-restore"}, ForeignRules());
  MustRun({"nft", "-f", "-"}, R"(
    table ip native {
      map verdicts { type ipv4_addr : verdict; elements = { 10.0.0.1 : drop } }
      chain INPUT {
                    type filter hook input priority 5;
                    ip saddr vmap @verdicts
                    ct state vmap { established : accept, invalid : drop }
                    tcp dport { 22, 80-90 } ct count over 20 reject
                    numgen random mod 2 0 meta mark set 0x1
      }
    })");
  const std::string saved_before = Save(Family::kIPv4);
  const auto raw_before = ReadRawRules();
  ASSERT_THAT(raw_before, IsOk());
  ASSERT_GE(raw_before->size(), 400U);

  // Every foreign rule has a text, and none is taken for one of ours.
  const ChainId shared{Family::kIPv4, Table::kFilter, "SHARED"};
  const ChainId foreign{Family::kIPv4, Table::kFilter, "FOREIGN"};
  const Snapshot snapshot = Read({shared, foreign});
  for (const ChainId& chain : {shared, foreign}) {
    for (const ObservedRule& rule : snapshot.Find(chain)->rules) {
      EXPECT_EQ(rule.rule(), nullptr) << ToString(Family::kIPv4, rule);
      EXPECT_NE(ToString(Family::kIPv4, rule), "");
    }
  }

  // Among them, ours come and go.
  const std::vector<ObservedRule>& rules = snapshot.Find(shared)->rules;
  std::vector<Operation> operations = AllOperations(Family::kIPv4);
  for (size_t i = 0; i < rules.size(); i += 20) {
    operations.emplace_back(AddRule{.chain = shared,
                                    .rule = Rule{.target = Jump{"TEST"}},
                                    .before = rules[i].handle,
                                    .number = 1});
  }
  ASSERT_THAT(Apply(operations), IsOk());
  const auto raw_between = ReadRawRules();
  ASSERT_THAT(raw_between, IsOk());
  for (const auto& [id, bytes] : *raw_before) {
    const auto now = raw_between->find(id);
    ASSERT_NE(now, raw_between->end()) << id.table << " " << id.chain << " " << id.handle;
    EXPECT_EQ(now->second, bytes);
  }
  EXPECT_GT(raw_between->size(), raw_before->size());

  std::vector<Operation> removals;
  for (const ChainId& chain : {shared, ChainId{Family::kIPv4, Table::kFilter, "TEST"},
                               ChainId{Family::kIPv4, Table::kNat, "TESTNAT"}}) {
    const Snapshot now = Read({chain});
    for (const ObservedRule& rule : now.Find(chain)->rules) {
      if (rule.rule() == nullptr) continue;
      removals.emplace_back(
          DeleteRule{.chain = chain, .handle = rule.handle, .number = 0, .rule = *rule.rule()});
    }
  }
  for (const char* name : {"TEST", "ELSE"}) {
    removals.emplace_back(DeleteChain{{Family::kIPv4, Table::kFilter, name}});
  }
  removals.emplace_back(DeleteChain{{Family::kIPv4, Table::kNat, "TESTNAT"}});
  ASSERT_THAT(Apply(removals), IsOk());
  EXPECT_EQ(Save(Family::kIPv4), saved_before);
  EXPECT_THAT(ReadRawRules(), IsOkAndHolds(*raw_before));
}

// Two chains that always hold one rule together, moved from one to the other all the time; the
// native table exists while B holds it.
TEST_F(NftBackendTest, ReadsOneGenerationWhileOthersWrite) {
  const ChainId a{Family::kIPv4, Table::kFilter, "A"};
  const ChainId b{Family::kIPv4, Table::kFilter, "B"};
  const netlink::NativeTable native = {.family = Family::kIPv4, .name = "with-b"};
  ASSERT_THAT(Apply({CreateChain{a}, CreateChain{b}, Append(a, Rule{})}), IsOk());
  std::atomic<bool> stop = false;
  // The thread inherits this one's namespace.
  std::thread writer([&] {
    const absl::StatusOr<std::unique_ptr<Backend>> backend = netlink::NewNftBackend();
    while (!stop) {
      const absl::StatusOr<Snapshot> now =
          (*backend)->Read({ChainQuery{.chain = a}, ChainQuery{.chain = b}});
      if (!now.ok()) continue;
      const bool in_a = !now->Find(a)->rules.empty();
      const ChainId& from = in_a ? a : b;
      const netlink::Operation put = netlink::PutNativeTable{native};
      const netlink::Operation remove =
          netlink::DeleteNativeTable{.family = native.family, .name = native.name};
      (void)(*backend)->Apply(
          Transaction{.generation = now->generation,
                      .operations = {in_a ? put : remove, Append(in_a ? b : a, Rule{}),
                                     DeleteRule{.chain = from,
                                                .handle = now->Find(from)->rules[0].handle,
                                                .number = 1,
                                                .rule = Rule{}}}});
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  int reads = 0;
  std::set<uint32_t> generations;
  // On a busy machine the writer may begin long after 2000 reads have ended.
  const absl::Time deadline = absl::Now() + testing::kPatience;
  for (int i = 0; i < 2000 || (generations.size() < 2 && absl::Now() < deadline); ++i) {
    const absl::StatusOr<Snapshot> now =
        backend_->Read({ChainQuery{.chain = a}, ChainQuery{.chain = b}}, &native);
    if (!now.ok()) {
      EXPECT_THAT(now, StatusIs(absl::StatusCode::kAborted));
      continue;
    }
    ++reads;
    generations.insert(now->generation);
    EXPECT_EQ(now->Find(a)->rules.size() + now->Find(b)->rules.size(), 1U)
        << "generation " << now->generation << ", read " << i;
    EXPECT_EQ(now->native.has_value(), now->Find(b)->rules.size() == 1U)
        << "generation " << now->generation << ", read " << i;
  }
  stop = true;
  writer.join();
  EXPECT_GT(reads, 0);
  EXPECT_GT(generations.size(), 1U) << "nobody wrote";
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
  // Other programs commit all the time, until the result ends.
  static std::jthread Storm() {
    return std::jthread([](const std::stop_token& stop) {
      const auto writer = ForeignWriter::Create();
      while (writer.ok() && !stop.stop_requested()) (void)(*writer)->CommitChain();
    });
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
    absl::StatusCode wanted = absl::StatusCode::kAborted;
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
    EXPECT_EQ(applied.code(), row.wanted) << applied;
  }
}

TEST_F(NftBackendTest, SaysWhichCapabilityIsMissing) {
  // Capabilities are a thread's own.
  std::thread unprivileged([] {
    __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct data[2] = {};
    ASSERT_EQ(syscall(SYS_capset, &header, data), 0);
    auto backend = netlink::NewNftBackend();
    ASSERT_THAT(backend, IsOk());
    const ChainId chain{Family::kIPv4, Table::kFilter, "X"};
    EXPECT_THAT((*backend)->Read({ChainQuery{.chain = chain}}),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("CAP_NET_ADMIN")));
    EXPECT_THAT((*backend)->Apply(Transaction{.operations = {CreateChain{chain}}}),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("CAP_NET_ADMIN")));
  });
  unprivileged.join();
}

TEST_F(NftBackendTest, StaysInTheNamespaceInWhichItWasCreated) {
  const InNetns inside(NewNetns());
  const ChainId chain{Family::kIPv4, Table::kFilter, "HERE"};
  ASSERT_THAT(Apply({CreateChain{chain}}), IsOk());
  EXPECT_NE(Read({chain}).Find(chain), nullptr);
  EXPECT_EQ(RunProgram({"nft", "list", "tables"}).out, "");
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
