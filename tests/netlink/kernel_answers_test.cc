// SPDX-License-Identifier: Apache-2.0
//
// What is made of answers that the kernel hardly ever gives, and of messages that are not the
// kernel's.
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "netlink/backend.h"
#include "netlink/nft_requests.h"
#include "netlink/socket.h"
#include "tests/fuzz/scripted_kernel.h"
#include "tests/netlink/kernel_script.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink::kernel_answers_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary
using Code = absl::StatusCode;

const ChainId kChain{Family::kIPv4, Table::kFilter, "TEST"};
const ChainId kOther{Family::kIPv4, Table::kFilter, "OTHER"};

absl::StatusOr<Snapshot> Read(const std::vector<std::vector<Frame>>& answers, bool with_rules,
                              const std::vector<ChainId>& chains = {kChain}) {
  const ScriptedKernel kernel(Script(answers));
  std::vector<ChainQuery> queries;
  for (const ChainId& chain : chains) {
    queries.push_back({.chain = chain, .with_rules = with_rules});
  }
  return Open()->Read(queries);
}

const std::vector<Frame> kGeneration = Says(Generation(7));
const std::vector<Frame> kNothing;
const std::vector<Frame> kLost = {Fails(ENOBUFS)};

struct ErrorRow {
  int error_number;
  Code code;
};

// ---- chains and rules ----

TEST(KernelAnswersTest, OnlyOneErrorSaysThatAChainIsNotThere) {
  const absl::StatusOr<Snapshot> missing =
      Read({kGeneration, Says(Refusal(ENOENT)), kGeneration}, /*with_rules=*/false);
  ASSERT_THAT(missing, IsOk());
  EXPECT_THAT(missing->chains, IsEmpty());
  const ErrorRow rows[] = {{EPERM, Code::kPermissionDenied},
                           {ENOMEM, Code::kResourceExhausted},
                           {EINVAL, Code::kInvalidArgument},
                           {EINTR, Code::kAborted},
                           {EIO, Code::kUnknown}};
  for (const ErrorRow& row : rows) {
    SCOPED_TRACE(row.error_number);
    // An interruption is tried again until the script ends.
    const Code code = row.code == Code::kAborted ? Code::kDeadlineExceeded : row.code;
    EXPECT_THAT(Read({kGeneration, Says(Refusal(row.error_number)), kGeneration}, false),
                StatusIs(code));
    // Whatever becomes of the others.
    for (const uint32_t refused : {0U, 1U}) {
      const std::string there = refused == 0 ? kOther.name : kChain.name;
      EXPECT_THAT(Read({kGeneration,
                        Says(Refusal(row.error_number, refused), ChainMessage(there, 1 - refused)),
                        kGeneration},
                       false, {kChain, kOther}),
                  StatusIs(code));
    }
  }
}

TEST(KernelAnswersTest, AChainOfAnotherNameIsNoAnswer) {
  EXPECT_THAT(Read({kGeneration, Says(ChainMessage("ELSE")), kGeneration}, false),
              StatusIs(Code::kDataLoss, HasSubstr("reading chain ip filter TEST")));
  EXPECT_THAT(Read({kGeneration, Says(TableMessage(), Done())}, false), StatusIs(Code::kDataLoss));
}

TEST(KernelAnswersTest, RulesThatWereNotAllReadAreNone) {
  const std::vector<Frame> chain = Says(ChainMessage("TEST"));
  const absl::StatusOr<Snapshot> whole =
      Read({kGeneration, chain, Says(DumpedRule(), Done()), kGeneration}, true);
  ASSERT_THAT(whole, IsOk());
  EXPECT_THAT(whole->Find(kChain)->rules, SizeIs(1));
  for (const auto& rules :
       {Says(MalformedRule(), Done()), Says(MalformedRule(), DumpedRule(), Done())}) {
    EXPECT_THAT(Read({kGeneration, chain, rules, kGeneration}, true),
                StatusIs(Code::kDataLoss, HasSubstr("the rules of chain")));
  }
  for (const Bytes& end : {Done(ENOMEM), Refusal(ENOMEM)}) {
    EXPECT_THAT(Read({kGeneration, chain, Says(DumpedRule(), end), kGeneration}, true),
                StatusIs(Code::kResourceExhausted, HasSubstr("the rules of chain")));
  }
}

