// SPDX-License-Identifier: Apache-2.0
//
// Source: setupNFTables() and syncProxyRules() in Kubernetes' pkg/proxy/nftables/proxier.go.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/kube_proxy/rule_parts.h"

namespace kipt::skew {
namespace {

struct BaseChain {
  const char* name;
  const char* type;
  const char* hook;
  int priority;
};

constexpr BaseChain kTo132[] = {
    {"filter-prerouting", "filter", "prerouting", -110},
    {"filter-input", "filter", "input", -110},
    {"filter-forward", "filter", "forward", -110},
    {"filter-output", "filter", "output", -110},
    {"filter-output-post-dnat", "filter", "output", -90},
};
constexpr BaseChain kFrom133[] = {
    {"filter-prerouting-pre-dnat", "filter", "prerouting", -110},
    {"filter-output-pre-dnat", "filter", "output", -110},
    {"filter-input", "filter", "input", 0},
    {"filter-forward", "filter", "forward", 0},
    {"filter-output", "filter", "output", 0},
};
constexpr BaseChain kNat[] = {
    {"nat-prerouting", "nat", "prerouting", -100},
    {"nat-output", "nat", "output", -100},
    {"nat-postrouting", "nat", "postrouting", 100},
};

constexpr char kForRefused[] = "helper for @no-endpoint-services / @no-endpoint-nodeports";
constexpr char kToPort[] = " daddr . meta l4proto . th dport vmap @";

// The table of kube-proxy's nftables mode without its services, and the words of its rules.
class NftablesTable {
 public:
  explicit NftablesTable(const ProxySettings& settings)
      : settings_(settings),
        ip_(settings.family == testing::IpFamily::kIpv4 ? "ip" : "ip6"),
        address_type_(settings.family == testing::IpFamily::kIpv4 ? "ipv4_addr" : "ipv6_addr"),
        pre_dnat_(Does(settings.version, Trait::kNftFilterPriorityZero)),
        inline_(Does(settings.version, Trait::kNftMarksInline)) {}

  const std::string& ip() const { return ip_; }
  const std::string& address_type() const { return address_type_; }

  // Makes base chains, chains, sets and maps, emptied, and the jumps between them.
  std::string Head() const {
    return absl::StrCat("add table ", ip_, " kube-proxy { comment \"rules for kube-proxy\" ; }\n",
                        BaseChains(), Jumps(), Masquerade(), Sets(), Maps());
  }

  // "add rule ip kube-proxy REST\n".
  std::string Line(const std::string& verb, const std::string& rest) const {
    return absl::StrCat(verb, " ", ip_, " kube-proxy ", rest, "\n");
  }

  // The statement that marks a packet, and a comment.
  std::string MarkToMasquerade(const std::string& comment) const {
    return absl::StrCat(inline_ ? "mark set mark or " + Bit() : "jump mark-for-masquerade",
                        comment.empty() ? "" : absl::StrCat(" comment \"", comment, "\""));
  }

  // "ip saddr != 10.180.0.0/16".
  std::string NotFromPod() const { return absl::StrCat(ip_, " saddr != ", settings_.pod_cidr); }

 private:
  std::string BaseChains() const {
    std::vector<BaseChain> chains;
    for (const BaseChain& chain : pre_dnat_ ? kFrom133 : kTo132) chains.push_back(chain);
    for (const BaseChain& chain : kNat) chains.push_back(chain);
    // Deleted first: their priority may differ from what is there.
    std::string text;
    for (const BaseChain& chain : chains) {
      absl::StrAppend(&text, Line("add chain", chain.name), Line("delete chain", chain.name));
    }
    for (const BaseChain& chain : chains) {
      absl::StrAppend(
          &text,
          Line("add chain", absl::StrCat(chain.name, " { type ", chain.type, " hook ", chain.hook,
                                         " priority ", chain.priority, " ; }")),
          Line("flush chain", chain.name));
    }
    return text;
  }

