// SPDX-License-Identifier: Apache-2.0
//
// Source: setupNFTables() and syncProxyRules() in Kubernetes' pkg/proxy/nftables/proxier.go.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/kube_proxy/rule_parts.h"

namespace kipt::skew {
namespace {

using Ports = std::vector<ServicePort>;
using Endpoints = std::vector<Endpoint>;
using Words = std::vector<std::pair<std::string, std::string>>;

// Texts are as `nft -f` reads them (Expanded()), but shorter: what has no verb is added, chains are
// emptied too, and base chains, with their type, hook and priority, are deleted first, because
// their priority may differ from what is there. $words are replaced.
constexpr char kHooksTo132[] = R"(
base filter-prerouting filter prerouting -110
base filter-input filter input -110
base filter-forward filter forward -110
base filter-output filter output -110
base filter-output-post-dnat filter output -90
)";
constexpr char kHooksFrom133[] = R"(
base filter-prerouting-pre-dnat filter prerouting -110
base filter-output-pre-dnat filter output -110
base filter-input filter input 0
base filter-forward filter forward 0
base filter-output filter output 0
)";
constexpr char kJumps[] = R"(
base nat-prerouting nat prerouting -100
base nat-output nat output -100
base nat-postrouting nat postrouting 100
chain nodeport-endpoints-check
rule filter-input ct state new jump nodeport-endpoints-check
chain service-endpoints-check
rule filter-input ct state new jump service-endpoints-check
rule filter-forward ct state new jump service-endpoints-check
rule filter-output ct state new jump service-endpoints-check
chain firewall-check
rule $prerouting ct state new jump firewall-check
rule $output-before-dnat ct state new jump firewall-check
chain cluster-ips-check
rule filter-forward ct state new jump cluster-ips-check
rule $output-after-dnat ct state new jump cluster-ips-check
chain services
rule nat-output jump services
rule nat-prerouting jump services
chain masquerading
rule nat-postrouting jump masquerading
)";
constexpr char kMarksByChain[] = R"(
chain mark-for-masquerade
rule mark-for-masquerade mark set mark or $bit
rule masquerading mark and $bit == 0 return
rule masquerading mark set mark xor $bit
rule masquerading masquerade fully-random
)";
constexpr char kMarksInline[] = R"(
set hairpin-connections { type $type . $type . inet_proto . inet_service ; comment "service hairpin connections" ; }
rule masquerading mark and $bit != 0 mark set mark xor $bit masquerade fully-random
rule masquerading ct status dnat $ip saddr . $ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
)";
constexpr char kSets[] = R"(
set cluster-ips { type $type ; comment "Active ClusterIPs" ; }
rule cluster-ips-check $ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
set nodeport-ips { type $type ; comment "IPs that accept NodePort traffic" ; }
flush set nodeport-ips
map no-endpoint-services { type $type . inet_proto . inet_service : verdict ; comment "vmap to drop or reject packets to services with no endpoints" ; }
map no-endpoint-nodeports { type inet_proto . inet_service : verdict ; comment "vmap to drop or reject packets to service nodeports with no endpoints" ; }
chain reject-chain { comment "helper for @no-endpoint-services / @no-endpoint-nodeports" ; }
rule reject-chain reject
rule service-endpoints-check $ip daddr . meta l4proto . th dport vmap @no-endpoint-services
rule nodeport-endpoints-check $ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
map firewall-ips { type $type . inet_proto . inet_service : verdict ; comment "destinations that are subject to LoadBalancerSourceRanges" ; }
rule firewall-check $ip daddr . meta l4proto . th dport vmap @firewall-ips
map service-ips { type $type . inet_proto . inet_service : verdict ; comment "ClusterIP, ExternalIP and LoadBalancer IP traffic" ; }
map service-nodeports { type inet_proto . inet_service : verdict ; comment "NodePort traffic" ; }
)";
constexpr char kUnallocated[] = R"(
rule cluster-ips-check $ip daddr { $service-cidr } drop comment "Drop traffic to unallocated ClusterIPs"
)";
constexpr char kMarksClusterIps[] = R"(
rule services $ip daddr @cluster-ips $not-from-pod $mark comment "masquerade clusterIP traffic from outside cluster"
)";
constexpr char kServices[] = R"(
rule services $ip daddr . meta l4proto . th dport vmap @service-ips
rule services $ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
)";
constexpr char kFlushTo132[] = R"(
flush set cluster-ips
flush map service-ips
flush map firewall-ips
flush map no-endpoint-services
flush map no-endpoint-nodeports
flush map service-nodeports
)";

