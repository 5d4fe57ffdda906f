// SPDX-License-Identifier: Apache-2.0
//
// How answers that the kernel hardly ever gives are read, and messages that are not the kernel's.
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
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
const std::vector<ChainQuery> kChainAlone = {{.chain = kChain, .with_rules = false}};
const std::vector<ChainQuery> kRules = {{.chain = kChain}};

using Answers = std::vector<std::vector<Frame>>;

const std::vector<Frame> kGeneration = Sent(Generation(7));
const std::vector<Frame> kMoved = Sent(Generation(8));
const std::vector<Frame> kThere = Sent(ChainMessage("TEST"));
const std::vector<Frame> kRule = Sent(DumpedRule(), Done());
const std::vector<Frame> kNoRules = Sent(Done());
const std::vector<Frame> kMissing = Sent(Refusal(ENOENT));
const std::vector<Frame> kInterrupted = Sent(Done(0, NLM_F_DUMP_INTR));
const std::vector<Frame> kNothing;
const std::vector<Frame> kLost = {Fails(ENOBUFS)};

// "PERMISSION_DENIED: reading chain ...".
std::string Refused(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
}

// "7: TEST with 1, a dormant table, a native table.", or the refusal.
std::string Shown(const absl::StatusOr<Snapshot>& snapshot) {
  if (!snapshot.ok()) return Refused(snapshot.status());
  std::vector<std::string> parts;
  for (const auto& [id, chain] : snapshot->chains) {
    parts.push_back(absl::StrCat(id.name, " with ", chain.rules.size()));
  }
  if (!snapshot->dormant.empty()) parts.emplace_back("a dormant table");
  if (snapshot->native) {
    parts.emplace_back(snapshot->native->altered ? "an altered table" : "a native table");
  }
  return absl::StrCat(snapshot->generation, ": ", absl::StrJoin(parts, ", "), ".");
}

// "7: ip filter C with 1, policy DROP.", or the refusal.
std::string Shown(const absl::StatusOr<Survey>& survey) {
  if (!survey.ok()) return Refused(survey.status());
  EXPECT_EQ(survey->mode, "nft");
  std::vector<std::string> parts;
  for (const auto& [table, chains] : survey->tables) {
    parts.push_back(ToString(table));
    for (const auto& [name, chain] : chains) {
      absl::StrAppend(&parts.back(), " ", name, " with ", chain.rules.size(),
                      chain.base ? absl::StrCat(", policy ", chain.policy) : chain.policy);
    }
    if (survey->jumping_maps.contains(table)) parts.back() += ", maps that jump";
  }
  return absl::StrCat(survey->generation, ": ", absl::StrJoin(parts, ", "), ".");
}

struct Row {
  std::string name;
  Answers answers;
  std::string shown;  // its beginning, where it is a refusal
};

void ExpectSnapshots(const std::vector<Row>& rows, const std::vector<ChainQuery>& queries,
                     const NativeTable* native = nullptr) {
  for (const Row& row : rows) {
    const ScriptedKernel kernel(Script(row.answers));
    const absl::StatusOr<Snapshot> snapshot = Open()->Read(queries, native);
    EXPECT_THAT(Shown(snapshot), StartsWith(row.shown)) << row.name;
    if (snapshot.ok()) EXPECT_EQ(kernel.left(), 0U) << row.name;
  }
}

void ExpectSurveys(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const ScriptedKernel kernel(Script(row.answers));
    EXPECT_THAT(Shown(Open()->TakeSurvey(nullptr)), StartsWith(row.shown)) << row.name;
  }
}

// ---- chains and rules ----

TEST(KernelAnswersTest, OnlyOneErrorMeansThatAChainIsMissing) {
  ExpectSnapshots({{"missing", List(kGeneration, kMissing, kGeneration), "7: ."}}, kChainAlone);
  const std::pair<int, std::string> errors[] = {
      {EPERM, "PERMISSION_DENIED"},
      {ENOMEM, "RESOURCE_EXHAUSTED"},
      {EINVAL, "INVALID_ARGUMENT"},
      // Tried again until the script ends.
      {EINTR, "DEADLINE_EXCEEDED"},
      {EIO, "UNKNOWN"},
  };
  for (const auto& [error, code] : errors) {
    ExpectSnapshots({{code, List(kGeneration, Sent(Refusal(error)), kGeneration), code}},
                    kChainAlone);
    // Whatever becomes of the others.
    const std::vector<Frame> first = Sent(Refusal(error), ChainMessage("OTHER", 1));
    const std::vector<Frame> second = Sent(Refusal(error, 1), ChainMessage("TEST"));
    ExpectSnapshots({{code, List(kGeneration, first, kGeneration), code},
                     {code, List(kGeneration, second, kGeneration), code}},
                    {kChainAlone[0], {.chain = kOther, .with_rules = false}});
  }
}