  std::string Jumps() const {
    struct Jump {
      const char* chain;
      std::vector<const char*> from;
    };
    const Jump jumps[] = {
        {"nodeport-endpoints-check", {"filter-input"}},
        {"service-endpoints-check", {"filter-input", "filter-forward", "filter-output"}},
        {"firewall-check",
         {pre_dnat_ ? "filter-prerouting-pre-dnat" : "filter-prerouting",
          pre_dnat_ ? "filter-output-pre-dnat" : "filter-output"}},
        {"cluster-ips-check",
         {"filter-forward", pre_dnat_ ? "filter-output" : "filter-output-post-dnat"}},
    };
    std::string text;
    for (const Jump& jump : jumps) {
      text += Chain(jump.chain);
      for (const char* from : jump.from)
        text += Rule(from, absl::StrCat("ct state new jump ", jump.chain));
    }
    return absl::StrCat(text, Chain("services"), Rule("nat-output", "jump services"),
                        Rule("nat-prerouting", "jump services"), Chain("masquerading"),
                        Rule("nat-postrouting", "jump masquerading"));
  }

  std::string Masquerade() const {
    if (inline_) {
      return absl::StrCat(
          Line("add set",
               absl::StrCat("hairpin-connections { type ", address_type_, " . ", address_type_,
                            " . inet_proto . inet_service ; comment \"service hairpin "
                            "connections\" ; }")),
          Rule("masquerading", absl::StrCat("mark and ", Bit(), " != 0 mark set mark xor ", Bit(),
                                            " masquerade fully-random")),
          Rule("masquerading",
               absl::StrCat("ct status dnat ", ip_, " saddr . ", ip_,
                            " daddr . meta l4proto . th dport @hairpin-connections masquerade "
                            "fully-random")));
    }
    return absl::StrCat(Chain("mark-for-masquerade"),
                        Rule("mark-for-masquerade", "mark set mark or " + Bit()),
                        Rule("masquerading", absl::StrCat("mark and ", Bit(), " == 0 return")),
                        Rule("masquerading", "mark set mark xor " + Bit()),
                        Rule("masquerading", "masquerade fully-random"));
  }

  std::string Sets() const {
    std::string text = absl::StrCat(
        Line("add set", absl::StrCat("cluster-ips { type ", address_type_,
                                     " ; comment \"Active ClusterIPs\" ; }")),
        Rule("cluster-ips-check",
             absl::StrCat(ip_,
                          " daddr @cluster-ips reject comment \"Reject traffic to invalid ports "
                          "of ClusterIPs\"")));
    if (pre_dnat_ && !settings_.service_cidr.empty()) {
      text += Rule("cluster-ips-check",
                   absl::StrCat(ip_, " daddr { ", settings_.service_cidr,
                                " } drop comment \"Drop traffic to unallocated ClusterIPs\""));
    }
    absl::StrAppend(&text,
                    Line("add set", absl::StrCat("nodeport-ips { type ", address_type_,
                                                 " ; comment \"IPs that accept NodePort traffic\" "
                                                 "; }")),
                    Line("flush set", "nodeport-ips"));
    if (settings_.node_ip.empty()) return text;
    return text + Line("add element", absl::StrCat("nodeport-ips { ", settings_.node_ip, " }"));
  }

  std::string Maps() const {
    const auto map = [this](const char* name, bool by_address, const char* comment) {
      return Line("add map", absl::StrCat(name, " { type ", by_address ? address_type_ + " . " : "",
                                          "inet_proto . inet_service : verdict ; comment \"",
                                          comment, "\" ; }"));
    };
    const std::string to_node_port = " daddr @nodeport-ips meta l4proto . th dport vmap @";
    std::string text = absl::StrCat(
        map("no-endpoint-services", true,
            "vmap to drop or reject packets to services with no endpoints"),
        map("no-endpoint-nodeports", false,
            "vmap to drop or reject packets to service nodeports with no endpoints"),
        Line("add chain", absl::StrCat("reject-chain { comment \"", kForRefused, "\" ; }")),
        Line("flush chain", "reject-chain"), Rule("reject-chain", "reject"),
        Rule("service-endpoints-check", absl::StrCat(ip_, kToPort, "no-endpoint-services")),
        Rule("nodeport-endpoints-check", absl::StrCat(ip_, to_node_port, "no-endpoint-nodeports")),
        map("firewall-ips", true, "destinations that are subject to LoadBalancerSourceRanges"),
        Rule("firewall-check", absl::StrCat(ip_, kToPort, "firewall-ips")),
        map("service-ips", true, "ClusterIP, ExternalIP and LoadBalancer IP traffic"),
        map("service-nodeports", false, "NodePort traffic"));
    if (inline_ && !settings_.pod_cidr.empty()) {
      text += Rule("services",
                   absl::StrCat(ip_, " daddr @cluster-ips ", NotFromPod(), " ",
                                MarkToMasquerade("masquerade clusterIP traffic from outside "
                                                 "cluster")));
    }
    absl::StrAppend(&text, Rule("services", absl::StrCat(ip_, kToPort, "service-ips")),
                    Rule("services", absl::StrCat(ip_, to_node_port, "service-nodeports")));
    if (pre_dnat_) return text;
    text += Line("flush set", "cluster-ips");
    for (const char* name : {"service-ips", "firewall-ips", "no-endpoint-services",
                             "no-endpoint-nodeports", "service-nodeports"}) {
      text += Line("flush map", name);
    }
    return text;
  }