bool FiltersBeforeDnat(const ProxySettings& settings) {
  return Does(settings.version, Trait::kNftFilterPriorityZero);
}
bool MarksInline(const ProxySettings& settings) {
  return Does(settings.version, Trait::kNftMarksInline);
}

std::string Expanded(const ProxySettings& settings, const std::string& text) {
  const bool four = settings.family == testing::IpFamily::kIpv4;
  const bool before_dnat = FiltersBeforeDnat(settings);
  const std::string ip = four ? "ip" : "ip6";
  const std::string bit =
      absl::StrFormat("0x%08x", 1U << static_cast<unsigned>(settings.masquerade_bit));
  const Words words = {
      {"$ip", ip},
      {"$type", four ? "ipv4_addr" : "ipv6_addr"},
      {"$bit", bit},
      {"$mark", MarksInline(settings) ? "mark set mark or " + bit : "jump mark-for-masquerade"},
      {"$pods", settings.pod_cidr},
      {"$not-from-pod", absl::StrCat(ip, " saddr != ", settings.pod_cidr)},
      {"$service-cidr", settings.service_cidr},
      {"$prerouting", before_dnat ? "filter-prerouting-pre-dnat" : "filter-prerouting"},
      {"$output-before-dnat", before_dnat ? "filter-output-pre-dnat" : "filter-output"},
      {"$output-after-dnat", before_dnat ? "filter-output" : "filter-output-post-dnat"}};
  const std::string of_table = " $ip kube-proxy ";
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    const std::string& name = parts[1];
    const std::string rest = parts.size() > 2 ? " " + parts[2] : "";
    if (parts[0] == "base") {
      const std::vector<std::string> hook = absl::StrSplit(parts[2], ' ');
      absl::StrAppend(&lines, "add chain", of_table, name, "\ndelete chain", of_table, name,
                      "\nadd chain", of_table, name, " { type ", hook[0], " hook ", hook[1],
                      " priority ", hook[2], " ; }\nflush chain", of_table, name, "\n");
    } else if (parts[0] == "chain") {
      absl::StrAppend(&lines, "add chain", of_table, name, rest, "\nflush chain", of_table, name,
                      "\n");
    } else if (parts[0] == "rule" || parts[0] == "set" || parts[0] == "map") {
      absl::StrAppend(&lines, "add ", parts[0], of_table, name, rest, "\n");
    } else {
      absl::StrAppend(&lines, parts[0], " ", name, of_table, parts[2], "\n");
    }
  }
  return absl::StrReplaceAll(lines, words);
}

// Makes base chains, chains, sets and maps, emptied, and the jumps between them.
std::string Head(const ProxySettings& settings) {
  const bool before_dnat = FiltersBeforeDnat(settings);
  const bool marks_inline = MarksInline(settings);
  return absl::StrCat(before_dnat ? kHooksFrom133 : kHooksTo132, kJumps,
                      marks_inline ? kMarksInline : kMarksByChain, kSets,
                      before_dnat && !settings.service_cidr.empty() ? kUnallocated : "",
                      settings.node_ip.empty()
                          ? ""
                          : absl::StrCat("add element nodeport-ips { ", settings.node_ip, " }\n"),
                      marks_inline && !settings.pod_cidr.empty() ? kMarksClusterIps : "", kServices,
                      before_dnat ? "" : kFlushTo132);
}

std::string HashedName(const std::string& name) {
  constexpr size_t kCharacters = 8;
  return absl::StrCat(ChainHash(name).substr(0, kCharacters), "-", name);
}

// What the ports of services come to.
struct ServiceRules {
  std::vector<std::string> chains;
  // Sets and rules.
  std::vector<std::string> lines;
  // By "SET { KEY": what follows the key.
  std::map<std::string, std::string> elements;
};

class PortRules {
 public:
  PortRules(const ProxySettings& settings, const ServicePort& port, ServiceRules& out)
      : settings_(settings),
        port_(port),
        marks_inline_(MarksInline(settings)),
        has_endpoint_chains_(!marks_inline_ || port.affinity_seconds != 0),
        out_(out),
        base_(absl::StrCat(port.service, "/", NameOf(port.protocol), "/", port.port_name)),
        all_(EndpointsOf(settings.version, port)),
        local_(LocalOf(all_)) {
    for (const char* chain : {"service", "local", "external", "firewall"}) {
      words_.emplace_back(absl::StrCat("$", chain), absl::StrCat(chain, "-", HashedName(base_)));
    }
    words_.insert(words_.end(), {{"$protocol", NameOf(port.protocol)},
                                 {"$port", absl::StrCat(port.port)},
                                 {"$cluster-ip", port.cluster_ip}});
  }

