// SPDX-License-Identifier: Apache-2.0
//
// Source: setupNFTables() and syncProxyRules() in Kubernetes' pkg/proxy/nftables/proxier.go.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/kube_proxy/rule_parts.h"
#include "tests/skew/kube_proxy/services.h"

namespace kipt::skew {
namespace {

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
