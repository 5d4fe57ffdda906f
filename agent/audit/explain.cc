// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/explain.h"

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
#include "agent/audit/chain_future.h"
#include "agent/audit/chain_meaning.h"
#include "agent/audit/family_audit.h"
#include "agent/audit/rule_words.h"

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

// The table of `asked`, which is as in Explain, and its name there.
absl::StatusOr<std::pair<std::string, std::string>> FindPlace(const FamilyChains& chains,
                                                              absl::string_view asked) {
  const std::vector<std::string> parts = absl::StrSplit(asked, absl::MaxSplits('/', 1));
  const std::string& name = parts.back();
  std::vector<std::string> found;
  for (const auto& [table, all] : chains.survey().tables) {
    const bool meant = parts.size() == 1 || table.name == parts.front();
    if (meant && table.family == chains.name() && all.contains(name)) found.push_back(table.name);
  }
  if (found.size() == 1) return std::pair(found[0], name);
  if (!found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(asked, " exists in the tables ", absl::StrJoin(found, ", "),
                     "; name the table, as in ", found[0], "/", asked));
  }
  for (const std::string& table : chains.survey().not_printed) {
    const bool meant = parts.size() == 1 || table == parts.front();
    if (!meant || chains.survey().tables.contains(chains.Id(table))) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "this dump lacks table ", table,
        ", because iptables-save could not print it: iptables has "
        "no option for one of its rules. Run explain on the node itself, without --from-file, or "
        "`nft list table ",
        chains.name(), " ", table, "` to see them"));
  }
  const std::string similar = SimilarChains(chains, name);
  return absl::NotFoundError(absl::StrCat("there is no chain ", asked, " in the ", chains.name(),
                                          " tables", chains.survey().mode.empty() ? "" : " of ",
                                          chains.survey().mode,
                                          similar.empty() ? "" : "; there is ", similar));
}

// ---- what a rule that leads to a chain is for ----

struct PurposeRow {
  absl::string_view id;
  absl::string_view title;
  absl::string_view reason;
};
// In the order of an explanation. "%s" is a parameter.
constexpr PurposeRow kPurposes[] = {
    {"OutsidePodRange", "to a service's own address, from outside the pods (%s)",
     "The '!' leaves the pods out: their packets keep the pod's address, and the answers return "
     "through the pod's node. Other clients (the node itself, a host that routes cluster IPs here) "
     "would be answered directly. Only this node can translate the endpoint's address back to the "
     "service's. With this node's address as the source, the answers return to this node."},
    {"Hairpin", "a pod that reaches itself through its own service",
     "The source is the endpoint's own address: the pod called a service, and was itself chosen to "
     "answer. It would answer itself directly, and the node could not translate the address back. "
     "With the node's address as the source, the answer returns through the node."},
    {"External", "from outside the cluster, to a node port, external IP or load balancer",
     "Any source (0.0.0.0/0 in iptables -L): clients are outside, and an endpoint on another node "
     "would answer them directly. The endpoint sees this node's address instead of the client's; "
     "externalTrafficPolicy: Local would keep the client's."},
    {"ExternalFromNode", "from this node itself, to an external address of a service",
     "The service keeps clients' addresses (externalTrafficPolicy: Local). Packets of this node "
     "itself may go to endpoints on any node, and their answers must return to this one."},
    {"ExternalIP", "to a service's external IP",
     "Any source: clients are outside, and an endpoint on another node would answer them "
     "directly."},
    {"LoadBalancer", "to a service's load balancer address",
     "Any source (0.0.0.0/0 in iptables -L): clients are outside, and an endpoint on another node "
     "would answer them directly. kube-proxy's iptables mode marks every load balancer packet here "
     "up to 1.23; since 1.24 KUBE-EXT-* does."},
    {"NodePort", "to a service's node port",
     "Any source: an endpoint on another node would answer the client directly instead of through "
     "this one."},
    {"NodePortLoopback", "from the node's loopback address, to a node port",
     "A process on the node used 127.0.0.1 (or ::1). Such a source must not leave the node, so the "
     "packet gets an address that the endpoint can answer."},
    {"MasqueradeAll", "to a service's own address, from anywhere",
     "kube-proxy runs with masqueradeAll (--masquerade-all): pods are not left out."},
    {"HostPortHairpin", "from a pod's own network, to a host port of it",
     "The pod, or its neighbour on the same bridge, calls a host port of this node. The answer "
     "would stay on the bridge and bypass the node, which must translate the address back."},
    {"HostPortLoopback", "from the node's loopback address, to a host port",
     "A process on the node used 127.0.0.1. Such a source must not leave the node."},
    {"SourceRanges",
     "to a load balancer, from a client that loadBalancerSourceRanges does not let in",
     "The rules before it let in the clients that the service allows. The remaining packets must "
     "be dropped, which table nat cannot do. (Up to 1.23 every load balancer has the rule; without "
     "ranges, the one before it lets all clients in.) Since 1.25 kube-proxy drops in "
     "filter/KUBE-PROXY-FIREWALL instead."},
    {"NoLocalEndpoints", "to a service that keeps traffic on its node, and has no endpoint here",
     "externalTrafficPolicy: Local, and none of its pods is on this node. The packets are dropped, "
     "so that a load balancer's health check moves traffic elsewhere. Since 1.25 kube-proxy drops "
     "in table filter instead."},
    {"BaseJump", "all packets that pass %s", ""},
    {"ThirdParty", "rules of other programs: %s",
     "Not Kubernetes' own; the command audit reports them."},
    {"Other", "from %s", ""},
};

