// SPDX-License-Identifier: Apache-2.0
//
// What is made of answers that the kernel hardly ever gives, and of messages that are not the
// kernel's.
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>

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
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink {
namespace {

using ::kipt::testing::Attr;
using ::kipt::testing::Bytes;
using ::kipt::testing::ChainMessage;
using ::kipt::testing::CutOff;
using ::kipt::testing::Done;
using ::kipt::testing::DumpedRule;
using ::kipt::testing::Fails;
using ::kipt::testing::Frame;
using ::kipt::testing::FromKernel;
using ::kipt::testing::FromProcess;
using ::kipt::testing::Generation;
using ::kipt::testing::HostU32;
using ::kipt::testing::Join;
using ::kipt::testing::MalformedRule;
using ::kipt::testing::Message;
using ::kipt::testing::NftMessage;
using ::kipt::testing::Open;
using ::kipt::testing::Refusal;
using ::kipt::testing::Script;
using ::kipt::testing::ScriptedKernel;
using ::kipt::testing::TableMessage;
using ::kipt::testing::Text;
using ::kipt::testing::Zeros;

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

const std::vector<Frame> kGeneration = {FromKernel(Generation(7))};

struct ErrorRow {
  int error_number;
  absl::StatusCode code;
};

// ---- chains and rules ----

TEST(KernelAnswersTest, OnlyOneErrorSaysThatAChainIsNotThere) {
  const absl::StatusOr<Snapshot> missing =
      Read({kGeneration, {FromKernel(Refusal(ENOENT))}, kGeneration}, /*with_rules=*/false);
  ASSERT_THAT(missing, IsOk());
  EXPECT_THAT(missing->chains, IsEmpty());
  const ErrorRow rows[] = {{EPERM, absl::StatusCode::kPermissionDenied},
                           {ENOMEM, absl::StatusCode::kResourceExhausted},
                           {EINVAL, absl::StatusCode::kInvalidArgument},
                           {EINTR, absl::StatusCode::kAborted},
                           {EIO, absl::StatusCode::kUnknown}};
  for (const ErrorRow& row : rows) {
    SCOPED_TRACE(row.error_number);
    // An interruption is tried again until the script ends.
    const absl::StatusCode code =
        row.code == absl::StatusCode::kAborted ? absl::StatusCode::kDeadlineExceeded : row.code;
    EXPECT_THAT(Read({kGeneration, {FromKernel(Refusal(row.error_number))}, kGeneration}, false),
                StatusIs(code));
    // Whatever becomes of the others.
    for (const uint32_t refused : {0U, 1U}) {
      const std::string there = refused == 0 ? kOther.name : kChain.name;
      EXPECT_THAT(Read({kGeneration,
                        {FromKernel(Refusal(row.error_number, refused)),
                         FromKernel(ChainMessage(there, 1 - refused))},
                        kGeneration},
                       false, {kChain, kOther}),
                  StatusIs(code));
    }
  }
}

TEST(KernelAnswersTest, AChainOfAnotherNameIsNoAnswer) {
  EXPECT_THAT(Read({kGeneration, {FromKernel(ChainMessage("ELSE"))}, kGeneration}, false),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("reading chain ip filter TEST")));
  EXPECT_THAT(Read({kGeneration, {FromKernel(TableMessage()), FromKernel(Done())}}, false),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(KernelAnswersTest, RulesThatWereNotAllReadAreNone) {
  const std::vector<Frame> chain = {FromKernel(ChainMessage("TEST"))};
  const absl::StatusOr<Snapshot> whole =
      Read({kGeneration, chain, {FromKernel(DumpedRule()), FromKernel(Done())}, kGeneration}, true);
  ASSERT_THAT(whole, IsOk());
  EXPECT_THAT(whole->Find(kChain)->rules, SizeIs(1));
  EXPECT_THAT(
      Read({kGeneration, chain, {FromKernel(MalformedRule()), FromKernel(Done())}, kGeneration},
           true),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the rules of chain")));
  for (const Bytes& end : {Done(ENOMEM), Refusal(ENOMEM)}) {
    EXPECT_THAT(
        Read({kGeneration, chain, {FromKernel(DumpedRule()), FromKernel(end)}, kGeneration}, true),
        StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the rules of chain")));
  }
}

TEST(KernelAnswersTest, ChainsOnTheWayThatWereNotAllReadAreNone) {
  Bytes jump = kipt::testing::RuleMessage(Family::kIPv4, {kipt::testing::Verdict(-3, "A")});
  jump[6] = NLM_F_MULTI;
  const std::vector<Frame> rules = {FromKernel(jump), FromKernel(Done())};
  const std::vector<Frame> no_rules = {FromKernel(Done())};
  const auto table = [](uint32_t flags) {
    return std::vector<Frame>{FromKernel(
        NftMessage(NFT_MSG_NEWTABLE, 0, 0,
                   Join({Attr(NFTA_TABLE_NAME, Text("filter")), Attr(NFTA_TABLE_FLAGS, flags)})))};
  };
  const auto read = [&](const std::vector<Frame>& of_table, const std::vector<Frame>& of_a) {
    const ScriptedKernel kernel(
        Script({kGeneration,
                {FromKernel(ChainMessage("TEST", 0)), FromKernel(ChainMessage("OTHER", 1))},
                rules,
                no_rules,
                of_table,
                of_a,
                kGeneration}));
    return Open()->Read(
        std::vector<ChainQuery>{{.chain = kChain, .follow = true}, {.chain = kOther}});
  };
  const absl::StatusOr<Snapshot> whole = read(table(0), rules);
  ASSERT_THAT(whole, IsOk());
  EXPECT_THAT(whole->Find({Family::kIPv4, Table::kFilter, "A"})->rules, SizeIs(1));
  EXPECT_THAT(whole->dormant, IsEmpty());
  EXPECT_THAT(read({FromKernel(Refusal(EPERM))}, rules),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("reading table ip filter")));
  EXPECT_THAT(
      read(table(0), {FromKernel(Refusal(ENOMEM))}),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the rules of chain ip filter A")));
  const absl::StatusOr<Snapshot> dormant = read(table(1), rules);
  ASSERT_THAT(dormant, IsOk());
  EXPECT_THAT(dormant->dormant, SizeIs(1));
}

TEST(KernelAnswersTest, AChainThatIsAskedForTwiceIsReadOnce) {
  const absl::StatusOr<Snapshot> snapshot =
      Read({kGeneration,
            {FromKernel(ChainMessage("TEST", 0)), FromKernel(ChainMessage("TEST", 1))},
            {FromKernel(DumpedRule()), FromKernel(Done())},
            kGeneration},
           true, {kChain, kChain});
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_THAT(snapshot->Find(kChain)->rules, SizeIs(1));
}

TEST(KernelAnswersTest, AChainThatCannotBeIsNotAskedFor) {
  const ChainId too_long{Family::kIPv4, Table::kFilter, std::string(300, 'x')};
  EXPECT_THAT(Read({kGeneration}, false, {too_long}), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(KernelAnswersTest, ADumpThatSomebodyWroteIntoIsReadAgain) {
  const std::vector<Frame> chain = {FromKernel(ChainMessage("TEST"))};
  const std::vector<Frame> rule = {FromKernel(DumpedRule()), FromKernel(Done())};
  Bytes other = DumpedRule();
  const Bytes handle = Join({kipt::testing::HostU16(12), kipt::testing::HostU16(NFTA_RULE_HANDLE),
                             kipt::testing::U32(0), kipt::testing::U32(7)});
  const auto place = std::search(other.begin(), other.end(), handle.begin(), handle.end());
  ASSERT_NE(place, other.end());
  place[11] = 8;
  const std::vector<std::vector<Frame>> torn = {
      {FromKernel(Done(0, NLM_F_DUMP_INTR))},
      {FromKernel(DumpedRule()), FromKernel(DumpedRule()), FromKernel(Done())},  // one came twice
      {FromKernel(DumpedRule()), FromKernel(other), FromKernel(DumpedRule()), FromKernel(Done())},
  };
  for (const std::vector<Frame>& first : torn) {
    const absl::StatusOr<Snapshot> snapshot =
        Read({kGeneration, chain, first, kGeneration, chain, rule, kGeneration}, true);
    ASSERT_THAT(snapshot, IsOk());
    EXPECT_THAT(snapshot->Find(kChain)->rules, SizeIs(1));
  }
  // A commit that shows in the generation alone.
  const absl::StatusOr<Snapshot> snapshot = Read({kGeneration,
                                                  chain,
                                                  rule,
                                                  {FromKernel(Generation(8))},
                                                  {FromKernel(Generation(8))},
                                                  {FromKernel(Refusal(ENOENT))},
                                                  {FromKernel(Generation(8))}},
                                                 true);
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(snapshot->generation, 8U);
  EXPECT_THAT(snapshot->chains, IsEmpty());
}

// ---- the survey ----

TEST(KernelAnswersTest, ASurveyOfWhatIsGoneIsAbortedAndOtherErrorsAreWhatTheyAre) {
  const ErrorRow rows[] = {{ENOENT, absl::StatusCode::kAborted},
                           {EPERM, absl::StatusCode::kPermissionDenied},
                           {ENOMEM, absl::StatusCode::kResourceExhausted}};
  const std::vector<std::vector<Frame>> answers = {
      kGeneration,
      {FromKernel(TableMessage()), FromKernel(Done())},
      {FromKernel(ChainMessage("TEST", 0, NLM_F_MULTI)), FromKernel(Done())},
      {FromKernel(DumpedRule()), FromKernel(Done())},
      kGeneration};
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
        refused[step] = {FromKernel(end)};
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
    absl::StatusCode code;
  };
  const Row rows[] = {
      {"interrupted", {FromKernel(Done(0, NLM_F_DUMP_INTR))}, absl::StatusCode::kAborted},
      {"without its end", {FromKernel(DumpedRule())}, absl::StatusCode::kDeadlineExceeded},
      {"lost", {Fails(ENOBUFS)}, absl::StatusCode::kResourceExhausted},
      {"malformed", {FromKernel(MalformedRule()), FromKernel(Done())}, absl::StatusCode::kDataLoss},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const ScriptedKernel kernel(
        Script({kGeneration,
                {FromKernel(TableMessage()), FromKernel(Done())},
                {FromKernel(ChainMessage("TEST", 0, NLM_F_MULTI)), FromKernel(Done())},
                row.rules,
                kGeneration}));
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
    absl::StatusCode code = absl::StatusCode::kOk;
  };
  const std::vector<Frame> missing = {FromKernel(Refusal(ENOENT))};
  const Row rows[] = {
      {"missing", {kGeneration, missing, kGeneration}},
      {"not permitted",
       {kGeneration, {FromKernel(Refusal(EPERM))}, kGeneration},
       absl::StatusCode::kPermissionDenied},
      // Read again, and missing then.
      {"gone before its rules were read",
       {kGeneration, kMineAnswer, missing, kGeneration, missing, kGeneration}},
      {"changed while its rules were read",
       {kGeneration,
        kMineAnswer,
        {FromKernel(Done(0, NLM_F_DUMP_INTR))},
        kGeneration,
        missing,
        kGeneration}},
      {"its rules are not told",
       {kGeneration, kMineAnswer, {FromKernel(Refusal(ENOMEM))}, kGeneration},
       absl::StatusCode::kResourceExhausted},
      {"the answer about its rules is lost",
       {kGeneration, kMineAnswer, {Fails(ENOBUFS)}, kGeneration},
       absl::StatusCode::kResourceExhausted},
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
  const std::vector<Frame> missing = {FromKernel(Refusal(ENOENT))};
  const std::vector<Frame> no_rules = {FromKernel(Done())};
  const std::vector<Frame> chain = {FromKernel(ChainMessage("TEST"))};
  const std::vector<Frame> later = {FromKernel(Generation(8))};
  struct Row {
    const char* name;
    std::vector<std::vector<Frame>> first;
    std::vector<std::vector<Frame>> second;
    bool exists = false;
  };
  const Row rows[] = {
      {"made meanwhile", {missing, chain}, {kMineAnswer, no_rules, chain}, true},
      {"removed meanwhile", {kMineAnswer, no_rules, chain}, {missing, chain}},
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
  const ScriptedKernel kernel(Script({kGeneration, {FromKernel(Generation(8))}}));
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
  const ScriptedKernel kernel(
      Script({{FromProcess(Refusal(EPERM, 1))}, {FromKernel(Generation(8))}}));
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
  const ScriptedKernel kernel({FromKernel(event)});
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
    absl::StatusCode code = absl::StatusCode::kDataLoss;
  };
  const Bytes whole = Generation(7);
  // Of a request that was given up on: its answer may still be in the queue.
  const Bytes old = Generation(6, 0xffff'fff0);
  const Row rows[] = {
      {"an answer", {FromKernel(whole)}, absl::StatusCode::kOk},
      {"behind an old one", {FromKernel(old), FromKernel(whole)}, absl::StatusCode::kOk},
      {"behind one in the same datagram", {FromKernel(Join({old, whole}))}, absl::StatusCode::kOk},
      {"followed by another", {FromKernel(Join({whole, Generation(8)}))}, absl::StatusCode::kOk},
      {"after an interruption", {Fails(EINTR), FromKernel(whole)}, absl::StatusCode::kOk},
      {"nothing", {}, absl::StatusCode::kDeadlineExceeded},
      {"an old one only", {FromKernel(old)}, absl::StatusCode::kDeadlineExceeded},
      {"cut off", {CutOff(whole)}},
      {"to what was not asked", {FromKernel(Generation(7, 1))}},
      {"with bytes behind it", {FromKernel(Join({whole, {1}}))}},
      {"shorter than it says", {FromKernel(Bytes(whole.begin(), whole.end() - 4))}},
      {"lost", {Fails(ENOBUFS), FromKernel(whole)}, absl::StatusCode::kResourceExhausted},
      {"of another kind", {FromKernel(ChainMessage("7"))}},
      {"refused", {FromKernel(Refusal(EPERM))}, absl::StatusCode::kPermissionDenied},
      {"unknown to the kernel", {FromKernel(Refusal(EINVAL))}, absl::StatusCode::kUnavailable},
      {"an error that is none", {FromKernel(Refusal(-5))}, absl::StatusCode::kUnknown},
      {"an error that is too short",
       {FromKernel(Message(NLMSG_ERROR, 0, 0, HostU32(0)))},
       absl::StatusCode::kUnknown},
      {"success and nothing else", {FromKernel(Refusal(0))}},
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
    absl::StatusCode code = absl::StatusCode::kAborted;
  };
  const std::vector<Frame> moved = {FromKernel(Generation(8))};
  const Row rows[] = {
      {"done", {{}, moved}, absl::StatusCode::kOk},
      {"acknowledged", {{FromKernel(Refusal(0, 1))}, moved}, absl::StatusCode::kOk},
      {"refused", {{FromKernel(Refusal(EPERM, 1))}}, absl::StatusCode::kPermissionDenied},
      {"refused by what comes late",
       {{FromKernel(Refusal(0, 1)), FromKernel(Refusal(EPERM, 2))}},
       absl::StatusCode::kPermissionDenied},
      {"not done, and no word of it", {{}, kGeneration}},
      {"the answer lost, not done",
       {{Fails(ENOBUFS)}, kGeneration},
       absl::StatusCode::kResourceExhausted},
      {"the answer lost, perhaps done", {{Fails(ENOBUFS)}, moved}},
      {"the answer cut off, perhaps done", {{CutOff(Refusal(EPERM, 1))}, moved}},
      {"the generation is reported at the third attempt",
       {{}, {Fails(ENOBUFS)}, {Fails(ENOBUFS)}, moved},
       absl::StatusCode::kOk},
      {"the generation is never told",
       {{}, {Fails(ENOBUFS)}, {Fails(ENOBUFS)}, {Fails(ENOBUFS)}, moved}},
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
    EXPECT_EQ(kernel.refusals() > 0, row.code == absl::StatusCode::kPermissionDenied);
    // What is not known to be our commit is another program's.
    const absl::StatusOr<RulesetChanges> changes = monitor->Drain();
    ASSERT_THAT(changes, IsOk());
    EXPECT_EQ(changes->count, status.ok() ? 0U : 1U);
  }
}

// Or a late error of a batch would be taken for an answer to what is asked next.
TEST(KernelAnswersTest, NoTwoMessagesHaveTheSameSequenceNumber) {
  const ScriptedKernel kernel(Script({{}, {FromKernel(Generation(8))}}));
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

}  // namespace
}  // namespace kipt::netlink