  std::string Chain(const std::string& chain) const {
    return Line("add chain", chain) + Line("flush chain", chain);
  }

  std::string Rule(const std::string& chain, const std::string& rule) const {
    return Line("add rule", absl::StrCat(chain, " ", rule));
  }

  std::string Bit() const {
    return absl::StrFormat("0x%08x", 1U << static_cast<unsigned>(settings_.masquerade_bit));
  }

  const ProxySettings settings_;
  const std::string ip_;
  const std::string address_type_;
  // Filters before DNAT in chains of their own.
  const bool pre_dnat_;
  const bool inline_;
};

using Ports = std::vector<ServicePort>;
using Endpoints = std::vector<Endpoint>;

std::string HashedName(const std::string& name) {
  constexpr size_t kCharacters = 8;
  return absl::StrCat(ChainHash(name).substr(0, kCharacters), "-", name);
}

// What the ports of services come to.
struct ServiceRules {
  std::vector<std::string> chains;
  // Whole lines.
  std::vector<std::string> sets;
  std::vector<std::string> rules;
  // By "SET { KEY": what follows the key.
  std::map<std::string, std::string> elements;
};

class PortRules {
 public:
  PortRules(const ProxySettings& settings, const ServicePort& port, ServiceRules& out)
      : settings_(settings),
        port_(port),
        words_(settings, port),
        table_(settings),
        inline_(Does(settings.version, Trait::kNftMarksInline)),
        out_(out),
        protocol_(NameOf(port.protocol)),
        base_(absl::StrCat(port.service, "/", protocol_, "/", port.port_name)),
        service_("service-" + HashedName(base_)),
        local_("local-" + HashedName(base_)),
        external_("external-" + HashedName(base_)),
        all_(words_.Endpoints()),
        local_endpoints_(PortWords::LocalOf(all_)) {}

  void Write() {
    Element("cluster-ips", port_.cluster_ip, "");
    std::vector<std::string> outside = port_.external_ips;
    outside.insert(outside.end(), port_.load_balancer_ips.begin(), port_.load_balancer_ips.end());
    reachable_outside_ = port_.node_port != 0 || !outside.empty();
    Chains();
    const std::string internal = port_.internal_local ? local_ : service_;
    if (Has(port_.internal_local)) ServiceIp(port_.cluster_ip, internal);
    if (!Has(port_.internal_local)) NoEndpoints(port_.cluster_ip);
    for (const std::string& address : outside) {
      if (!all_.empty()) ServiceIp(address, external_);
      if (!Has(port_.external_local)) NoEndpoints(address);
    }
    if (port_.node_port != 0) NodePort();
    if (all_.empty()) return;
    if (!inline_ && Has(port_.internal_local)) MasqueradeClusterIp(internal);
    if (reachable_outside_) External();
    Firewall();
    if (uses_cluster_) Balance(service_, all_);
    if (uses_local_) Balance(local_, local_endpoints_);
    for (const Endpoint& endpoint : reachable_) EndpointRules(endpoint);
  }

 private:
  // Whether there is an endpoint under this policy.
  bool Has(bool local_policy) const { return !(local_policy ? local_endpoints_ : all_).empty(); }
  bool HasEndpointChains() const { return !inline_ || port_.affinity_seconds != 0; }