TEST(KernelAnswersTest, AChainOfAnotherNameIsNoAnswer) {
  ExpectSnapshots({{"another chain", List(kGeneration, Sent(ChainMessage("ELSE")), kGeneration),
                    "DATA_LOSS: reading chain ip filter TEST"},
                   {"a table", List(kGeneration, Sent(TableMessage(), Done())), "DATA_LOSS"}},
                  kChainAlone);
}

TEST(KernelAnswersTest, RulesAreAllReadOrNone) {
  Bytes other = DumpedRule();
  const Bytes handle = Join({HostU16(12), HostU16(NFTA_RULE_HANDLE), U32(0), U32(7)});
  const auto place = std::search(other.begin(), other.end(), handle.begin(), handle.end());
  ASSERT_NE(place, other.end());
  place[11] = 8;
  const std::string lost = "DATA_LOSS: reading the rules of chain";
  const std::string refused = "RESOURCE_EXHAUSTED: reading the rules of chain";
  const auto rules = [](const std::vector<Frame>& read) {
    return List(kGeneration, kThere, read, kGeneration);
  };
  const auto again = [](const std::vector<Frame>& first) {
    return List(kGeneration, kThere, first, kGeneration, kThere, kRule, kGeneration);
  };
  ExpectSnapshots(
      {{"one", rules(kRule), "7: TEST with 1."},
       {"malformed", rules(Sent(MalformedRule(), Done())), lost},
       {"malformed at first", rules(Sent(MalformedRule(), DumpedRule(), Done())), lost},
       {"an error at the end", rules(Sent(DumpedRule(), Done(ENOMEM))), refused},
       {"a refusal at the end", rules(Sent(DumpedRule(), Refusal(ENOMEM))), refused},
       // Another program wrote meanwhile.
       {"interrupted", again(kInterrupted), "7: TEST with 1."},
       {"twice the same", again(Sent(DumpedRule(), DumpedRule(), Done())), "7: TEST with 1."},
       {"the same later", again(Sent(DumpedRule(), other, DumpedRule(), Done())),
        "7: TEST with 1."},
       {"a commit that the generation alone shows",
        List(kGeneration, kThere, kRule, kMoved, kMoved, kMissing, kMoved), "8: ."}},
      kRules);
}

TEST(KernelAnswersTest, ChainsOnTheWayThatWereNotAllReadAreNone) {
  Bytes jump = RuleMessage(Family::kIPv4, {Verdict(-3, "A")});
  jump[6] = NLM_F_MULTI;
  const std::vector<Frame> rules = Sent(jump, Done());
  const auto table = [](uint32_t flags) {
    return Sent(
        NftMessage(NFT_MSG_NEWTABLE, 0, 0,
                   Join({Attr(NFTA_TABLE_NAME, Text("filter")), Attr(NFTA_TABLE_FLAGS, flags)})));
  };
  const auto answers = [&](const std::vector<Frame>& of_table, const std::vector<Frame>& of_a) {
    return List(kGeneration, Sent(ChainMessage("TEST", 0), ChainMessage("OTHER", 1)), rules,
                kNoRules, of_table, of_a, kGeneration);
  };
  ExpectSnapshots({{"whole", answers(table(0), rules), "7: A with 1, OTHER with 0, TEST with 1."},
                   {"no table", answers(Sent(Refusal(EPERM)), rules),
                    "PERMISSION_DENIED: reading table ip filter"},
                   {"no rules", answers(table(0), Sent(Refusal(ENOMEM))),
                    "RESOURCE_EXHAUSTED: reading the rules of chain ip filter A"},
                   {"dormant", answers(table(1), rules),
                    "7: A with 1, OTHER with 0, TEST with 1, a dormant table."}},
                  {{.chain = kChain, .follow = true}, {.chain = kOther}});
}