struct RulePurpose {
  absl::string_view id;
  // What groups of one purpose differ in: the pod range, the interface, the chain of the rules.
  std::string parameter = {};
};

bool IsLoopback(const RuleWord& word) {
  return !word.negated && (absl::StartsWith(word.text, "127.") || word.text == "::1/128");
}

RulePurpose ForNodePort(const RuleWords& words) {
  return {IsLoopback(words.Get("-s")) ? "NodePortLoopback" : "NodePort"};
}

// In IPVS mode one rule is for all services of a set.
RulePurpose ForSet(absl::string_view set, const RuleWords& words) {
  if (absl::EndsWith(set, "CLUSTER-IP")) {
    const RuleWord source = words.Get("-s");
    if (source.negated) return {"OutsidePodRange", std::string(source.text)};
    // Without a pod range IPVS mode marks what comes from a service's own address.
    return absl::StartsWith(words.set_flags, "src") ? RulePurpose{"Other", "a cluster IP"}
                                                    : RulePurpose{"MasqueradeAll"};
  }
  if (absl::EndsWith(set, "EXTERNAL-IP")) return {"ExternalIP"};
  if (absl::StrContains(set, "NODE-PORT")) return {"NodePort"};
  return {"Other", std::string(set)};
}

RulePurpose ForServiceAddress(absl::string_view group, absl::string_view comment,
                              const RuleWords& words) {
  const RuleWord source = words.Get("-s");
  const RuleWord interface = words.Get("-i");
  if (source.negated) return {"OutsidePodRange", std::string(source.text)};
  if (interface.negated) return {"OutsidePodRange", absl::StrCat("interface ", interface.text)};
  if (absl::EndsWith(comment, " external IP")) return {"ExternalIP"};
  if (absl::EndsWith(comment, " cluster IP")) return {"MasqueradeAll"};
  // 1.22 and 1.23: node ports are marked in the service's chain, which has no destination then.
  if (group != "KUBE-SERVICES" && words.Get("--dport") && !words.Get("-d")) {
    return ForNodePort(words);
  }
  return {"Other", std::string(group)};
}

RulePurpose ForMasquerade(absl::string_view group, absl::string_view comment,
                          const RuleWords& words) {
  if (const RuleWord set = words.Get("--match-set")) return ForSet(set.text, words);
  if (group == "KUBE-SERVICES" || group == "KUBE-SVC-*" || group == "KUBE-SVL-*") {
    return ForServiceAddress(group, comment, words);
  }
  const RuleWord source = words.Get("-s");
  if (group == "KUBE-SEP-*" && !SingleHost(source.text).empty() && !source.negated) {
    return {"Hairpin"};
  }
  if (group == "KUBE-EXT-*" || group == "KUBE-XLB-*") {
    return {words.Get("--src-type").text == "LOCAL" ? "ExternalFromNode" : "External"};
  }
  if (group == "KUBE-FW-*" || group == "KUBE-LOAD-BALANCER") return {"LoadBalancer"};
  if (group == "KUBE-NODEPORTS" || group == "KUBE-NODE-PORT") return ForNodePort(words);
  return {"Other", std::string(group)};
}

RulePurpose ForDrop(absl::string_view group, absl::string_view comment) {
  if (absl::EndsWith(comment, "has no local endpoints")) return {"NoLocalEndpoints"};
  if (group == "KUBE-FW-*" || group == "KUBE-FIREWALL") return {"SourceRanges"};
  return {"Other", std::string(group)};
}

// `target` is the chain that the rule leads to, as TABLE/CHAIN; `owner` the rule's.
RulePurpose PurposeOf(absl::string_view target, absl::string_view chain, bool base, Owner owner,
                      absl::string_view comment, const RuleWords& words) {
  if (base && (IsKubernetes(owner) || owner == Owner::kThisAgent)) {
    return {"BaseJump", std::string(chain)};
  }
  const std::string group(ChainGroup(chain));
  const bool masquerade = target == kMarkMasqPlace;
  if (masquerade && (owner == Owner::kPortmap || owner == Owner::kHostPorts)) {
    return {IsLoopback(words.Get("-s")) ? "HostPortLoopback" : "HostPortHairpin",
            std::string(OwnerName(owner))};
  }
  const bool known = masquerade || target == kMarkDropPlace;
  if ((known && !IsKubernetes(owner)) || IsPrivateChain(target)) {
    return {"ThirdParty",
            owner == Owner::kUnknown ? group : absl::StrCat(OwnerName(owner), ", ", group)};
  }
  if (known) return masquerade ? ForMasquerade(group, comment, words) : ForDrop(group, comment);
  return {"Other", owner == Owner::kUnknown || base
                       ? group
                       : absl::StrCat(group, " (", OwnerName(owner), ")")};
}