  void Write() {
    std::vector<std::string> outside = port_.external_ips;
    outside.insert(outside.end(), port_.load_balancer_ips.begin(), port_.load_balancer_ips.end());
    const bool reachable_outside = port_.node_port != 0 || !outside.empty();
    const bool uses_all =
        !all_.empty() && (!port_.internal_local || (!port_.external_local && reachable_outside));
    const bool uses_local =
        !local_.empty() && (port_.internal_local || (port_.external_local && reachable_outside));
    const bool serves_inside = !(port_.internal_local ? local_ : all_).empty();
    const bool serves_outside = !(port_.external_local ? local_ : all_).empty();
    const std::string inside = port_.internal_local ? "$local" : "$service";
    // A service with endpoints, none of which may be used, drops.
    const std::string refusal = absl::StrCat(" comment \"", PortName(settings_.version, port_),
                                             "\" : ", all_.empty() ? "goto reject-chain" : "drop");

    Element("cluster-ips { $cluster-ip", "");
    if (serves_inside)
      Element("service-ips { $cluster-ip . $protocol . $port", " : goto " + inside);
    if (!serves_inside) Element("no-endpoint-services { $cluster-ip . $protocol . $port", refusal);
    for (const std::string& address : outside) {
      const std::string to = address + " . $protocol . $port";
      if (!all_.empty()) Element("service-ips { " + to, " : goto $external");
      if (!serves_outside) Element("no-endpoint-services { " + to, refusal);
    }
    if (port_.node_port != 0) {
      const std::string to = absl::StrCat("$protocol . ", port_.node_port);
      if (!all_.empty()) Element("service-nodeports { " + to, " : goto $external");
      if (!serves_outside) Element("no-endpoint-nodeports { " + to, refusal);
    }
    if (all_.empty()) return;
    if (uses_all || uses_local) {
      for (const Endpoint& endpoint : uses_all ? all_ : local_) EndpointRules(endpoint);
    }
    if (!marks_inline_ && serves_inside && !settings_.pod_cidr.empty()) {
      const bool all_ports = Does(settings_.version, Trait::kNftMasqueradesAllPorts);
      Add(absl::StrCat("rule ", inside, " $ip daddr $cluster-ip",
                       all_ports ? "" : " $protocol dport $port", " $not-from-pod $mark"));
    }
    if (reachable_outside) External(uses_local);
    if (!port_.load_balancer_ips.empty() && !port_.source_ranges.empty()) Firewall();
    if (uses_all) Balance("$service", all_);
    if (uses_local) Balance("$local", local_);
  }

 private:
  std::string Named(const std::string& text) const { return absl::StrReplaceAll(text, words_); }
  void Element(const std::string& key, const std::string& rest) {
    out_.elements[Named(key)] = Named(rest);
  }
  void Chain(const std::string& chain) { out_.chains.push_back(Named(chain)); }
  void Add(const std::string& line) { out_.lines.push_back(Named(line)); }

  std::string NameOfEndpoint(const Endpoint& endpoint) const {
    const std::string address = absl::StrReplaceAll(endpoint.address, {{":", "."}});
    return HashedName(absl::StrCat(base_, "__", address, "/", endpoint.port));
  }

  void External(bool uses_local) {
    Chain("$external");
    if (!port_.external_local) {
      Add(absl::StrCat("rule $external $mark", marks_inline_ ? " comment \"masquerade\"" : ""));
      return Add("rule $external goto $service");
    }
    if (!settings_.pod_cidr.empty()) {
      Add("rule $external $ip saddr $pods goto $service comment \"short-circuit pod traffic\"");
    }
    Add("rule $external fib saddr type local $mark comment \"masquerade local traffic\"");
    Add("rule $external fib saddr type local goto $service comment \"short-circuit local "
        "traffic\"");
    if (uses_local) Add("rule $external goto $local");
  }

  void Firewall() {
    Chain("$firewall");
    for (const std::string& address : port_.load_balancer_ips) {
      Element(absl::StrCat("firewall-ips { ", address, " . $protocol . $port"),
              " : goto $firewall");
    }
    Add(absl::StrCat("rule $firewall $ip saddr != { ", absl::StrJoin(port_.source_ranges, ", "),
                     " } drop"));
  }