TEST(KernelAnswersTest, AChainIsAskedForOnceIfItCanBe) {
  const std::vector<Frame> both = Sent(ChainMessage("TEST", 0), ChainMessage("TEST", 1));
  ExpectSnapshots({{"twice", List(kGeneration, both, kRule, kGeneration), "7: TEST with 1."}},
                  {kRules[0], kRules[0]});
  ExpectSnapshots({{"too long", List(kGeneration), "INVALID_ARGUMENT"}},
                  {{.chain = {Family::kIPv4, Table::kFilter, std::string(300, 'x')}}});
  const std::vector<ChainQuery> none;
  ExpectSnapshots({{"none", List(kGeneration), "7: ."}, {"none", List(kMoved), "8: ."}}, none);
}

// ---- the survey ----

const std::vector<Frame> kTables = Sent(TableMessage(), Done());

Bytes Chain(const std::vector<Bytes>& attributes) {
  return NftMessage(NFT_MSG_NEWCHAIN, NLM_F_MULTI, 0, Join(attributes));
}
const Bytes kOfFilter = Attr(NFTA_CHAIN_TABLE, Text("filter"));
const Bytes kNamed = Attr(NFTA_CHAIN_NAME, Text("C"));
const Bytes kHook = Attr(NFTA_CHAIN_HOOK, Join({Attr(NFTA_HOOK_HOOKNUM, 1)}));

TEST(NftSurveyAnswersTest, OfWhatIsGoneIsAbortedAndOtherErrorsAreWhatTheyAre) {
  const Answers answers = {kGeneration, kTables, Sent(Chain({kOfFilter, kNamed}), Done()), kRule,
                           kGeneration};
  ExpectSurveys({{"whole", answers, "7: ip filter C with 1."}});
  const std::pair<int, std::string> errors[] = {
      {ENOENT, "ABORTED"}, {EPERM, "PERMISSION_DENIED"}, {ENOMEM, "RESOURCE_EXHAUSTED"}};
  for (const auto& [error, code] : errors) {
    // Of tables, chains, rules.
    for (const size_t step : {1U, 2U, 3U}) {
      for (const Bytes& end : {Done(error), Refusal(error)}) {
        Answers refused = answers;
        refused[step] = Sent(end);
        ExpectSurveys({{absl::StrCat(code, " in step ", step), refused, code}});
      }
    }
  }
}

TEST(NftSurveyAnswersTest, IsWholeOrNone) {
  const std::vector<Frame> chain = Sent(Chain({kOfFilter, kNamed}), Done());
  const auto rules = [&](const std::vector<Frame>& read) {
    return List(kGeneration, kTables, chain, read, kGeneration);
  };
  const auto chains = [](const Bytes& one) {
    return List(kGeneration, kTables, Sent(one, Done()), kGeneration);
  };
  const std::vector<Frame> two = Sent(Chain({kOfFilter, kNamed}),
                                      Chain({kOfFilter, Attr(NFTA_CHAIN_NAME, Text("D"))}), Done());
  const Bytes nameless = NftMessage(NFT_MSG_NEWTABLE, NLM_F_MULTI, 0, {});
  ExpectSurveys({
      {"interrupted", rules(kInterrupted), "ABORTED"},
      {"without its end", rules(Sent(DumpedRule())), "DEADLINE_EXCEEDED"},
      {"lost", rules(kLost), "RESOURCE_EXHAUSTED"},
      {"malformed", rules(Sent(MalformedRule(), Done())), "DATA_LOSS"},
      {"malformed at first", rules(Sent(MalformedRule(), DumpedRule(), Done())), "DATA_LOSS"},
      {"a table without a name", List(kGeneration, Sent(nameless, Done()), kGeneration),
       "DATA_LOSS"},
      {"a chain without a name", chains(Chain({kOfFilter})), "DATA_LOSS"},
      {"a chain without a table", chains(Chain({kNamed})), "DATA_LOSS"},
      {"a chain without anything", chains(Chain({})), "DATA_LOSS"},
      {"an error, and an answer after it",
       List(kGeneration, kTables, two, Sent(Refusal(EPERM)), kNoRules, kGeneration),
       "PERMISSION_DENIED"},
      {"changed meanwhile", List(kGeneration, kTables, kNoRules, kMoved),
       "ABORTED: the ruleset changed while it was read"},
      {"not permitted", List(Sent(Refusal(EPERM))), "PERMISSION_DENIED"},
  });
}