TEST(KernelAnswersTest, ChainsOnTheWayThatWereNotAllReadAreNone) {
  Bytes jump = RuleMessage(Family::kIPv4, {Verdict(-3, "A")});
  jump[6] = NLM_F_MULTI;
  const std::vector<Frame> rules = Says(jump, Done());
  const std::vector<Frame> no_rules = Says(Done());
  const auto table = [](uint32_t flags) {
    return Says(
        NftMessage(NFT_MSG_NEWTABLE, 0, 0,
                   Join({Attr(NFTA_TABLE_NAME, Text("filter")), Attr(NFTA_TABLE_FLAGS, flags)})));
  };
  const auto read = [&](const std::vector<Frame>& of_table, const std::vector<Frame>& of_a) {
    const ScriptedKernel kernel(
        Script({kGeneration, Says(ChainMessage("TEST", 0), ChainMessage("OTHER", 1)), rules,
                no_rules, of_table, of_a, kGeneration}));
    return Open()->Read(
        std::vector<ChainQuery>{{.chain = kChain, .follow = true}, {.chain = kOther}});
  };
  const absl::StatusOr<Snapshot> whole = read(table(0), rules);
  ASSERT_THAT(whole, IsOk());
  EXPECT_THAT(whole->Find({Family::kIPv4, Table::kFilter, "A"})->rules, SizeIs(1));
  EXPECT_THAT(whole->dormant, IsEmpty());
  EXPECT_THAT(read(Says(Refusal(EPERM)), rules),
              StatusIs(Code::kPermissionDenied, HasSubstr("reading table ip filter")));
  EXPECT_THAT(read(table(0), Says(Refusal(ENOMEM))),
              StatusIs(Code::kResourceExhausted, HasSubstr("the rules of chain ip filter A")));
  const absl::StatusOr<Snapshot> dormant = read(table(1), rules);
  ASSERT_THAT(dormant, IsOk());
  EXPECT_THAT(dormant->dormant, SizeIs(1));
}

TEST(KernelAnswersTest, AChainThatIsAskedForTwiceIsReadOnce) {
  const absl::StatusOr<Snapshot> snapshot =
      Read({kGeneration, Says(ChainMessage("TEST", 0), ChainMessage("TEST", 1)),
            Says(DumpedRule(), Done()), kGeneration},
           true, {kChain, kChain});
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_THAT(snapshot->Find(kChain)->rules, SizeIs(1));
}

TEST(KernelAnswersTest, AChainThatCannotBeIsNotAskedFor) {
  const ChainId too_long{Family::kIPv4, Table::kFilter, std::string(300, 'x')};
  EXPECT_THAT(Read({kGeneration}, false, {too_long}), StatusIs(Code::kInvalidArgument));
}

TEST(KernelAnswersTest, ADumpThatSomebodyWroteIntoIsReadAgain) {
  const std::vector<Frame> chain = Says(ChainMessage("TEST"));
  const std::vector<Frame> rule = Says(DumpedRule(), Done());
  Bytes other = DumpedRule();
  const Bytes handle = Join({HostU16(12), HostU16(NFTA_RULE_HANDLE), U32(0), U32(7)});
  const auto place = std::search(other.begin(), other.end(), handle.begin(), handle.end());
  ASSERT_NE(place, other.end());
  place[11] = 8;
  const std::vector<std::vector<Frame>> torn = {
      Says(Done(0, NLM_F_DUMP_INTR)),
      Says(DumpedRule(), DumpedRule(), Done()),  // one came twice
      Says(DumpedRule(), other, DumpedRule(), Done()),
  };
  for (const std::vector<Frame>& first : torn) {
    const absl::StatusOr<Snapshot> snapshot =
        Read({kGeneration, chain, first, kGeneration, chain, rule, kGeneration}, true);
    ASSERT_THAT(snapshot, IsOk());
    EXPECT_THAT(snapshot->Find(kChain)->rules, SizeIs(1));
  }
  // A commit that shows in the generation alone.
  const absl::StatusOr<Snapshot> snapshot =
      Read({kGeneration, chain, rule, Says(Generation(8)), Says(Generation(8)),
            Says(Refusal(ENOENT)), Says(Generation(8))},
           true);
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(snapshot->generation, 8U);
  EXPECT_THAT(snapshot->chains, IsEmpty());
}

