// SPDX-License-Identifier: Apache-2.0
//
// Lists and surveys of nf_tables where the kernel's answer is malformed, torn or an error.
#include "netlink/nft_requests.h"

#include <sys/syscall.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "netlink/backend.h"
#include "netlink/socket.h"
#include "tests/fuzz/scripted_kernel.h"
#include "tests/netlink/kernel_script.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink::nft_requests_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

using Answers = std::vector<std::vector<Frame>>;

const std::vector<Frame> kGeneration = {FromKernel(Generation(7))};
const std::vector<Frame> kTables = {FromKernel(TableMessage()), FromKernel(Done())};
const std::vector<Frame> kNoRules = {FromKernel(Done())};

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
  const auto malformed = StatusIs(absl::StatusCode::kDataLoss);
  const Bytes no_name = NftMessage(NFT_MSG_NEWTABLE, NLM_F_MULTI, 0, {});
  EXPECT_THAT(Surveyed({kGeneration, Dumped({no_name}), kGeneration}), malformed);
  for (const Bytes& chain : {Chain({kOfFilter}), Chain({kNamed}), Chain({})}) {
    EXPECT_THAT(Surveyed({kGeneration, kTables, Dumped({chain}), kGeneration}), malformed);
  }
  for (const auto& rules : {Dumped({MalformedRule()}), Dumped({MalformedRule(), DumpedRule()})}) {
    EXPECT_THAT(
        Surveyed({kGeneration, kTables, Dumped({Chain({kOfFilter, kNamed})}), rules, kGeneration}),
        malformed);
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
  const std::vector<Frame> refused = {FromKernel(Refusal(EPERM))};
  const Bytes chain = Chain({kOfFilter, kNamed});
  const Bytes second = Chain({kOfFilter, Attr(NFTA_CHAIN_NAME, Text("D"))});
  const auto denied = StatusIs(absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Surveyed({kGeneration,
                        {FromKernel(TableMessage()), FromKernel(Done(EPERM))},
                        Dumped({chain}),
                        kNoRules,
                        kGeneration}),
              denied);
  EXPECT_THAT(Surveyed({kGeneration,
                        kTables,
                        {FromKernel(chain), FromKernel(Done(EPERM))},
                        kNoRules,
                        kGeneration}),
              denied);
  EXPECT_THAT(
      Surveyed({kGeneration, kTables, Dumped({chain, second}), refused, kNoRules, kGeneration}),
      denied);
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
  const std::vector<Frame> later = {FromKernel(Generation(8))};
  EXPECT_THAT(Surveyed({kGeneration, kTables, kNoRules, later}),
              StatusIs(absl::StatusCode::kAborted, "the ruleset changed while it was read"));
  EXPECT_THAT(Surveyed({{FromKernel(Refusal(EPERM))}}),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

// ---- the list of chains ----

absl::StatusOr<std::vector<ListedChain>> Listed(const Answers& answers) {
  const ScriptedKernel kernel(Script(answers));
  return ListNftChains(Family::kIPv4);
}

TEST(NftChainAnswersTest, AListThatWasTornIsReadAgainFromTheBeginning) {
  const Bytes chain = Chain({kOfFilter, kNamed, kHook, Attr(NFTA_CHAIN_USE, 5)});
  const std::vector<Frame> torn = {FromKernel(chain), FromKernel(Done(0, NLM_F_DUMP_INTR))};
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
  EXPECT_THAT(Listed({{FromKernel(Refusal(EPERM))}}),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("listing the chains")));
  EXPECT_THAT(Listed({{Fails(ENOBUFS)}}), Not(IsOk()));
  WithFailingCall(
      {.number = SYS_socket, .argument = 2, .value = NETLINK_NETFILTER, .error = EPROTONOSUPPORT},
      [] { EXPECT_THAT(ListNftChains(Family::kIPv4).status(), Not(IsOk())); });
}

// ---- the native table ----

TEST(NftNativeAnswersTest, AChainThatIsMissingAltersTheTableAndAnErrorIsNoAnswer) {
  const NativeTable table = {.family = Family::kIPv4,
                             .name = "mine",
                             .chains = {NativeChain{.name = "a"}, NativeChain{.name = "b"}}};
  const std::vector<Frame> answer = {
      FromKernel(NftMessage(NFT_MSG_NEWTABLE, 0, 0,
                            Join({Attr(NFTA_TABLE_NAME, Text("mine")), Attr(NFTA_TABLE_FLAGS, 0),
                                  Attr(NFTA_TABLE_USE, 2)})))};
  const auto chain = [](const std::string& name) {
    return std::vector<Frame>{FromKernel(NftMessage(
        NFT_MSG_NEWCHAIN, 0, 0,
        Join(
            {Attr(NFTA_CHAIN_TABLE, Text("mine")), Attr(NFTA_CHAIN_NAME, Text(name)),
             Attr(NFTA_CHAIN_HOOK, Join({Attr(NFTA_HOOK_HOOKNUM, 0), Attr(NFTA_HOOK_PRIORITY, 0)})),
             Attr(NFTA_CHAIN_POLICY, 1), Attr(NFTA_CHAIN_TYPE, Text("filter"))})))};
  };
  const std::vector<Frame> missing = {FromKernel(Refusal(ENOENT))};
  const std::vector<Frame> refused = {FromKernel(Refusal(EPERM))};
  const std::vector<Frame> lost = {Fails(ENOBUFS)};
  struct Row {
    const char* name;
    std::vector<Frame> first;
    std::vector<Frame> second;
    absl::StatusCode code = absl::StatusCode::kOk;
    bool altered = false;
  };
  const Row rows[] = {
      {"both there", chain("a"), chain("b")},
      {"the first missing", missing, chain("b"), absl::StatusCode::kOk, true},
      {"the second missing", chain("a"), missing, absl::StatusCode::kOk, true},
      {"the first refused", refused, chain("b"), absl::StatusCode::kPermissionDenied},
      {"the second refused", chain("a"), refused, absl::StatusCode::kPermissionDenied},
      {"the first lost", lost, chain("b"), absl::StatusCode::kResourceExhausted},
      {"the second lost", chain("a"), lost, absl::StatusCode::kResourceExhausted},
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

// ---- reading rules ----

TEST(NftRuleAnswersTest, ALaterRuleDoesNotExcuseAMalformedOne) {
  const ScriptedKernel kernel(Script({kGeneration,
                                      {FromKernel(ChainMessage("TEST"))},
                                      Dumped({MalformedRule(), DumpedRule()}),
                                      kGeneration}));
  const ChainId chain{Family::kIPv4, Table::kFilter, "TEST"};
  EXPECT_THAT(Open()->Read(std::vector<ChainQuery>{{.chain = chain}}),
              StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace kipt::netlink::nft_requests_test
