// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/explain.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/audit/audit_parts.h"
#include "agent/audit/explain_parts.h"
#include "agent/audit/family_chains.h"
#include "agent/audit/kube_proxy_facts.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;

struct Place {
  std::string table;
  std::string chain;
};

// How many letters the names have in common from the left.
size_t CommonPrefix(absl::string_view a, absl::string_view b) {
  const size_t length = std::min(a.size(), b.size());
  size_t at = 0;
  while (at < length && a[at] == b[at]) ++at;
  return at;
}

// At most five, the most similar first.
std::string SimilarChains(const FamilyChains& chains, absl::string_view wanted) {
  std::set<std::pair<int, std::string>> similar;
  for (const auto& [table, all] : chains.survey().tables) {
    if (table.family != chains.name()) continue;
    for (const auto& [name, chain] : all) {
      const size_t common = CommonPrefix(wanted, name);
      // "KUBE-" alone is no similarity.
      if (common < 6 && common != wanted.size()) continue;
      similar.emplace(-static_cast<int>(common), absl::StrCat(table.name, "/", ChainGroup(name)));
    }
  }
  std::vector<std::string> names;
  for (const auto& [common, name] : similar) {
    if (names.size() == 5) break;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

absl::Status NoSuchChain(const FamilyChains& chains, absl::string_view wanted,
                         absl::string_view name) {
  const std::string similar = SimilarChains(chains, name);
  return absl::NotFoundError(
      absl::StrCat("there is no chain ", wanted, " in the ", chains.name(), " tables",
                   chains.survey().mode.empty() ? "" : " of ", chains.survey().mode,
                   similar.empty() ? "" : absl::StrCat("; there is ", similar)));
}

absl::StatusOr<Place> FindPlace(const FamilyChains& chains, absl::string_view wanted) {
  const std::vector<std::string> parts = absl::StrSplit(wanted, absl::MaxSplits('/', 1));
  if (parts.size() == 2) {
    if (chains.Has(parts[0], parts[1])) return Place{parts[0], parts[1]};
    return NoSuchChain(chains, wanted, parts[1]);
  }
  std::vector<std::string> found;
  for (const auto& [table, all] : chains.survey().tables) {
    if (table.family == chains.name() && all.count(parts[0]) != 0) found.push_back(table.name);
  }
  if (found.empty()) return NoSuchChain(chains, wanted, parts[0]);
  if (found.size() == 1) return Place{found[0], parts[0]};
  return absl::InvalidArgumentError(absl::StrCat(wanted, " stands in the tables ",
                                                 absl::StrJoin(found, ", "), "; say which, as ",
                                                 found[0], "/", wanted));
}

std::string WithService(const std::string& service, const std::string& sentence) {
  return service.empty() ? sentence : absl::StrCat(service, ": ", sentence);
}

// Where it leads to need not be said.
std::string UserSentence(Purpose purpose, const RuleWords& words) {
  if (purpose != Purpose::kHairpin) return PacketText(words);
  return absl::StrCat("the pod ", SingleHost(words.source.text), " calls itself");
}

// Which service a rule of kube-proxy's is about: by the rule's comment; where it has none, as those
// of kube-proxy 1.17 in KUBE-SVC-* and KUBE-SEP-*, by those of the rules that lead to its chain,
// which are looked through once.
class ServiceNames {
 public:
  // A view: `chains` must outlive it.
  explicit ServiceNames(const FamilyChains& chains) : chains_(chains) {}

  // Empty where nothing tells.
  std::string Of(const std::string& chain, const netlink::SurveyRule& rule);

 private:
  void Look();

  const FamilyChains& chains_;
  std::optional<std::map<std::string, std::string>> of_chain_;
};

std::string ServiceNames::Of(const std::string& chain, const netlink::SurveyRule& rule) {
  const absl::string_view named = ServiceInComment(KnownMatches(rule).comment);
  if (!named.empty()) return std::string(named);
  if (!absl::StartsWith(chain, "KUBE-S") || chain == "KUBE-SERVICES") return "";
  if (!of_chain_) Look();
  const auto found = of_chain_->find(chain);
  return found == of_chain_->end() ? "" : found->second;
}

void ServiceNames::Look() {
  of_chain_.emplace();
  // Services first: they name the chains of their endpoints.
  for (const bool services : {true, false}) {
    for (const auto& [name, chain] : chains_.In("nat")) {
      const bool is_service = absl::StartsWith(name, "KUBE-SVC-");
      if (services ? is_service : !is_service) continue;
      for (const netlink::SurveyRule& rule : chain.rules) {
        if (!absl::StartsWith(JumpOf(rule), "KUBE-S")) continue;
        std::string service(ServiceInComment(KnownMatches(rule).comment));
        if (service.empty()) {
          const auto own = of_chain_->find(name);
          if (own != of_chain_->end()) service = own->second;
        }
        if (!service.empty()) of_chain_->try_emplace(std::string(JumpOf(rule)), service);
      }
    }
  }
}

// Gathers the rules that lead to the chain, by purpose.
class Users {
 public:
  Users(const FamilyChains& chains, const Place& place, size_t max_examples, bool counted)
      : chains_(chains),
        place_(place),
        target_(absl::StrCat(place.table, "/", place.chain)),
        max_examples_(max_examples),
        counted_(counted),
        services_(chains) {}

  void Add(const std::string& name, const SurveyChain& chain, const SurveyRule& rule) {
    const netlink::TableId table = chains_.Id(place_.table);
    const std::string text = ToString(table, rule);
    const RuleWords words = ParseRuleWords(text);
    const Owner owner = OwnerOfRule(table, name, chain.base, rule);
    const RulePurpose purpose = PurposeOf(target_, name, chain.base, owner, words);
    PurposeGroup& group = groups_[{purpose.purpose, purpose.parameter, owner}];
    if (group.count == 0) {
      group.purpose = purpose.purpose;
      group.title = PurposeTitle(purpose.purpose, purpose.parameter);
      group.reason = std::string(PurposeReason(purpose.purpose));
      group.owner = owner;
    }
    ++group.count;
    if (counted_) group.packets = group.packets.value_or(0) + rule.counters.packets;
    from_.insert(name);
    if (group.examples.size() >= max_examples_) return;
    group.examples.push_back(
        {.chain = name,
         .text = text,
         .sentence = WithService(services_.Of(name, rule), UserSentence(purpose.purpose, words)),
         .packets = rule.counters.packets});
  }

  void Write(Explanation& explanation) && {
    for (auto& [key, group] : groups_) {
      explanation.users += group.count;
      explanation.purposes.push_back(std::move(group));
    }
  }

  size_t chains() const { return from_.size(); }

 private:
  const FamilyChains& chains_;
  const Place& place_;
  std::string target_;
  size_t max_examples_;
  bool counted_;
  ServiceNames services_;
  std::map<std::tuple<Purpose, std::string, Owner>, PurposeGroup> groups_;
  std::set<std::string> from_;
};

void AddOwnRules(const netlink::TableId& table, const std::string& name, const SurveyChain& chain,
                 const ExplainOptions& options, Explanation& explanation) {
  // Kubelet's chains are short, and their rules make sense together only.
  const size_t most = std::max<size_t>(options.max_examples, 10);
  explanation.rule_count = chain.rules.size();
  for (const SurveyRule& rule : chain.rules) {
    if (explanation.rules.size() == most) break;
    const std::string text = ToString(table, rule);
    const RuleWords words = ParseRuleWords(text);
    const std::string service(ServiceInComment(words.comment));
    explanation.rules.push_back({.chain = name,
                                 .text = text,
                                 .sentence = WithService(service, RuleSentence(words)),
                                 .packets = rule.counters.packets});
  }
}

std::string Rules(size_t count) { return absl::StrCat(count, count == 1 ? " rule" : " rules"); }

void WriteInShort(size_t from_chains, Explanation& explanation) {
  std::vector<std::string>& points = explanation.in_short;
  const std::string where = absl::StrCat(Rules(explanation.users), " in ", from_chains,
                                         from_chains == 1 ? " chain" : " chains");
  if (explanation.users == 0) {
    points.emplace_back(explanation.chain == "mangle/KUBE-IPTABLES-HINT"
                            ? "Nothing jumps here, and nothing should."
                            : "Nothing jumps here.");
    return;
  }
  if (explanation.chain == "nat/KUBE-MARK-MASQ") {
    points.push_back(absl::StrCat(
        "There is one such chain, and it does one thing. ", where,
        explanation.users == 1 ? " leads" : " lead",
        " to it; they differ in whose packets they pick, not in what is done to them."));
    points.emplace_back(
        "It is about traffic to services. A pod's packets to the world outside do not come here: "
        "the network plugin, or ip-masq-agent, has other rules for those.");
  } else {
    points.push_back(absl::StrCat(where, explanation.users == 1 ? " leads" : " lead", " here."));
  }
  for (const PurposeGroup& group : explanation.purposes) {
    points.push_back(absl::StrCat(Rules(group.count), ": ", group.title, "."));
  }
}

}  // namespace

absl::StatusOr<Explanation> Explain(const netlink::Survey& survey, netlink::Family family,
                                    absl::string_view chain, const ExplainOptions& options) {
  const FamilyChains chains(survey, family);
  const absl::StatusOr<Place> place = FindPlace(chains, chain);
  if (!place.ok()) return place.status();
  const KubeProxyFacts proxy = FindKubeProxy(survey)[family == netlink::Family::kIPv4 ? 0 : 1];
  const SurveyChain& found = *chains.Find(place->table, place->chain);
  Explanation explanation;
  explanation.iptables_mode = survey.mode;
  explanation.family = chains.name();
  explanation.chain = absl::StrCat(place->table, "/", place->chain);
  explanation.owner =
      found.base ? Owner::kBaseChain : OwnerOfChain(chains.Id(place->table), place->chain);
  explanation.what = ChainMeaning(place->table, place->chain, found.base);
  explanation.maker = found.base ? std::string(OwnerName(Owner::kBaseChain))
                                 : ChainMaker(chains, proxy, place->table, place->chain);
  Users users(chains, *place, options.max_examples, HasCounters(survey));
  for (const auto& [name, from] : chains.In(place->table)) {
    for (const SurveyRule& rule : from.rules) {
      if (JumpOf(rule) == place->chain) users.Add(name, from, rule);
    }
  }
  const size_t from_chains = users.chains();
  std::move(users).Write(explanation);
  AddOwnRules(chains.Id(place->table), place->chain, found, options, explanation);
  explanation.next = WhereNext(chains, place->table, place->chain);
  WriteInShort(from_chains, explanation);
  return explanation;
}

}  // namespace kipt::agent