// ---- the survey ----

TEST(KernelAnswersTest, ASurveyOfWhatIsGoneIsAbortedAndOtherErrorsAreWhatTheyAre) {
  const ErrorRow rows[] = {{ENOENT, Code::kAborted},
                           {EPERM, Code::kPermissionDenied},
                           {ENOMEM, Code::kResourceExhausted}};
  const std::vector<std::vector<Frame>> answers = {
      kGeneration, Says(TableMessage(), Done()), Says(ChainMessage("TEST", 0, NLM_F_MULTI), Done()),
      Says(DumpedRule(), Done()), kGeneration};
  {
    const ScriptedKernel kernel(Script(answers));
    const absl::StatusOr<Survey> survey = Open()->TakeSurvey({});
    ASSERT_THAT(survey, IsOk());
    ASSERT_NE(survey->Find({"ip", "filter"}, "TEST"), nullptr);
    EXPECT_THAT(survey->Find({"ip", "filter"}, "TEST")->rules, SizeIs(1));
  }
  for (const ErrorRow& row : rows) {
    // Of tables, chains, rules.
    for (const size_t step : {1U, 2U, 3U}) {
      SCOPED_TRACE(::testing::Message() << row.error_number << " in step " << step);
      for (const Bytes& end : {Done(row.error_number), Refusal(row.error_number)}) {
        std::vector<std::vector<Frame>> refused = answers;
        refused[step] = Says(end);
        const ScriptedKernel kernel(Script(refused));
        EXPECT_THAT(Open()->TakeSurvey({}), StatusIs(row.code));
      }
    }
  }
}

TEST(KernelAnswersTest, ASurveyIsWholeOrNone) {
  struct Row {
    const char* name;
    std::vector<Frame> rules;
    Code code;
  };
  const Row rows[] = {
      {"interrupted", Says(Done(0, NLM_F_DUMP_INTR)), Code::kAborted},
      {"without its end", Says(DumpedRule()), Code::kDeadlineExceeded},
      {"lost", kLost, Code::kResourceExhausted},
      {"malformed", Says(MalformedRule(), Done()), Code::kDataLoss},
      {"malformed at first", Says(MalformedRule(), DumpedRule(), Done()), Code::kDataLoss},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const ScriptedKernel kernel(
        Script({kGeneration, Says(TableMessage(), Done()),
                Says(ChainMessage("TEST", 0, NLM_F_MULTI), Done()), row.rules, kGeneration}));
    EXPECT_THAT(Open()->TakeSurvey({}), StatusIs(row.code));
  }
}

// ---- the native table ----

const NativeTable kMine = {.family = Family::kIPv4, .name = "mine"};
const std::vector<Frame> kMineAnswer = {
    FromKernel(NftMessage(NFT_MSG_NEWTABLE, 0, 0, Attr(NFTA_TABLE_NAME, Text("mine"))))};

TEST(KernelAnswersTest, ANativeTableIsMissingWhereTheKernelSaysSoAndNothingElse) {
  struct Row {
    const char* name;
    std::vector<std::vector<Frame>> answers;
    Code code = Code::kOk;
  };
  const std::vector<Frame> missing = Says(Refusal(ENOENT));
  const Row rows[] = {
      {"missing", List(kGeneration, missing, kGeneration)},
      {"not permitted", List(kGeneration, Says(Refusal(EPERM)), kGeneration),
       Code::kPermissionDenied},
      // Read again, and missing then.
      {"gone before its rules were read",
       List(kGeneration, kMineAnswer, missing, kGeneration, missing, kGeneration)},
      {"changed while its rules were read",
       List(kGeneration, kMineAnswer, Says(Done(0, NLM_F_DUMP_INTR)), kGeneration, missing,
            kGeneration)},
      {"its rules are refused", List(kGeneration, kMineAnswer, Says(Refusal(ENOMEM)), kGeneration),
       Code::kResourceExhausted},
      {"the answer about its rules is lost", List(kGeneration, kMineAnswer, kLost, kGeneration),
       Code::kResourceExhausted},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const ScriptedKernel kernel(Script(row.answers));
    const absl::StatusOr<Snapshot> snapshot = Open()->Read({}, &kMine);
    EXPECT_EQ(snapshot.status().code(), row.code) << snapshot.status();
    if (snapshot.ok()) {
      EXPECT_FALSE(snapshot->native.has_value());
    }
  }
}