TEST(KernelAnswersTest, ABaseChainThatIsDeletedMeanwhileIsMissing) {
  const std::vector<Frame> base = Sent(NftMessage(
      NFT_MSG_NEWCHAIN, 0, 0,
      Join({kOfFilter, Attr(NFTA_CHAIN_NAME, Text("TEST")), kHook, Attr(NFTA_CHAIN_USE, 2)})));
  ExpectSnapshots(
      {{"deleted", List(kGeneration, base, kNoRules, kMoved, kMissing, kMoved, kMissing, kMoved),
        "8: ."}},
      kRules);
}

// A chain counts the rules of a transaction that is open, and what elements of maps jump to.
TEST(NftSurveyAnswersTest, IsRefusedOnlyIfTheKernelKeepsRulesBack) {
  const auto used = [](uint32_t uses, const Bytes& table = kOfFilter) {
    return Sent(Chain({table, kNamed, Attr(NFTA_CHAIN_USE, uses)}), Done());
  };
  const Bytes of_mine = Attr(NFTA_CHAIN_TABLE, Text("mine"));
  const auto map = [](uint32_t flags, const Bytes& end = Done()) {
    return Sent(NftMessage(NFT_MSG_NEWSET, NLM_F_MULTI, 0,
                           Join({Attr(NFTA_SET_NAME, Text("m")), Attr(NFTA_SET_FLAGS, flags),
                                 Attr(NFTA_SET_DATA_TYPE, uint32_t{NFT_DATA_VERDICT})})),
                end);
  };
  std::vector<Frame> many = map(NFT_SET_MAP);
  many.insert(many.begin(), 1000, many.front());
  const auto element = [](const Bytes& verdict) {
    return Attr(NFTA_LIST_ELEM, Attr(NFTA_SET_ELEM_DATA, Attr(NFTA_DATA_VERDICT, verdict)));
  };
  const Bytes jump = element(Attr(NFTA_VERDICT_CHAIN, Text("C")));
  const Bytes accept = element(Attr(NFTA_VERDICT_CODE, uint32_t{NF_ACCEPT}));
  const std::vector<Frame> elements =
      Sent(NftMessage(NFT_MSG_NEWSETELEM, NLM_F_MULTI, 0,
                      Attr(NFTA_SET_ELEM_LIST_ELEMENTS, Join({jump, accept, jump}))),
           Done());
  const auto survey = [&](std::vector<Frame> chains, const Answers& rest) {
    Answers answers = {kGeneration, kTables, std::move(chains), kRule};
    answers.insert(answers.end(), rest.begin(), rest.end());
    return answers;
  };
  const auto always = [&](const Bytes& table) {
    const Answers still = {kNothing, used(2, table), kNoRules, kGeneration};
    Answers answers(still.begin() + 1, still.end());
    for (int i = 1; i < kCompletenessAttempts; ++i) {
      answers.insert(answers.end(), still.begin(), still.end());
    }
    return answers;
  };
  ExpectSurveys({
      {"a transaction that was given up",
       survey(used(2), List(used(2), kNoRules, kGeneration, kNothing, used(1), kNoRules,
                            kGeneration, kGeneration)),
       "7: ip filter C with 1."},
      {"a deletion that was committed", survey(used(2), List(used(1), kNoRules, kMoved)),
       "ABORTED"},
      {"another table's chain",
       survey(used(2), List(Sent(Chain({kNamed, Attr(NFTA_CHAIN_USE, 5)}), Done()), kNoRules,
                            kGeneration, kGeneration)),
       "7: ip filter C with 1."},
      {"elements of a map",
       survey(used(3), List(used(3), map(NFT_SET_MAP), elements, kGeneration, kGeneration)),
       "7: ip filter C with 1, maps that jump."},
      {"elements that expire",
       survey(used(9), List(used(9), map(NFT_SET_TIMEOUT), kGeneration, kGeneration)),
       "7: ip filter C with 1, maps that jump."},
      {"another program's table with too many maps to read each",
       survey(used(9, of_mine), List(used(9, of_mine), many, kGeneration, kGeneration)),
       "7: ip filter, ip mine C with 1, maps that jump."},
      {"maps that may not be listed to the end",
       survey(used(9), List(used(9), map(NFT_SET_TIMEOUT, Done(EPERM)))), "PERMISSION_DENIED"},
      {"a chain of a map that may not be read",
       survey(used(3), List(used(3), map(0), Sent(Refusal(EPERM)))), "PERMISSION_DENIED"},
      {"a batch that may not be sent",
       survey(used(2), List(used(2), kNoRules, kGeneration, Sent(Refusal(EPERM)), used(1), kNoRules,
                            kGeneration, kGeneration)),
       "7: ip filter C with 1."},
      {"a rule that is too large", survey(used(2), always(kOfFilter)),
       "FAILED_PRECONDITION: the kernel listed fewer rules of table ip filter than it has"},
      {"one in a table that is not of iptables", survey(used(2, of_mine), always(of_mine)),
       "FAILED_PRECONDITION: the kernel listed fewer rules of table ip mine than it has"},
  });
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
    ExpectSurveys({{name, List(kGeneration, Sent(table, Done()), kNoRules, kGeneration),
                    absl::StrCat("7: ", name, " filter.")}});
  }
}