  void Chains() {
    uses_cluster_ =
        !all_.empty() && (!port_.internal_local || (!port_.external_local && reachable_outside_));
    uses_local_ = !local_endpoints_.empty() &&
                  (port_.internal_local || (port_.external_local && reachable_outside_));
    if (uses_cluster_ || uses_local_) reachable_ = uses_cluster_ ? all_ : local_endpoints_;
    for (const Endpoint& endpoint : reachable_) {
      if (HasEndpointChains()) out_.chains.push_back("endpoint-" + NameOfEndpoint(endpoint));
      if (!inline_ || !endpoint.local) continue;
      const std::string& address = endpoint.address;
      Element("hairpin-connections",
              absl::StrCat(address, " . ", address, " . ", protocol_, " . ", endpoint.port), "");
    }
    if (uses_cluster_) out_.chains.push_back(service_);
    if (uses_local_) out_.chains.push_back(local_);
    if (!all_.empty() && reachable_outside_) out_.chains.push_back(external_);
  }

  std::string NameOfEndpoint(const Endpoint& endpoint) const {
    const std::string address = absl::StrReplaceAll(endpoint.address, {{":", "."}});
    return HashedName(absl::StrCat(base_, "__", address, "/", endpoint.port));
  }

  void Element(const std::string& set, const std::string& key, const std::string& rest) {
    out_.elements[absl::StrCat(set, " { ", key)] = rest;
  }
  void ServiceIp(const std::string& address, const std::string& chain) {
    Element("service-ips", ToPort(address), " : goto " + chain);
  }
  void NoEndpoints(const std::string& address) {
    Element("no-endpoint-services", ToPort(address), Refusal());
  }
  // A service with endpoints, none of which may be used.
  std::string Refusal() const {
    return absl::StrCat(" comment \"", words_.name(),
                        "\" : ", all_.empty() ? "goto reject-chain" : "drop");
  }
  std::string ToPort(const std::string& address) const {
    return absl::StrCat(address, " . ", protocol_, " . ", port_.port);
  }

  void NodePort() {
    const std::string key = absl::StrCat(protocol_, " . ", port_.node_port);
    if (!all_.empty()) Element("service-nodeports", key, " : goto " + external_);
    if (!Has(port_.external_local)) Element("no-endpoint-nodeports", key, Refusal());
  }

  void Rule(const std::string& chain, const std::string& rule) {
    out_.rules.push_back(table_.Line("add rule", absl::StrCat(chain, " ", rule)));
  }

  void MasqueradeClusterIp(const std::string& chain) {
    if (settings_.pod_cidr.empty()) return;
    const bool all_ports = Does(settings_.version, Trait::kNftMasqueradesAllPorts);
    const std::string to_port =
        all_ports ? "" : absl::StrCat(" ", protocol_, " dport ", port_.port);
    Rule(chain, absl::StrCat(table_.ip(), " daddr ", port_.cluster_ip, to_port, " ",
                             table_.NotFromPod(), " ", table_.MarkToMasquerade("")));
  }

  void External() {
    if (!port_.external_local) {
      Rule(external_, table_.MarkToMasquerade(inline_ ? "masquerade" : ""));
      return Rule(external_, "goto " + service_);
    }
    if (!settings_.pod_cidr.empty()) {
      Rule(external_, absl::StrCat(table_.ip(), " saddr ", settings_.pod_cidr, " goto ", service_,
                                   " comment \"short-circuit pod traffic\""));
    }
    Rule(external_, "fib saddr type local " + table_.MarkToMasquerade("masquerade local traffic"));
    Rule(external_, absl::StrCat("fib saddr type local goto ", service_,
                                 " comment \"short-circuit local traffic\""));
    if (uses_local_) Rule(external_, "goto " + local_);
  }

  void Firewall() {
    if (port_.load_balancer_ips.empty() || port_.source_ranges.empty()) return;
    const std::string chain = "firewall-" + HashedName(base_);
    out_.chains.push_back(chain);
    for (const std::string& address : port_.load_balancer_ips) {
      Element("firewall-ips", ToPort(address), " : goto " + chain);
    }
    Rule(chain, absl::StrCat(table_.ip(), " saddr != { ", absl::StrJoin(port_.source_ranges, ", "),
                             " } drop"));
  }