TEST(KernelAnswersTest, ANativeTableIsOfTheGenerationOfTheChains) {
  const std::vector<Frame> missing = Says(Refusal(ENOENT));
  const std::vector<Frame> no_rules = Says(Done());
  const std::vector<Frame> chain = Says(ChainMessage("TEST"));
  const std::vector<Frame> later = Says(Generation(8));
  struct Row {
    const char* name;
    std::vector<std::vector<Frame>> first;
    std::vector<std::vector<Frame>> second;
    bool exists = false;
  };
  const Row rows[] = {
      {"made meanwhile", List(missing, chain), List(kMineAnswer, no_rules, chain), true},
      {"removed meanwhile", List(kMineAnswer, no_rules, chain), List(missing, chain)},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    std::vector<std::vector<Frame>> answers = {kGeneration};
    answers.insert(answers.end(), row.first.begin(), row.first.end());
    answers.insert(answers.end(), {later, later});
    answers.insert(answers.end(), row.second.begin(), row.second.end());
    answers.push_back(later);
    const ScriptedKernel kernel(Script(answers));
    const absl::StatusOr<Snapshot> snapshot =
        Open()->Read({{.chain = kChain, .with_rules = false}}, &kMine);
    ASSERT_THAT(snapshot, IsOk());
    EXPECT_EQ(snapshot->generation, 8U);
    EXPECT_EQ(snapshot->native.has_value(), row.exists);
    EXPECT_THAT(snapshot->chains, SizeIs(1));
    EXPECT_EQ(kernel.left(), 0U);
  }
}

TEST(KernelAnswersTest, OnlyTheGenerationIsAskedForWhereNothingElseIs) {
  const ScriptedKernel kernel(Script({kGeneration, Says(Generation(8))}));
  const auto backend = Open();
  for (const uint32_t generation : {7U, 8U}) {
    const absl::StatusOr<Snapshot> snapshot = backend->Read({});
    ASSERT_THAT(snapshot, IsOk());
    EXPECT_EQ(snapshot->generation, generation);
  }
}

// ---- who answers, and whether that is an answer ----

TEST(KernelAnswersTest, AnotherProcessCannotAnswerInTheKernelsPlace) {
  const ScriptedKernel kernel(
      Script({{FromProcess(Generation(666)), FromKernel(Generation(7))},
              {FromProcess(Refusal(ENOENT)), FromKernel(ChainMessage("TEST"))},
              {FromProcess(Generation(666)), FromKernel(Generation(7))}}));
  const absl::StatusOr<Snapshot> snapshot = Open()->Read({{.chain = kChain, .with_rules = false}});
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(snapshot->generation, 7U);
  EXPECT_THAT(snapshot->chains, SizeIs(1));
}

TEST(KernelAnswersTest, AnotherProcessCannotRefuseABatch) {
  const ScriptedKernel kernel(Script({{FromProcess(Refusal(EPERM, 1))}, Says(Generation(8))}));
  EXPECT_THAT(Open()->Apply({.generation = 7, .operations = {CreateChain{kChain}}}), IsOk());
}

TEST(KernelAnswersTest, AnotherProcessCannotTellOfChanges) {
  const ScriptedKernel kernel({FromProcess(Generation(8)), FromKernel(Generation(9))});
  const auto backend = Open();
  const auto monitor = backend->Watch(WatchMode::kEvents);
  ASSERT_THAT(monitor, IsOk());
  const absl::StatusOr<RulesetChanges> changes = (*monitor)->Drain();
  ASSERT_THAT(changes, IsOk());
  EXPECT_EQ(changes->count, 1U);
}

TEST(KernelAnswersTest, AnEventThatIsTooBigTellsOfACommitAllTheSame) {
  const Bytes event = NftMessage(NFT_MSG_NEWGEN, 0, 0,
                                 Join({Attr(NFTA_GEN_ID, 9), Attr(NFTA_GEN_MAX, Zeros(300))}));
  const ScriptedKernel kernel(Says(event));
  const auto backend = Open();
  const auto monitor = backend->Watch(WatchMode::kEvents);
  ASSERT_THAT(monitor, IsOk());
  const absl::StatusOr<RulesetChanges> changes = (*monitor)->Drain();
  ASSERT_THAT(changes, IsOk());
  EXPECT_EQ(changes->count, 1U);
  EXPECT_EQ(changes->others, 1U);
  EXPECT_THAT(changes->writers, IsEmpty());
}

