// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "agent/audit/audit.h"
#include "agent/audit/audit_parts.h"

namespace kipt::agent {
namespace {

using netlink::SurveyChain;
using netlink::SurveyRule;

// ---- the chain ----

struct Place {
  std::string table;
  std::string chain;
};

// At most five, the most similar first.
std::string SimilarChains(const FamilyChains& chains, absl::string_view wanted) {
  std::set<std::pair<std::ptrdiff_t, std::string>> similar;
  for (const auto& [table, all] : chains.survey().tables) {
    if (table.family != chains.name()) continue;
    for (const auto& [name, chain] : all) {
      // How many letters they have in common from the left. "KUBE-" alone is no similarity.
      const auto differ = std::mismatch(wanted.begin(), wanted.end(), name.begin(), name.end());
      const std::ptrdiff_t common = differ.first - wanted.begin();
      if (common < 6 && differ.first != wanted.end()) continue;
      similar.emplace(-common, absl::StrCat(table.name, "/", ChainGroup(name)));
    }
  }
  std::vector<std::string> names;
  for (const auto& [common, name] : similar) {
    if (names.size() < 5 && !absl::c_linear_search(names, name)) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

// `wanted` as of Explain.
absl::StatusOr<Place> FindPlace(const FamilyChains& chains, absl::string_view wanted) {
  const std::vector<std::string> parts = absl::StrSplit(wanted, absl::MaxSplits('/', 1));
  const std::string& name = parts.back();
  std::vector<std::string> found;
  for (const auto& [table, all] : chains.survey().tables) {
    const bool meant = parts.size() == 1 || table.name == parts.front();
    if (meant && table.family == chains.name() && all.contains(name)) found.push_back(table.name);
  }
  if (found.size() == 1) return Place{found[0], name};
  if (!found.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(wanted, " stands in the tables ",
                                                   absl::StrJoin(found, ", "), "; say which, as ",
                                                   found[0], "/", wanted));
  }
  const std::string similar = SimilarChains(chains, name);
  return absl::NotFoundError(
      absl::StrCat("there is no chain ", wanted, " in the ", chains.name(), " tables",
                   chains.survey().mode.empty() ? "" : " of ", chains.survey().mode,
                   similar.empty() ? "" : absl::StrCat("; there is ", similar)));
}

// ---- what a rule that leads to a chain is for ----

struct PurposeRow {
  absl::string_view name;
  absl::string_view title;
  absl::string_view reason;
};
// In the order of the enumeration.
constexpr PurposeRow kPurposes[] = {
    {"OutsidePodRange", "to a service's own address, from outside the pods (%s)",
     "The '!' leaves the pods out: a pod's packet reaches the endpoint with the pod's own address, "
     "and the answer comes back by the node it came from. Anybody else (the node itself, a machine "
     "that routes cluster IPs here) would be answered past this node, which alone can turn the "
     "endpoint's address back into the service's; with this node's address as its source, the "
     "packet is answered to this node."},
    {"Hairpin", "a pod that reaches itself through its own service",
     "The source is the endpoint's own address: the pod called a service, and was itself chosen to "
     "answer. It would see a packet from itself to itself, and answer without the node ever "
     "turning the address back; with the node's address as its source, the packet is answered "
     "through the node."},
    {"External", "from outside the cluster, to a node port, external IP or load balancer",
     "Any source (0.0.0.0/0 in iptables -L): clients are outside, and the endpoint may be on "
     "another node, which would answer them directly. The endpoint sees this node's address "
     "instead of the client's; externalTrafficPolicy: Local would keep the client's."},
    {"ExternalFromNode", "from this node itself, to an external address of a service",
     "The service keeps clients' addresses (externalTrafficPolicy: Local), but what this node "
     "itself sends may go to endpoints on any node, and their answers must come back to this one."},
    {"ExternalIP", "to a service's external IP",
     "Any source: clients are outside, and the endpoint may be on another node, which would answer "
     "them directly."},
    {"LoadBalancer", "to a service's load balancer address",
     "Any source (0.0.0.0/0 in iptables -L): clients are outside, and the endpoint may be on "
     "another node, which would answer them directly. kube-proxy's iptables mode marks every load "
     "balancer packet here up to 1.23; since 1.24 KUBE-EXT-* does."},
    {"NodePort", "to a service's node port",
     "Any source: the endpoint may be on another node, which would answer the client directly "
     "instead of through this one."},
    {"NodePortLoopback", "from the node's loopback address, to a node port",
     "A process on the node used 127.0.0.1 (or ::1), and no such source may leave the node: it "
     "gets an address that the endpoint can answer to."},
    {"MasqueradeAll", "to a service's own address, from anywhere",
     "kube-proxy runs with masqueradeAll (--masquerade-all): pods are not left out."},
    {"HostPortHairpin", "from a pod's own network, to a host port of it",
     "The pod, or its neighbour on the same bridge, calls a host port of this node and would be "
     "answered on the bridge, past the node that must turn the address back."},
    {"HostPortLoopback", "from the node's loopback address, to a host port",
     "A process on the node used 127.0.0.1, and no such source may leave the node."},
    {"SourceRanges",
     "to a load balancer, from a client that loadBalancerSourceRanges does not let in",
     "The rules before it have let in whom the service allows; what gets here is to be dropped, "
     "which table nat cannot do itself. (Up to 1.23 the rule stands for every load balancer; "
     "without ranges, the one before it lets everybody in.) Since 1.25 kube-proxy drops in "
     "filter/KUBE-PROXY-FIREWALL instead."},
    {"NoLocalEndpoints", "to a service that keeps traffic on its node, and has no endpoint here",
     "externalTrafficPolicy: Local, and none of its pods is on this node: dropped, so that a load "
     "balancer's health check moves traffic elsewhere. Since 1.25 kube-proxy drops in table filter "
     "instead."},
    {"BaseJump", "all that passes %s", ""},
    {"ThirdParty", "rules of others: %s",
     "Not Kubernetes' own; the audit command says what becomes of them."},
    {"Other", "from %s", ""},
};

const PurposeRow& Row(Purpose purpose) { return kPurposes[static_cast<size_t>(purpose)]; }

struct RulePurpose {
  Purpose purpose = Purpose::kOther;
  // What groups of one purpose differ in: the pod range, the interface, the chain it stands in.
  std::string parameter = {};
};

bool IsLoopback(const RuleWord& word) {
  return !word.negated && (absl::StartsWith(word.text, "127.") || word.text == "::1/128");
}

RulePurpose ForNodePort(const RuleWords& words) {
  return {IsLoopback(words.source) ? Purpose::kNodePortLoopback : Purpose::kNodePort};
}

// Of IPVS mode, one rule stands for all services, which are in the set.
RulePurpose ForSet(absl::string_view set, const RuleWords& words) {
  if (absl::EndsWith(set, "CLUSTER-IP")) {
    if (words.source.negated) return {Purpose::kOutsidePodRange, std::string(words.source.text)};
    // Without a pod range IPVS mode marks what comes from a service's own address.
    return absl::StartsWith(words.set_flags, "src") ? RulePurpose{Purpose::kOther, "a cluster IP"}
                                                    : RulePurpose{Purpose::kMasqueradeAll};
  }
  if (absl::EndsWith(set, "EXTERNAL-IP")) return {Purpose::kExternalIp};
  if (absl::StrContains(set, "NODE-PORT")) return {Purpose::kNodePort};
  return {Purpose::kOther, std::string(set)};
}

RulePurpose ForServiceAddress(absl::string_view group, const RuleWords& words) {
  if (words.source.negated) return {Purpose::kOutsidePodRange, std::string(words.source.text)};
  if (words.in_interface.negated) {
    return {Purpose::kOutsidePodRange, absl::StrCat("interface ", words.in_interface.text)};
  }
  if (absl::EndsWith(words.comment, " external IP")) return {Purpose::kExternalIp};
  if (absl::EndsWith(words.comment, " cluster IP")) return {Purpose::kMasqueradeAll};
  // 1.22 and 1.23: node ports are marked in the service's chain, which has no destination then.
  if (group != "KUBE-SERVICES" && words.destination_port && !words.destination) {
    return ForNodePort(words);
  }
  return {Purpose::kOther, std::string(group)};
}

RulePurpose ForMasquerade(absl::string_view group, const RuleWords& words) {
  if (words.set) return ForSet(words.set.text, words);
  if (group == "KUBE-SERVICES" || group == "KUBE-SVC-*" || group == "KUBE-SVL-*") {
    return ForServiceAddress(group, words);
  }
  if (group == "KUBE-SEP-*" && !SingleHost(words.source.text).empty() && !words.source.negated) {
    return {Purpose::kHairpin};
  }
  if (group == "KUBE-EXT-*" || group == "KUBE-XLB-*") {
    return {words.source_type.text == "LOCAL" ? Purpose::kExternalFromNode : Purpose::kExternal};
  }
  if (group == "KUBE-FW-*" || group == "KUBE-LOAD-BALANCER") return {Purpose::kLoadBalancer};
  if (group == "KUBE-NODEPORTS" || group == "KUBE-NODE-PORT") return ForNodePort(words);
  return {Purpose::kOther, std::string(group)};
}

RulePurpose ForDrop(absl::string_view group, const RuleWords& words) {
  if (absl::EndsWith(words.comment, "has no local endpoints")) return {Purpose::kNoLocalEndpoints};
  if (group == "KUBE-FW-*" || group == "KUBE-FIREWALL") return {Purpose::kSourceRanges};
  return {Purpose::kOther, std::string(group)};
}

// `target` is the chain that the rule leads to, as TABLE/CHAIN; `owner` the rule's.
RulePurpose PurposeOf(absl::string_view target, absl::string_view chain, bool base, Owner owner,
                      const RuleWords& words) {
  if (base && (IsKubernetes(owner) || owner == Owner::kThisAgent))
    return {Purpose::kBaseJump, std::string(chain)};
  const std::string group(ChainGroup(chain));
  const bool masquerade = target == "nat/KUBE-MARK-MASQ";
  if (masquerade && (owner == Owner::kPortmap || owner == Owner::kHostPorts)) {
    return {IsLoopback(words.source) ? Purpose::kHostPortLoopback : Purpose::kHostPortHairpin,
            std::string(OwnerName(owner))};
  }
  const bool known = masquerade || target == "nat/KUBE-MARK-DROP";
  if ((known && !IsKubernetes(owner)) || IsPrivateChain(target)) {
    return {Purpose::kThirdParty,
            owner == Owner::kUnknown ? group : absl::StrCat(OwnerName(owner), ", ", group)};
  }
  if (known) return masquerade ? ForMasquerade(group, words) : ForDrop(group, words);
  return {Purpose::kOther, owner == Owner::kUnknown || base
                               ? group
                               : absl::StrCat(group, " (", OwnerName(owner), ")")};
}

// ---- the rules that lead to a chain, and its own ----

// "default/web: a packet from ...".
std::string WithService(absl::string_view service, const std::string& sentence) {
  return service.empty() ? sentence : absl::StrCat(service, ": ", sentence);
}

using Services = std::map<std::string, std::string>;

// Which services kube-proxy's chains are about, by the comments of the rules that lead to them.
Services ServicesOfChains(const FamilyChains& chains) {
  Services of_chain;
  // Services last: others name their chains, and they those of their endpoints.
  for (const bool services : {false, true}) {
    for (const auto& [name, chain] : chains.In("nat")) {
      if (services != absl::StartsWith(name, "KUBE-SVC-")) continue;
      for (const SurveyRule& rule : chain.rules) {
        if (!absl::StartsWith(JumpOf(rule), "KUBE-S")) continue;
        std::string service(ServiceInComment(KnownMatches(rule).comment));
        if (const auto own = of_chain.find(name); service.empty() && own != of_chain.end()) {
          service = own->second;
        }
        if (!service.empty()) of_chain.try_emplace(std::string(JumpOf(rule)), service);
      }
    }
  }
  return of_chain;
}

// Gathers the rules that lead to a chain, by purpose.
class Users {
 public:
  // Of nat/KUBE-MARK-MASQ, say.
  Users(const FamilyChains& chains, std::string target)
      : chains_(chains), target_(std::move(target)), counted_(HasCounters(chains.survey())) {}

  void Add(const netlink::TableId& table, const std::string& name, const SurveyChain& chain,
           const SurveyRule& rule) {
    const std::string text = ToString(table, rule);
    const RuleWords words = ParseRuleWords(text);
    const Owner owner = OwnerOfRule(table, name, chain.base, rule);
    const RulePurpose purpose = PurposeOf(target_, name, chain.base, owner, words);
    PurposeGroup& group = groups_[{purpose.purpose, purpose.parameter, owner}];
    if (group.count == 0) {
      const PurposeRow& row = Row(purpose.purpose);
      group = {.purpose = purpose.purpose,
               .title = absl::StrReplaceAll(row.title, {{"%s", purpose.parameter}}),
               .reason = std::string(row.reason),
               .owner = owner};
    }
    ++group.count;
    if (counted_) group.packets = group.packets.value_or(0) + rule.counters.packets;
    from_.insert(name);
    if (group.examples.size() >= kMostExamples) return;
    // Where it leads to need not be said.
    const std::string sentence =
        purpose.purpose == Purpose::kHairpin
            ? absl::StrCat("the pod ", SingleHost(words.source.text), " calls itself")
            : PacketText(words);
    group.examples.push_back({.chain = name,
                              .text = text,
                              .packets = rule.counters.packets,
                              .sentence = WithService(ServiceOf(name, rule), sentence)});
  }

  // Gives them away; the result is in how many chains they stand.
  size_t Write(Explanation& explanation) && {
    for (auto& [key, group] : groups_) {
      explanation.users += group.count;
      explanation.purposes.push_back(std::move(group));
    }
    return from_.size();
  }

 private:
  // The service that a rule of kube-proxy's is about: by its comment; where it has none, as those
  // of kube-proxy 1.17 in KUBE-SVC-* and KUBE-SEP-*, by its chain. Empty where nothing tells.
  std::string ServiceOf(const std::string& chain, const SurveyRule& rule) {
    const absl::string_view named = ServiceInComment(KnownMatches(rule).comment);
    if (!named.empty()) return std::string(named);
    if (!absl::StartsWith(chain, "KUBE-S") || chain == "KUBE-SERVICES") return "";
    if (!services_) services_ = ServicesOfChains(chains_);
    const auto found = services_->find(chain);
    return found == services_->end() ? "" : found->second;
  }

  const FamilyChains& chains_;
  const std::string target_;
  const bool counted_;
  std::optional<Services> services_;  // made where it is needed
  std::map<std::tuple<Purpose, std::string, Owner>, PurposeGroup> groups_;
  std::set<std::string> from_;
};

void AddOwnRules(const netlink::TableId& table, const std::string& name, const SurveyChain& chain,
                 Explanation& explanation) {
  // Kubelet's chains are short, and their rules make sense together only.
  constexpr size_t kMost = 10;
  explanation.rule_count = chain.rules.size();
  for (const SurveyRule& rule : chain.rules) {
    if (explanation.rules.size() == kMost) break;
    const std::string text = ToString(table, rule);
    const RuleWords words = ParseRuleWords(text);
    explanation.rules.push_back(
        {.chain = name,
         .text = text,
         .packets = rule.counters.packets,
         .sentence = WithService(ServiceInComment(words.comment), RuleSentence(words))});
  }
}

void WriteInShort(size_t from_chains, Explanation& explanation) {
  std::vector<std::string>& points = explanation.in_short;
  const std::string where =
      absl::StrCat(Counted(explanation.users, "rule"), " in ", Counted(from_chains, "chain"),
                   explanation.users == 1 ? " leads" : " lead");
  if (explanation.users == 0) {
    points.emplace_back(explanation.chain == "mangle/KUBE-IPTABLES-HINT"
                            ? "Nothing jumps here, and nothing should."
                            : "Nothing jumps here.");
    return;
  }
  if (explanation.chain == "nat/KUBE-MARK-MASQ") {
    points.push_back(absl::StrCat(
        "There is one such chain, and it does one thing. ", where,
        " to it; they differ in whose packets they pick, not in what is done to them."));
    points.emplace_back(
        "It is about traffic to services. A pod's packets to the world outside do not come here: "
        "the network plugin, or ip-masq-agent, has other rules for those.");
  } else {
    points.push_back(absl::StrCat(where, " here."));
  }
  for (const PurposeGroup& group : explanation.purposes) {
    points.push_back(absl::StrCat(Counted(group.count, "rule"), ": ", group.title, "."));
  }
}

}  // namespace

absl::string_view PurposeName(Purpose purpose) { return Row(purpose).name; }

absl::StatusOr<Explanation> Explain(const netlink::Survey& survey, netlink::Family family,
                                    absl::string_view chain) {
  const FamilyChains chains(survey, family);
  const absl::StatusOr<Place> place = FindPlace(chains, chain);
  if (!place.ok()) return place.status();
  const SurveyChain& found = *chains.Find(place->table, place->chain);
  const netlink::TableId table = chains.Id(place->table);
  Explanation explanation = {.iptables_mode = survey.mode,
                             .family = chains.name(),
                             .chain = absl::StrCat(place->table, "/", place->chain),
                             .owner = OwnerOfChain(table, place->chain, found.base),
                             .what = ChainMeaning(place->table, place->chain, found.base),
                             .maker = std::string(OwnerName(Owner::kBaseChain))};
  if (!found.base) {
    const KubeProxyFacts proxy = FindKubeProxy(survey)[family == netlink::Family::kIPv4 ? 0 : 1];
    explanation.maker = ChainMaker(chains, proxy, place->table, place->chain);
  }
  Users users(chains, explanation.chain);
  for (const auto& [name, from] : chains.In(place->table)) {
    for (const SurveyRule& rule : from.rules) {
      if (JumpOf(rule) == place->chain) users.Add(table, name, from, rule);
    }
  }
  const size_t from_chains = std::move(users).Write(explanation);
  AddOwnRules(table, place->chain, found, explanation);
  explanation.next = WhereNext(chains, place->table, place->chain);
  WriteInShort(from_chains, explanation);
  return explanation;
}

}  // namespace kipt::agent