TEST(NftSurveyAnswersTest, OnlyABaseChainHasAPolicy) {
  const auto answers = [](const std::vector<Bytes>& attributes) {
    const Bytes chain = Chain({kOfFilter, kNamed, Join(attributes)});
    return List(kGeneration, kTables, Sent(chain, Done()), kNoRules, kGeneration);
  };
  const auto policy = [](uint32_t verdict) { return Attr(NFTA_CHAIN_POLICY, verdict); };
  ExpectSurveys({
      {"neither", answers({}), "7: ip filter C with 0."},
      {"a policy alone", answers({policy(1)}), "7: ip filter C with 0."},
      {"a policy of dropping alone", answers({policy(0)}), "7: ip filter C with 0."},
      {"a hook alone", answers({kHook}), "7: ip filter C with 0, policy ."},
      {"accept", answers({kHook, policy(1)}), "7: ip filter C with 0, policy ACCEPT."},
      {"drop", answers({kHook, policy(0)}), "7: ip filter C with 0, policy DROP."},
      {"another", answers({kHook, policy(3)}), "7: ip filter C with 0, policy ."},
  });
}

// ---- the native table ----

NativeTable Mine(const std::vector<std::string>& chains) {
  NativeTable table = {.family = Family::kIPv4, .name = "mine"};
  for (const std::string& name : chains) table.chains.push_back({.name = name});
  return table;
}
std::vector<Frame> MineAnswer(uint32_t chains) {
  return Sent(NftMessage(NFT_MSG_NEWTABLE, 0, 0,
                         Join({Attr(NFTA_TABLE_NAME, Text("mine")), Attr(NFTA_TABLE_FLAGS, 0),
                               Attr(NFTA_TABLE_USE, chains)})));
}

TEST(KernelAnswersTest, ANativeTableIsMissingOnlyWhereTheKernelReportsIt) {
  const NativeTable table = Mine({});
  const std::vector<Frame> mine = MineAnswer(0);
  ExpectSnapshots(
      {
          {"there", List(kGeneration, mine, kNoRules, kGeneration), "7: a native table."},
          {"missing", List(kGeneration, kMissing, kGeneration), "7: ."},
          {"not permitted", List(kGeneration, Sent(Refusal(EPERM)), kGeneration),
           "PERMISSION_DENIED"},
          // Read again, and missing then.
          {"gone before its rules were read",
           List(kGeneration, mine, kMissing, kGeneration, kMissing, kGeneration), "7: ."},
          {"changed while its rules were read",
           List(kGeneration, mine, kInterrupted, kGeneration, kMissing, kGeneration), "7: ."},
          {"its rules are refused", List(kGeneration, mine, Sent(Refusal(ENOMEM)), kGeneration),
           "RESOURCE_EXHAUSTED"},
          {"the answer about its rules is lost", List(kGeneration, mine, kLost, kGeneration),
           "RESOURCE_EXHAUSTED"},
      },
      {}, &table);
  // It is of the generation of the chains.
  ExpectSnapshots(
      {{"made meanwhile",
        List(kGeneration, kMissing, kThere, kMoved, kMoved, mine, kNoRules, kThere, kMoved),
        "8: TEST with 0, a native table."},
       {"removed meanwhile",
        List(kGeneration, mine, kNoRules, kThere, kMoved, kMoved, kMissing, kThere, kMoved),
        "8: TEST with 0."}},
      kChainAlone, &table);
}