TEST(KernelAnswersTest, WhatIsNoAnswerIsTakenForNone) {
  struct Row {
    const char* name;
    std::vector<Frame> answer;
    Code code = Code::kDataLoss;
  };
  const Bytes whole = Generation(7);
  // Of a request that was given up on: its answer may still be in the queue.
  const Bytes old = Generation(6, 0xffff'fff0);
  const Row rows[] = {
      {"an answer", Says(whole), Code::kOk},
      {"after an old one", Says(old, whole), Code::kOk},
      {"after one in the same datagram", Says(Join({old, whole})), Code::kOk},
      {"followed by another", Says(Join({whole, Generation(8)})), Code::kOk},
      {"after an interruption", List(Fails(EINTR), FromKernel(whole)), Code::kOk},
      {"nothing", {}, Code::kDeadlineExceeded},
      {"an old one only", Says(old), Code::kDeadlineExceeded},
      {"cut off", List(CutOff(whole))},
      {"to what was not asked", Says(Generation(7, 1))},
      {"with bytes after it", Says(Join({whole, {1}}))},
      {"shorter than it says", Says(Bytes(whole.begin(), whole.end() - 4))},
      {"lost", List(Fails(ENOBUFS), FromKernel(whole)), Code::kResourceExhausted},
      {"of another kind", Says(ChainMessage("7"))},
      {"refused", Says(Refusal(EPERM)), Code::kPermissionDenied},
      {"unknown to the kernel", Says(Refusal(EINVAL)), Code::kUnavailable},
      {"an error that is none", Says(Refusal(-5)), Code::kUnknown},
      {"an error that is too short", Says(Message(NLMSG_ERROR, 0, 0, HostU32(0))), Code::kUnknown},
      {"success and nothing else", Says(Refusal(0))},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const ScriptedKernel kernel(row.answer);
    const auto socket = Socket::Open();
    ASSERT_THAT(socket, IsOk());
    const absl::StatusOr<uint32_t> generation = ReadGeneration(**socket);
    EXPECT_EQ(generation.status().code(), row.code) << generation.status();
    EXPECT_EQ(generation.value_or(7), 7U);
  }
}

// ---- what became of a batch ----

std::unique_ptr<Monitor> WatchAtGeneration7(Backend& backend) {
  const ScriptedKernel kernel(Script({kGeneration}));
  auto monitor = backend.Watch(WatchMode::kPoll);
  EXPECT_THAT(monitor, IsOk());
  return monitor.ok() ? *std::move(monitor) : nullptr;
}

TEST(KernelAnswersTest, ABatchIsDoneWhereNothingRefusesItAndTheGenerationHasMoved) {
  struct Row {
    const char* name;
    std::vector<std::vector<Frame>> answers;
    Code code = Code::kAborted;
  };
  const std::vector<Frame> moved = Says(Generation(8));
  const Row rows[] = {
      {"done", List(kNothing, moved), Code::kOk},
      {"acknowledged", List(Says(Refusal(0, 1)), moved), Code::kOk},
      {"refused", List(Says(Refusal(EPERM, 1))), Code::kPermissionDenied},
      {"refused by what comes late", List(Says(Refusal(0, 1), Refusal(EPERM, 2))),
       Code::kPermissionDenied},
      {"not done, and no word of it", List(kNothing, kGeneration)},
      {"the answer lost, not done", List(kLost, kGeneration), Code::kResourceExhausted},
      {"the answer lost, perhaps done", List(kLost, moved)},
      {"the answer cut off, perhaps done",
       List(std::vector<Frame>{CutOff(Refusal(EPERM, 1))}, moved)},
      {"the generation is reported at the third attempt", List(kNothing, kLost, kLost, moved),
       Code::kOk},
      {"the generation is never reported", List(kNothing, kLost, kLost, kLost, moved)},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const auto backend = Open();
    const std::unique_ptr<Monitor> monitor = WatchAtGeneration7(*backend);
    ASSERT_NE(monitor, nullptr);
    std::vector<std::vector<Frame>> answers = row.answers;
    answers.push_back(moved);
    const ScriptedKernel kernel(Script(answers));
    const absl::Status status =
        backend->Apply({.generation = 7, .operations = {CreateChain{kChain}}});
    EXPECT_EQ(status.code(), row.code) << status;
    EXPECT_FALSE(absl::EndsWith(status.message(), ": ")) << status << ": without a reason";
    // What the fuzzers compare with.
    EXPECT_EQ(kernel.refusals() > 0, row.code == Code::kPermissionDenied);
    // What is not known to be our commit is another program's.
    const absl::StatusOr<RulesetChanges> changes = monitor->Drain();
    ASSERT_THAT(changes, IsOk());
    EXPECT_EQ(changes->count, status.ok() ? 0U : 1U);
  }
}

// Or a late error of a batch would be taken for an answer to what is asked next.
TEST(KernelAnswersTest, NoTwoMessagesHaveTheSameSequenceNumber) {
  const ScriptedKernel kernel(Script({{}, Says(Generation(8))}));
  ASSERT_THAT(Open()->Apply({.generation = 7, .operations = {CreateChain{kChain}}}), IsOk());
  std::vector<uint32_t> sequences;
  for (const std::vector<uint8_t>& datagram : kernel.sent()) {
    const auto* message = reinterpret_cast<const nlmsghdr*>(datagram.data());
    int rest = static_cast<int>(datagram.size());
    for (; IsWhole(message, rest); message = mnl_nlmsg_next(message, &rest)) {
      sequences.push_back(message->nlmsg_seq);
    }
  }
  EXPECT_THAT(sequences, SizeIs(5)) << "begin, table, chain, end, and the generation";
  EXPECT_EQ(std::set<uint32_t>(sequences.begin(), sequences.end()).size(), sequences.size());
}

// ---- surveys and lists of chains ----

using Answers = std::vector<std::vector<Frame>>;

const std::vector<Frame> kTables = Says(TableMessage(), Done());
const std::vector<Frame> kNoRules = Says(Done());

Bytes Chain(const std::vector<Bytes>& attributes) {
  return NftMessage(NFT_MSG_NEWCHAIN, NLM_F_MULTI, 0, Join(attributes));
}
const Bytes kOfFilter = Attr(NFTA_CHAIN_TABLE, Text("filter"));
const Bytes kNamed = Attr(NFTA_CHAIN_NAME, Text("C"));
const Bytes kHook = Attr(NFTA_CHAIN_HOOK, Join({Attr(NFTA_HOOK_HOOKNUM, 1)}));

std::vector<Frame> Dumped(const std::vector<Bytes>& messages) {
  std::vector<Frame> frames;
  for (const Bytes& message : messages) frames.push_back(FromKernel(message));
  frames.push_back(FromKernel(Done()));
  return frames;
}

absl::StatusOr<Survey> Surveyed(const Answers& answers) {
  const ScriptedKernel kernel(Script(answers));
  return Open()->TakeSurvey(nullptr);
}

TEST(NftSurveyAnswersTest, AMalformedMessageIsNoSurvey) {
  const auto malformed = StatusIs(Code::kDataLoss);
  const Bytes no_name = NftMessage(NFT_MSG_NEWTABLE, NLM_F_MULTI, 0, {});
  EXPECT_THAT(Surveyed({kGeneration, Dumped({no_name}), kGeneration}), malformed);
  for (const Bytes& chain : {Chain({kOfFilter}), Chain({kNamed}), Chain({})}) {
    EXPECT_THAT(Surveyed({kGeneration, kTables, Dumped({chain}), kGeneration}), malformed);
  }
}

TEST(NftSurveyAnswersTest, HasEveryTableWhateverItsFamily) {
  const std::pair<uint8_t, std::string> families[] = {{NFPROTO_INET, "inet"},
                                                      {NFPROTO_IPV4, "ip"},
                                                      {NFPROTO_ARP, "arp"},
                                                      {NFPROTO_NETDEV, "netdev"},
                                                      {NFPROTO_BRIDGE, "bridge"},
                                                      {NFPROTO_IPV6, "ip6"},
                                                      {77, "77"}};
  for (const auto& [number, name] : families) {
    Bytes table = TableMessage();
    table[16] = number;
    const absl::StatusOr<Survey> survey =
        Surveyed({kGeneration, Dumped({table}), kNoRules, kGeneration});
    ASSERT_THAT(survey, IsOk()) << name;
    EXPECT_EQ(survey->mode, "nft");
    EXPECT_EQ(survey->generation, 7U);
    ASSERT_THAT(survey->tables, SizeIs(1)) << name;
    EXPECT_EQ(ToString(survey->tables.begin()->first), name + " filter");
  }
}

TEST(NftSurveyAnswersTest, ALaterAnswerDoesNotExcuseAnError) {
  const Bytes second = Chain({kOfFilter, Attr(NFTA_CHAIN_NAME, Text("D"))});
  EXPECT_THAT(Surveyed({kGeneration, kTables, Dumped({Chain({kOfFilter, kNamed}), second}),
                        Says(Refusal(EPERM)), kNoRules, kGeneration}),
              StatusIs(Code::kPermissionDenied));
}

struct PolicyRow {
  std::string name;
  std::vector<Bytes> attributes;
  bool base = false;
  std::string policy = {};
};

TEST(NftSurveyAnswersTest, OnlyABaseChainHasAPolicy) {
  const auto policy = [](uint32_t verdict) { return Attr(NFTA_CHAIN_POLICY, verdict); };
  for (const PolicyRow& row : {
           PolicyRow{"neither", {kOfFilter, kNamed}},
           PolicyRow{"a policy alone", {kOfFilter, kNamed, policy(1)}},
           PolicyRow{"a policy of dropping alone", {kOfFilter, kNamed, policy(0)}},
           PolicyRow{"a hook alone", {kOfFilter, kNamed, kHook}, true},
           PolicyRow{"accept", {kOfFilter, kNamed, kHook, policy(1)}, true, "ACCEPT"},
           PolicyRow{"drop", {kOfFilter, kNamed, kHook, policy(0)}, true, "DROP"},
           PolicyRow{"another", {kOfFilter, kNamed, kHook, policy(3)}, true},
       }) {
    const absl::StatusOr<Survey> survey =
        Surveyed({kGeneration, kTables, Dumped({Chain(row.attributes)}), kNoRules, kGeneration});
    ASSERT_THAT(survey, IsOk()) << row.name;
    const SurveyChain* chain = survey->Find({"ip", "filter"}, "C");
    ASSERT_NE(chain, nullptr) << row.name;
    EXPECT_EQ(chain->base, row.base) << row.name;
    EXPECT_EQ(chain->policy, row.policy) << row.name;
  }
}

TEST(NftSurveyAnswersTest, AChangeMeanwhileIsReportedAsOne) {
  const std::vector<Frame> later = Says(Generation(8));
  EXPECT_THAT(Surveyed({kGeneration, kTables, kNoRules, later}),
              StatusIs(Code::kAborted, "the ruleset changed while it was read"));
  EXPECT_THAT(Surveyed({Says(Refusal(EPERM))}), StatusIs(Code::kPermissionDenied));
}

// ---- the list of chains ----

absl::StatusOr<std::vector<ListedChain>> Listed(const Answers& answers) {
  const ScriptedKernel kernel(Script(answers));
  return ListNftChains(Family::kIPv4);
}

TEST(NftChainAnswersTest, AListThatWasTornIsReadAgainFromTheBeginning) {
  const Bytes chain = Chain({kOfFilter, kNamed, kHook, Attr(NFTA_CHAIN_USE, 5)});
  const std::vector<Frame> torn = Says(chain, Done(0, NLM_F_DUMP_INTR));
  const auto chains = Listed({torn, Dumped({chain})});
  ASSERT_THAT(chains, IsOk());
  ASSERT_THAT(*chains, SizeIs(1));
  EXPECT_EQ((*chains)[0].id.name, "C");
  EXPECT_EQ((*chains)[0].use, 5U);
  EXPECT_TRUE((*chains)[0].base);
  const auto others = Listed({Dumped({Chain({kOfFilter, kNamed})})});
  ASSERT_THAT(others, IsOk());
  ASSERT_THAT(*others, SizeIs(1));
  EXPECT_EQ((*others)[0].use, 0U);
  EXPECT_FALSE((*others)[0].base);
}

TEST(NftChainAnswersTest, TheRestOfTheListIsNotReadAfterTheLastChain) {
  const Bytes used = Chain({kOfFilter, kNamed, Attr(NFTA_CHAIN_USE, 5)});
  const Bytes unused = Chain({kOfFilter, kNamed});
  // The kernel would refuse to go on.
  const ScriptedKernel kernel(Script({{FromKernel(Join({unused, used, unused})), Fails(ENOBUFS)}}));
  const auto chains =
      ListNftChains(Family::kIPv4, [](const ListedChain& chain) { return chain.use > 0; });
  ASSERT_THAT(chains, IsOk());
  EXPECT_THAT(*chains, SizeIs(2));
}

TEST(NftChainAnswersTest, WhatHasNoNameOrIsInNoTableOfOursIsLeftOut) {
  const auto chains = Listed({Dumped({Chain({kOfFilter}), Chain({kNamed}),
                                      Chain({Attr(NFTA_CHAIN_TABLE, Text("else")), kNamed}),
                                      Chain({kOfFilter, kNamed})})});
  ASSERT_THAT(chains, IsOk());
  EXPECT_THAT(*chains, SizeIs(1));
}

TEST(NftChainAnswersTest, AnErrorIsNoList) {
  EXPECT_THAT(Listed({Says(Refusal(EPERM))}),
              StatusIs(Code::kPermissionDenied, HasSubstr("listing the chains")));
  EXPECT_THAT(Listed({{Fails(ENOBUFS)}}), Not(IsOk()));
  WithFailingCall(
      {.number = SYS_socket, .argument = 2, .value = NETLINK_NETFILTER, .error = EPROTONOSUPPORT},
      [] { EXPECT_THAT(ListNftChains(Family::kIPv4).status(), Not(IsOk())); });
}

// ---- chains of the native table ----

TEST(NftNativeAnswersTest, AChainThatIsMissingAltersTheTableAndAnErrorIsNoAnswer) {
  const NativeTable table = {.family = Family::kIPv4,
                             .name = "mine",
                             .chains = {NativeChain{.name = "a"}, NativeChain{.name = "b"}}};
  const std::vector<Frame> answer = {
      FromKernel(NftMessage(NFT_MSG_NEWTABLE, 0, 0,
                            Join({Attr(NFTA_TABLE_NAME, Text("mine")), Attr(NFTA_TABLE_FLAGS, 0),
                                  Attr(NFTA_TABLE_USE, 2)})))};
  const auto chain = [](const std::string& name) {
    return Says(NftMessage(
        NFT_MSG_NEWCHAIN, 0, 0,
        Join(
            {Attr(NFTA_CHAIN_TABLE, Text("mine")), Attr(NFTA_CHAIN_NAME, Text(name)),
             Attr(NFTA_CHAIN_HOOK, Join({Attr(NFTA_HOOK_HOOKNUM, 0), Attr(NFTA_HOOK_PRIORITY, 0)})),
             Attr(NFTA_CHAIN_POLICY, 1), Attr(NFTA_CHAIN_TYPE, Text("filter"))})));
  };
  const std::vector<Frame> missing = Says(Refusal(ENOENT));
  const std::vector<Frame> refused = Says(Refusal(EPERM));
  const std::vector<Frame> lost = {Fails(ENOBUFS)};
  struct Row {
    const char* name;
    std::vector<Frame> first;
    std::vector<Frame> second;
    Code code = Code::kOk;
    bool altered = false;
  };
  const Row rows[] = {
      {"both there", chain("a"), chain("b")},
      {"the first missing", missing, chain("b"), Code::kOk, true},
      {"the second missing", chain("a"), missing, Code::kOk, true},
      {"the first refused", refused, chain("b"), Code::kPermissionDenied},
      {"the second refused", chain("a"), refused, Code::kPermissionDenied},
      {"the first lost", lost, chain("b"), Code::kResourceExhausted},
      {"the second lost", chain("a"), lost, Code::kResourceExhausted},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const ScriptedKernel kernel(
        Script({kGeneration, answer, kNoRules, row.first, row.second, kGeneration}));
    const absl::StatusOr<Snapshot> snapshot = Open()->Read({}, &table);
    ASSERT_EQ(snapshot.status().code(), row.code) << snapshot.status();
    if (!snapshot.ok()) continue;
    ASSERT_TRUE(snapshot->native.has_value());
    EXPECT_EQ(snapshot->native->altered, row.altered);
  }
}

}  // namespace
}  // namespace kipt::netlink::kernel_answers_test
