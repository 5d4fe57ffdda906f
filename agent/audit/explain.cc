// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/explain.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/chain_future.h"
#include "agent/audit/chain_meaning.h"
#include "agent/audit/family_audit.h"
#include "agent/audit/rule_words.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;

// ---- the chain ----

// At most five, the most similar first.
std::string SimilarChains(const FamilyChains& chains, absl::string_view asked) {
  std::set<std::pair<std::ptrdiff_t, std::string>> similar;
  for (const auto& [table, all] : chains.survey().tables) {
    if (table.family != chains.name()) continue;
    for (const auto& [name, chain] : all) {
      // How many letters they have in common from the left. "KUBE-" alone is no similarity.
      const auto differ = std::mismatch(asked.begin(), asked.end(), name.begin(), name.end());
      const std::ptrdiff_t common = differ.first - asked.begin();
      if (common < 6 && differ.first != asked.end()) continue;
      similar.emplace(-common, absl::StrCat(table.name, "/", ChainGroup(name)));
    }
  }
  std::vector<std::string> names;
  for (const auto& [common, name] : similar) {
    if (names.size() < 5 && !absl::c_linear_search(names, name)) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

// The table of the chain that `sieve` asks for.
absl::StatusOr<std::string> FindTable(const FamilyChains& chains, const ExplainSieve& sieve) {
  const auto meant = [&](const std::string& table) {
    return sieve.table().empty() || sieve.table() == table;
  };
  const std::string asked =
      absl::StrCat(sieve.table(), sieve.table().empty() ? "" : "/", sieve.chain());
  std::vector<std::string> found;
  for (const auto& [table, all] : chains.survey().tables) {
    if (meant(table.name) && table.family == chains.name() && all.contains(sieve.chain())) {
      found.push_back(table.name);
    }
  }
  if (found.size() == 1) return found.front();
  if (!found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(asked, " exists in the tables ", absl::StrJoin(found, ", "),
                     "; name the table, as in ", found[0], "/", asked));
  }
  for (const std::string& table : chains.survey().not_printed) {
    if (!meant(table) || chains.survey().tables.contains(chains.Id(table))) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "this dump lacks table ", table,
        ", because iptables-save could not print it: iptables has "
        "no option for one of its rules. Run explain on the node itself, without --from-file, or "
        "`nft list table ",
        chains.name(), " ", table, "` to see them"));
  }
  const std::string similar = SimilarChains(chains, sieve.chain());
  return absl::NotFoundError(absl::StrCat("there is no chain ", asked, " in the ", chains.name(),
                                          " tables", chains.survey().mode.empty() ? "" : " of ",
                                          chains.survey().mode,
                                          similar.empty() ? "" : "; there is ", similar));
}

// ---- its rules ----

void AddOwnRules(const netlink::TableId& table, const std::string& name, const SurveyChain& chain,
                 Explanation& explanation) {
  // Kubelet's chains are short, and their rules make sense together only.
  for (const SurveyRule& rule :
       absl::MakeSpan(chain.rules).subspan(0, ExplainSieve::kMostOwnRules)) {
    AuditedRule& shown = explanation.rules.emplace_back(Audited(table, name, rule));
    shown.sentence = AboutService(ServiceInComment(KnownMatches(rule).comment),
                                  RuleSentence(ParseRuleWords(shown.text)));
  }
}

void WriteInShort(size_t from_chains, Explanation& explanation) {
  std::vector<std::string>& points = explanation.in_short;
  const std::string where =
      absl::StrCat(Counted(explanation.users, "rule"), " in ", Counted(from_chains, "chain"),
                   explanation.users == 1 ? " leads" : " lead");
  if (explanation.users == 0) {
    points.emplace_back(explanation.chain == "mangle/KUBE-IPTABLES-HINT"
                            ? "No rule jumps here, and none should."
                            : "No rule jumps here.");
    return;
  }
  if (explanation.chain == kMarkMasqPlace) {
    points.push_back(
        absl::StrCat("There is one such chain, and it does one thing. ", where,
                     " to it; they differ in the packets that they select, not in the action."));
    points.emplace_back(
        "It handles traffic to services. Packets of pods to the outside do not pass it: the "
        "network plugin, or ip-masq-agent, has other rules for those.");
  } else {
    points.push_back(absl::StrCat(where, " here."));
  }
  for (const PurposeGroup& group : explanation.purposes) {
    points.push_back(absl::StrCat(Counted(group.count, "rule"), ": ", group.title, "."));
  }
}

}  // namespace

absl::StatusOr<Explanation> Explain(const netlink::Survey& survey, const ExplainSieve& sieve,
                                    netlink::Family family,
                                    absl::Span<const netlink::Survey> surveys) {
  const FamilyChains chains(survey, family);
  const absl::StatusOr<std::string> table_name = FindTable(chains, sieve);
  if (!table_name.ok()) return table_name.status();
  const std::string& chain = sieve.chain();
  const SurveyChain& found = *chains.Find(*table_name, chain);
  const netlink::TableId table = chains.Id(*table_name);
  ExplainSieve::Seen seen = sieve.InTable(table);
  Explanation explanation = {.iptables_mode = survey.mode,
                             .family = chains.name(),
                             .chain = absl::StrCat(*table_name, "/", chain),
                             .owner = OwnerOfChain(table, chain, found.base),
                             .what = ChainMeaning(*table_name, chain, found.base),
                             .maker = std::string(OwnerName(Owner::kBaseChain)),
                             .purposes = std::move(seen.purposes),
                             .rule_count = seen.own_rules};
  if (!found.base) {
    const KubeProxyFacts proxy = FindKubeProxy(survey)[family == netlink::Family::kIPv4 ? 0 : 1];
    explanation.owner = KeeperOfChain(chains, proxy, *table_name, chain, found.base);
    explanation.maker = ChainMaker(chains, proxy, *table_name, chain);
  }
  for (const PurposeGroup& group : explanation.purposes) explanation.users += group.count;
  AddOwnRules(table, chain, found, explanation);
  explanation.next = WhereNext(chains, *table_name, chain,
                               surveys.empty() ? absl::MakeConstSpan(&survey, 1) : surveys);
  WriteInShort(seen.from_chains, explanation);
  return explanation;
}

absl::StatusOr<Explanation> Explain(const netlink::Survey& survey, netlink::Family family,
                                    absl::string_view chain,
                                    absl::Span<const netlink::Survey> surveys) {
  ExplainSieve sieve(chain);
  for (const auto& [table, chains] : survey.tables) {
    for (const auto& [name, each] : chains) {
      if (absl::Status status = sieve.Begin(table, name, each.base); !status.ok()) return status;
      for (const SurveyRule& rule : each.rules) sieve.Keep(rule);
    }
  }
  return Explain(survey, sieve, family, surveys);
}

}  // namespace kipt::agent
