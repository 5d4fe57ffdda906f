// SPDX-License-Identifier: Apache-2.0
//
// Whatever the kernel answers: everything that reads netlink, from the socket's walk over messages
// to the values that come out. No answer may be misread as more than it holds: a refused batch is
// not committed, no chain appears that was not asked for, and a Rule is one that we could have
// written.
#include <memory>
#include <set>
#include <string>

#include "agent/detect/routing.h"
#include "agent/policy/rule_forms.h"
#include "netlink/backend.h"
#include "netlink/batch.h"
#include "netlink/rule_codec.h"
#include "netlink/transaction.h"
#include "tests/fuzz/kernel_questions.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/scripted_kernel.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/wire_messages.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

// One operation of each kind, a native table put and one deleted.
netlink::Transaction QuestionedTransaction() {
  const ChainId chain{Family::kIPv4, Table::kFilter, std::string(agent::kFirewallChain)};
  const ChainId nat{Family::kIPv4, Table::kNat, std::string(agent::kPostroutingChain)};
  return {
      .generation = 1,
      .operations = {
          netlink::PutNativeTable{agent::NativeMartians()}, netlink::CreateChain{chain},
          netlink::AddRule{.chain = chain, .rule = agent::DropMartians(0)},
          netlink::AddRule{.chain = nat, .rule = agent::MasqueradeAll(14)},
          netlink::AddRule{
              .chain = chain, .rule = {.target = netlink::Jump{"GONE"}}, .before = 7, .number = 1},
          netlink::DeleteRule{.chain = chain, .handle = 9, .number = 1, .rule = agent::SetBit(14)},
          netlink::DeleteChain{nat},
          netlink::DeleteNativeTable{.family = Family::kIPv6, .name = "of another day"}}};
}

bool CanEncode(const ChainId& chain, const netlink::Rule& rule) {
  const netlink::Transaction transaction = {
      .operations = {netlink::AddRule{.chain = chain, .rule = rule}}};
  return netlink::Batch::Build(transaction, /*first_sequence=*/0).ok();
}

void CheckSnapshot(const netlink::Snapshot& snapshot) {
  std::set<ChainId> asked;
  for (const netlink::ChainQuery& query : QuestionedChains()) asked.insert(query.chain);
  for (const auto& [id, chain] : snapshot.chains) {
    KIPT_REQUIRE(asked.count(id) == 1);
    for (const netlink::ObservedRule& rule : chain.rules) {
      if (rule.rule() != nullptr) KIPT_REQUIRE(CanEncode(id, *rule.rule()));
      KIPT_REQUIRE(ToString(id.family, rule).find('\0') == std::string::npos);
    }
  }
}

void CheckSurvey(const netlink::Survey& survey) {
  KIPT_REQUIRE(survey.mode == "nft");
  for (const auto& [table, chains] : survey.tables) {
    KIPT_REQUIRE(!table.family.empty());
    for (const auto& [name, chain] : chains) KIPT_REQUIRE(chain.base || chain.policy.empty());
  }
  KIPT_REQUIRE(survey.tables.empty() || !ToString(survey).empty());
}

void CheckChanges(const netlink::RulesetChanges& changes) {
  KIPT_REQUIRE(changes.writers.size() <= netlink::RulesetChanges::kMaxWriters);
  KIPT_REQUIRE(changes.writers.size() + changes.others <= changes.count);
}

void AskBackend(Question question, Backend& backend, const ScriptedKernel& kernel) {
  switch (question) {
    case Question::kRead: {
      const auto snapshot = backend.Read(QuestionedChains());
      if (snapshot.ok()) CheckSnapshot(*snapshot);
      if (!snapshot.ok()) KIPT_REQUIRE_REASON(snapshot.status());
      return;
    }
    case Question::kSurvey: {
      const auto survey = backend.TakeSurvey(nullptr);
      if (survey.ok()) CheckSurvey(*survey);
      if (!survey.ok()) KIPT_REQUIRE_REASON(survey.status());
      return;
    }
    case Question::kNativeTable: {
      const auto snapshot = backend.Read({}, &agent::NativeMartians());
      if (!snapshot.ok()) KIPT_REQUIRE_REASON(snapshot.status());
      return;
    }
    case Question::kApply: {
      const absl::Status status = backend.Apply(QuestionedTransaction());
      if (!status.ok()) KIPT_REQUIRE_REASON(status);
      if (status.ok()) KIPT_REQUIRE(kernel.refusals() == 0);
      return;
    }
    case Question::kEvents:
    case Question::kPoll: {
      const auto monitor = backend.Watch(question == Question::kEvents ? netlink::WatchMode::kEvents
                                                                       : netlink::WatchMode::kPoll);
      if (!monitor.ok()) return;
      const auto changes = (*monitor)->Drain();
      if (changes.ok()) CheckChanges(*changes);
      if (!changes.ok()) KIPT_REQUIRE_REASON(changes.status());
      return;
    }
    default:
      return;
  }
}

void AskForChains(Family family) {
  const auto chains = netlink::ListNftChains(family);
  if (!chains.ok()) KIPT_REQUIRE_REASON(chains.status());
  if (!chains.ok()) return;
  for (const netlink::ListedChain& chain : *chains) KIPT_REQUIRE(chain.id.family == family);
}

void AskForRoutingRules() {
  const auto rules = agent::ReadFwmarkRules();
  if (!rules.ok()) KIPT_REQUIRE_REASON(rules.status());
  if (!rules.ok()) return;
  for (const agent::FwmarkRule& rule : *rules) {
    KIPT_REQUIRE(rule.text.find(" fwmark ") != std::string::npos);
  }
}

}  // namespace

// A Question ('0' and on), then frames: the datagrams in their order (scripted_kernel.h).
void FuzzKernelAnswers(FuzzBytes input) {
  const auto question = static_cast<Question>(TakeSelector(input, kQuestions));
  ScriptedKernel kernel(TakeFrames(input));
  if (question == Question::kChainList) return AskForChains(Family::kIPv4);
  if (question == Question::kRoutingRules) return AskForRoutingRules();
  const absl::StatusOr<std::unique_ptr<Backend>> backend = netlink::NewNftBackend();
  KIPT_REQUIRE(backend.ok());
  AskBackend(question, **backend, kernel);
}

}  // namespace kipt::testing