  void Balance(const std::string& chain, const Endpoints& endpoints) {
    std::vector<std::string> choices;
    for (const Endpoint& endpoint : endpoints) {
      const std::string name = NameOfEndpoint(endpoint);
      if (port_.affinity_seconds != 0) {
        Rule(chain, absl::StrCat(table_.ip(), " saddr @affinity-", name, " goto endpoint-", name));
      }
      choices.push_back(absl::StrCat(choices.size(), " : ",
                                     HasEndpointChains()
                                         ? "goto endpoint-" + name
                                         : absl::StrCat(endpoint.address, " . ", endpoint.port)));
    }
    const std::string random = absl::StrCat("numgen random mod ", endpoints.size());
    const std::string map = absl::StrCat("map { ", absl::StrJoin(choices, " , "), " }");
    Rule(chain, HasEndpointChains()
                    ? absl::StrCat(random, " v", map)
                    : absl::StrCat("meta l4proto ", protocol_, " dnat ", table_.ip(),
                                   " addr . port to ", random, " ", map));
  }

  void EndpointRules(const Endpoint& endpoint) {
    if (!HasEndpointChains()) return;
    const std::string name = NameOfEndpoint(endpoint);
    const std::string chain = "endpoint-" + name;
    if (!inline_) {
      Rule(chain, absl::StrCat(table_.ip(), " saddr ", endpoint.address, " ",
                               table_.MarkToMasquerade("")));
    }
    if (port_.affinity_seconds != 0) {
      out_.sets.push_back(table_.Line(
          "add set",
          absl::StrCat("affinity-", name, " { type ", table_.address_type(),
                       " ; flags dynamic,timeout ; timeout ", port_.affinity_seconds, "s ; }")));
      Rule(chain, absl::StrCat("update @affinity-", name, " { ", table_.ip(), " saddr }"));
    }
    Rule(chain, absl::StrCat("meta l4proto ", protocol_, " dnat to ", AddressAndPort(endpoint)));
  }

  const ProxySettings& settings_;
  const ServicePort& port_;
  const PortWords words_;
  const NftablesTable table_;
  const bool inline_;
  ServiceRules& out_;
  const std::string protocol_;
  const std::string base_;
  const std::string service_;
  const std::string local_;
  const std::string external_;
  const Endpoints all_;
  const Endpoints local_endpoints_;
  bool reachable_outside_ = false;
  bool uses_cluster_ = false;
  bool uses_local_ = false;
  Endpoints reachable_;
};

ServiceRules RulesOf(const ProxySettings& settings, const Ports& ports) {
  ServiceRules rules;
  for (const ServicePort& port : ports) PortRules(settings, port, rules).Write();
  return rules;
}

// Chains, sets and rules of `rules`; its elements without those of `before`.
std::string Text(const NftablesTable& table, const ServiceRules& rules,
                 const std::map<std::string, std::string>& before) {
  std::vector<std::string> lines;
  for (const std::string& chain : rules.chains) {
    lines.push_back(table.Line("add chain", chain));
    lines.push_back(table.Line("flush chain", chain));
  }
  lines.insert(lines.end(), rules.sets.begin(), rules.sets.end());
  for (const auto& element : rules.elements) {
    const auto& [key, rest] = element;
    const auto old = before.find(key);
    if (old != before.end() && old->second == rest) continue;
    if (old != before.end()) lines.push_back(table.Line("delete element", key + " }"));
    lines.push_back(table.Line("add element", absl::StrCat(key, rest, " }")));
  }
  lines.insert(lines.end(), rules.rules.begin(), rules.rules.end());
  return absl::StrJoin(lines, "");
}

}  // namespace

std::string NftablesSync(const ProxySettings& settings, const Ports& services) {
  const NftablesTable table(settings);
  return table.Head() + Text(table, RulesOf(settings, OfFamily(services, settings.family)), {});
}

std::string NftablesPartialSync(const ProxySettings& settings, const Ports& services,
                                const Ports& synced) {
  const NftablesTable table(settings);
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
  std::string text = Text(table, written, old.elements);
  for (const std::string& chain : old.chains) {
    if (std::find(needed.chains.begin(), needed.chains.end(), chain) == needed.chains.end()) {
      text += table.Line("flush chain", chain);
    }
  }
  for (const auto& element : old.elements) {
    if (needed.elements.contains(element.first)) continue;
    text += table.Line("delete element", element.first + " }");
  }
  return text;
}

std::string NftablesRemoval(testing::IpFamily family) {
  const NftablesTable table({.family = family});
  return absl::StrCat("add table ", table.ip(), " kube-proxy\ndelete table ", table.ip(),
                      " kube-proxy\n");
}

}  // namespace kipt::skew