TEST(NftNativeAnswersTest, AChainThatIsMissingAltersTheTableAndAnErrorIsNoAnswer) {
  const NativeTable table = Mine({"a", "b"});
  const auto chain = [](const std::string& name) {
    const Bytes hook = Join({Attr(NFTA_HOOK_HOOKNUM, 0), Attr(NFTA_HOOK_PRIORITY, 0)});
    return Sent(
        NftMessage(NFT_MSG_NEWCHAIN, 0, 0,
                   Join({Attr(NFTA_CHAIN_TABLE, Text("mine")), Attr(NFTA_CHAIN_NAME, Text(name)),
                         Attr(NFTA_CHAIN_HOOK, hook), Attr(NFTA_CHAIN_POLICY, 1),
                         Attr(NFTA_CHAIN_TYPE, Text("filter"))})));
  };
  const auto answers = [](const std::vector<Frame>& first, const std::vector<Frame>& second) {
    return List(kGeneration, MineAnswer(2), kNoRules, first, second, kGeneration);
  };
  const std::vector<Frame> refused = Sent(Refusal(EPERM));
  ExpectSnapshots({{"both there", answers(chain("a"), chain("b")), "7: a native table."},
                   {"the first missing", answers(kMissing, chain("b")), "7: an altered table."},
                   {"the second missing", answers(chain("a"), kMissing), "7: an altered table."},
                   {"the first refused", answers(refused, chain("b")), "PERMISSION_DENIED"},
                   {"the second refused", answers(chain("a"), refused), "PERMISSION_DENIED"},
                   {"the first lost", answers(kLost, chain("b")), "RESOURCE_EXHAUSTED"},
                   {"the second lost", answers(chain("a"), kLost), "RESOURCE_EXHAUSTED"}},
                  {}, &table);
}

// ---- who answers, and whether that is an answer ----

TEST(KernelAnswersTest, AnotherProcessCannotAnswerOrRefuseInTheKernelsPlace) {
  const std::vector<Frame> forged = {FromProcess(Generation(666)), FromKernel(Generation(7))};
  ExpectSnapshots(
      {{"forged",
        List(forged,
             std::vector<Frame>{FromProcess(Refusal(ENOENT)), FromKernel(ChainMessage("TEST"))},
             forged),
        "7: TEST with 0."}},
      kChainAlone);
  const ScriptedKernel kernel(Script({{FromProcess(Refusal(EPERM, 1))}, kMoved}));
  EXPECT_THAT(Open()->Apply({.generation = 7, .operations = {CreateChain{kChain}}}), IsOk());
}