// ---- the rules that lead to a chain, and its own ----

// "default/web: a packet from ...".
std::string About(absl::string_view service, absl::string_view sentence) {
  return absl::StrCat(service, service.empty() ? "" : ": ", sentence);
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

// The rules of `table` that lead to `chain`, by purpose. Returns how many chains they are in.
size_t AddUsers(const FamilyChains& chains, const netlink::TableId& table, absl::string_view chain,
                Explanation& explanation) {
  const bool counted = HasCounters(chains.survey());
  std::optional<Services> services;  // made where it is needed
  std::map<std::tuple<const PurposeRow*, std::string, Owner>, PurposeGroup> groups;
  std::set<std::string> from_chains;
  const auto add = [&](const std::string& name, bool base, const SurveyRule& rule) {
    AuditedRule example = Audited(table, name, rule);
    const RuleWords words = ParseRuleWords(example.text);
    const Owner owner = OwnerOfRule(table, name, base, rule);
    const std::string& comment = KnownMatches(rule).comment;
    const RulePurpose purpose = PurposeOf(explanation.chain, name, base, owner, comment, words);
    const auto* row =
        absl::c_find_if(kPurposes, [&](const PurposeRow& one) { return one.id == purpose.id; });
    PurposeGroup& group = groups[{row, purpose.parameter, owner}];
    if (group.count++ == 0) {
      group.id = row->id;
      group.title = absl::StrReplaceAll(row->title, {{"%s", purpose.parameter}});
      group.reason = row->reason;
      group.owner = owner;
    }
    if (counted) group.packets = group.packets.value_or(0) + rule.counters.packets;
    from_chains.insert(name);
    if (group.examples.size() >= kMostExamples) return;
    absl::string_view service = ServiceInComment(comment);
    // Rules of kube-proxy 1.17 in KUBE-SVC-* and KUBE-SEP-* have no comment.
    if (service.empty() && absl::StartsWith(name, "KUBE-S") && name != "KUBE-SERVICES") {
      if (!services) services = ServicesOfChains(chains);
      service = (*services)[name];
    }
    // Where it leads to need not be said.
    const absl::string_view pod = SingleHost(words.Get("-s").text);
    example.sentence =
        About(service, group.id == "Hairpin" ? absl::StrCat("the pod ", pod, " calls itself")
                                             : PacketText(words));
    group.examples.push_back(std::move(example));
  };
  for (const auto& [name, from] : chains.In(table.name)) {
    for (const SurveyRule& rule : from.rules) {
      if (JumpOf(rule) == chain) add(name, from.base, rule);
    }
  }
  for (auto& [key, group] : groups) {
    explanation.users += group.count;
    explanation.purposes.push_back(std::move(group));
  }
  return from_chains.size();
}

void AddOwnRules(const netlink::TableId& table, const std::string& name, const SurveyChain& chain,
                 Explanation& explanation) {
  // Kubelet's chains are short, and their rules make sense together only.
  constexpr size_t kMost = 10;
  explanation.rule_count = chain.rules.size();
  for (const SurveyRule& rule : absl::MakeSpan(chain.rules).subspan(0, kMost)) {
    AuditedRule& shown = explanation.rules.emplace_back(Audited(table, name, rule));
    shown.sentence = About(ServiceInComment(KnownMatches(rule).comment),
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

absl::StatusOr<Explanation> Explain(const netlink::Survey& survey, netlink::Family family,
                                    absl::string_view asked,
                                    absl::Span<const netlink::Survey> surveys) {
  const FamilyChains chains(survey, family);
  const auto place = FindPlace(chains, asked);
  if (!place.ok()) return place.status();
  const auto& [table_name, chain] = *place;
  const SurveyChain& found = *chains.Find(table_name, chain);
  const netlink::TableId table = chains.Id(table_name);
  Explanation explanation = {.iptables_mode = survey.mode,
                             .family = chains.name(),
                             .chain = absl::StrCat(table_name, "/", chain),
                             .owner = OwnerOfChain(table, chain, found.base),
                             .what = ChainMeaning(table_name, chain, found.base),
                             .maker = std::string(OwnerName(Owner::kBaseChain))};
  if (!found.base) {
    const KubeProxyFacts proxy = FindKubeProxy(survey)[family == netlink::Family::kIPv4 ? 0 : 1];
    explanation.owner = KeeperOfChain(chains, proxy, table_name, chain, found.base);
    explanation.maker = ChainMaker(chains, proxy, table_name, chain);
  }
  const size_t from_chains = AddUsers(chains, table, chain, explanation);
  AddOwnRules(table, chain, found, explanation);
  explanation.next = WhereNext(chains, table_name, chain,
                               surveys.empty() ? absl::MakeConstSpan(&survey, 1) : surveys);
  WriteInShort(from_chains, explanation);
  return explanation;
}

}  // namespace kipt::agent