  void Balance(const std::string& chain, const Endpoints& endpoints) {
    Chain(chain);
    std::vector<std::string> choices;
    for (const Endpoint& endpoint : endpoints) {
      const std::string name = NameOfEndpoint(endpoint);
      if (port_.affinity_seconds != 0) {
        Add(absl::StrCat("rule ", chain, " $ip saddr @affinity-", name, " goto endpoint-", name));
      }
      choices.push_back(absl::StrCat(choices.size(), " : ",
                                     has_endpoint_chains_
                                         ? "goto endpoint-" + name
                                         : absl::StrCat(endpoint.address, " . ", endpoint.port)));
    }
    Add(absl::StrCat("rule ", chain,
                     has_endpoint_chains_ ? "" : " meta l4proto $protocol dnat $ip addr . port to",
                     " numgen random mod ", endpoints.size(), has_endpoint_chains_ ? " v" : " ",
                     "map { ", absl::StrJoin(choices, " , "), " }"));
  }

  void EndpointRules(const Endpoint& endpoint) {
    const std::string& address = endpoint.address;
    if (marks_inline_ && endpoint.local) {
      Element(absl::StrCat("hairpin-connections { ", address, " . ", address, " . $protocol . ",
                           endpoint.port),
              "");
    }
    if (!has_endpoint_chains_) return;
    const std::string name = NameOfEndpoint(endpoint);
    Chain("endpoint-" + name);
    const std::string rule = absl::StrCat("rule endpoint-", name, " ");
    if (!marks_inline_) Add(absl::StrCat(rule, "$ip saddr ", address, " $mark"));
    if (port_.affinity_seconds != 0) {
      Add(absl::StrCat("set affinity-", name, " { type $type ; flags dynamic,timeout ; timeout ",
                       port_.affinity_seconds, "s ; }"));
      Add(absl::StrCat(rule, "update @affinity-", name, " { $ip saddr }"));
    }
    Add(absl::StrCat(rule, "meta l4proto $protocol dnat to ", AddressAndPort(endpoint)));
  }

  const ProxySettings& settings_;
  const ServicePort& port_;
  const bool marks_inline_;
  const bool has_endpoint_chains_;
  ServiceRules& out_;
  const std::string base_;
  const Endpoints all_;
  const Endpoints local_;
  Words words_;
};

ServiceRules RulesOf(const ProxySettings& settings, const Ports& ports) {
  ServiceRules rules;
  for (const ServicePort& port : ports) PortRules(settings, port, rules).Write();
  return rules;
}

// Chains, sets and rules of `rules`; its elements without those of `before`.
std::string Text(const ServiceRules& rules, const std::map<std::string, std::string>& before) {
  std::string text;
  for (const std::string& chain : rules.chains) absl::StrAppend(&text, "chain ", chain, "\n");
  for (const auto& [key, rest] : rules.elements) {
    const auto old = before.find(key);
    if (old != before.end() && old->second == rest) continue;
    if (old != before.end()) absl::StrAppend(&text, "delete element ", key, " }\n");
    absl::StrAppend(&text, "add element ", key, rest, " }\n");
  }
  return absl::StrCat(text, absl::StrJoin(rules.lines, "\n"), "\n");
}

}  // namespace

std::string NftablesSync(const ProxySettings& settings, const Ports& services) {
  const std::string table =
      absl::StrCat("add table ", settings.family == testing::IpFamily::kIpv4 ? "ip" : "ip6",
                   " kube-proxy { comment \"rules for kube-proxy\" ; }\n");
  return table +
         Expanded(settings, Head(settings) +
                                Text(RulesOf(settings, OfFamily(services, settings.family)), {}));
}

std::string NftablesPartialSync(const ProxySettings& settings, const Ports& services,
                                const Ports& synced) {
  const Ports before = OfFamily(synced, settings.family);
  const Ports now = OfFamily(services, settings.family);
  Ports changed = now;
  std::erase_if(changed, [&before](const ServicePort& port) {
    return std::find(before.begin(), before.end(), port) != before.end();
  });
  ServiceRules written = RulesOf(settings, changed);
  const ServiceRules old = RulesOf(settings, before);
  const ServiceRules needed = RulesOf(settings, now);
  written.elements = needed.elements;
  std::string text = Text(written, old.elements);
  for (const std::string& chain : old.chains) {
    if (std::find(needed.chains.begin(), needed.chains.end(), chain) == needed.chains.end()) {
      absl::StrAppend(&text, "flush chain ", chain, "\n");
    }
  }
  for (const auto& element : old.elements) {
    if (needed.elements.contains(element.first)) continue;
    absl::StrAppend(&text, "delete element ", element.first, " }\n");
  }
  return Expanded(settings, text);
}

std::string NftablesRemoval(testing::IpFamily family) {
  const char* table = family == testing::IpFamily::kIpv4 ? "ip kube-proxy" : "ip6 kube-proxy";
  return absl::StrCat("add table ", table, "\ndelete table ", table, "\n");
}

}  // namespace kipt::skew