TEST(KernelAnswersTest, OnlyTheKernelReportsChangesEvenByAnEventThatIsTooBig) {
  const Bytes big = NftMessage(NFT_MSG_NEWGEN, 0, 0,
                               Join({Attr(NFTA_GEN_ID, 9), Attr(NFTA_GEN_MAX, Zeros(300))}));
  const std::vector<std::vector<Frame>> events = {
      {FromProcess(Generation(8)), FromKernel(Generation(9))}, Sent(big)};
  for (const std::vector<Frame>& event : events) {
    const ScriptedKernel kernel(event);
    const auto backend = Open();
    const auto monitor = backend->Watch(WatchMode::kEvents);
    ASSERT_THAT(monitor, IsOk());
    EXPECT_THAT((*monitor)->Drain(), IsOkAndHolds(RulesetChanges{.count = 1, .others = 1}));
  }
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
      {"an answer", Sent(whole), Code::kOk},
      {"after an old one", Sent(old, whole), Code::kOk},
      {"after one in the same datagram", Sent(Join({old, whole})), Code::kOk},
      {"followed by another", Sent(Join({whole, Generation(8)})), Code::kOk},
      {"after an interruption", List(Fails(EINTR), FromKernel(whole)), Code::kOk},
      {"nothing", {}, Code::kDeadlineExceeded},
      {"an old one only", Sent(old), Code::kDeadlineExceeded},
      {"cut off", List(CutOff(whole))},
      {"to what was not asked", Sent(Generation(7, 1))},
      {"with bytes after it", Sent(Join({whole, {1}}))},
      {"shorter than its length", Sent(Bytes(whole.begin(), whole.end() - 4))},
      {"lost", List(Fails(ENOBUFS), FromKernel(whole)), Code::kResourceExhausted},
      {"of another kind", Sent(ChainMessage("7"))},
      {"refused", Sent(Refusal(EPERM)), Code::kPermissionDenied},
      {"unknown to the kernel", Sent(Refusal(EINVAL)), Code::kUnavailable},
      {"an error that is none", Sent(Refusal(-5)), Code::kUnknown},
      {"an error that is too short", Sent(Message(NLMSG_ERROR, 0, 0, HostU32(0))), Code::kUnknown},
      {"success and nothing else", Sent(Refusal(0))},
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

// ---- the result of a batch ----

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
  const Row rows[] = {
      {"done", List(kNothing, kMoved), Code::kOk},
      {"acknowledged", List(Sent(Refusal(0, 1)), kMoved), Code::kOk},
      {"refused", List(Sent(Refusal(EPERM, 1))), Code::kPermissionDenied},
      {"refused by what comes late", List(Sent(Refusal(0, 1), Refusal(EPERM, 2))),
       Code::kPermissionDenied},
      {"not done, and no word of it", List(kNothing, kGeneration)},
      {"the answer lost, not done", List(kLost, kGeneration), Code::kResourceExhausted},
      {"the answer lost, perhaps done", List(kLost, kMoved)},
      {"the answer cut off, perhaps done",
       List(std::vector<Frame>{CutOff(Refusal(EPERM, 1))}, kMoved)},
      {"the generation is reported at the third attempt", List(kNothing, kLost, kLost, kMoved),
       Code::kOk},
      {"the generation is never reported", List(kNothing, kLost, kLost, kLost, kMoved)},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const auto backend = Open();
    const std::unique_ptr<Monitor> monitor = WatchAtGeneration7(*backend);
    ASSERT_NE(monitor, nullptr);
    std::vector<std::vector<Frame>> answers = row.answers;
    answers.push_back(kMoved);
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
  const ScriptedKernel kernel(Script({{}, Sent(Generation(8))}));
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

// ---- the list of chains ----

// "C used by 5, base." for each, or the refusal.
std::string Listed(const Answers& answers) {
  const ScriptedKernel kernel(Script(answers));
  const absl::StatusOr<std::vector<ListedChain>> chains = ListNftChains(Family::kIPv4);
  if (!chains.ok()) return Refused(chains.status());
  std::string text;
  for (const ListedChain& chain : *chains) {
    absl::StrAppend(&text, chain.id.name, " used by ", chain.use, chain.base ? ", base." : ".");
  }
  return text;
}

TEST(NftChainAnswersTest, OfAListThatWasTornAndOfChainsThatAreNotOurs) {
  const Bytes used = Chain({kOfFilter, kNamed, kHook, Attr(NFTA_CHAIN_USE, 5)});
  EXPECT_EQ(Listed({Sent(used, Done(0, NLM_F_DUMP_INTR)), Sent(used, Done())}),
            "C used by 5, base.")
      << "read again from the beginning";
  EXPECT_EQ(Listed({Sent(Chain({kOfFilter}), Chain({kNamed}),
                         Chain({Attr(NFTA_CHAIN_TABLE, Text("else")), kNamed}),
                         Chain({kOfFilter, kNamed}), Done())}),
            "C used by 0.")
      << "without a name, and in no table of ours";
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

TEST(NftChainAnswersTest, AnErrorIsNoList) {
  EXPECT_THAT(Listed({Sent(Refusal(EPERM))}), StartsWith("PERMISSION_DENIED: listing the chains"));
  EXPECT_THAT(Listed({kLost}), StartsWith("RESOURCE_EXHAUSTED"));
  WithFailingCall(
      {.number = SYS_socket, .argument = 2, .value = NETLINK_NETFILTER, .error = EPROTONOSUPPORT},
      [] { EXPECT_THAT(ListNftChains(Family::kIPv4).status(), Not(IsOk())); });
}

}  // namespace
}  // namespace kipt::netlink::kernel_answers_test
