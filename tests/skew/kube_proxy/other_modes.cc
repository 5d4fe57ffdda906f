// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/kube_proxy/rule_parts.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

struct IpSet {
  const char* name;
  const char* type;
  // kube-proxy's comment on rules that match the set.
  const char* comment;
};
constexpr IpSet kSets[] = {
    {"LOOP-BACK", "hash:ip,port,ip",
     "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"},
    {"CLUSTER-IP", "hash:ip,port", "Kubernetes service cluster ip + port for masquerade purpose"},
    {"EXTERNAL-IP", "hash:ip,port",
     "Kubernetes service external ip + port for masquerade and filter purpose"},
    {"LOAD-BALANCER", "hash:ip,port", "Kubernetes service lb portal"},
    {"LOAD-BALANCER-FW", "hash:ip,port",
     "Kubernetes service load balancer ip + port for load balancer with sourceRange"},
    {"LOAD-BALANCER-LOCAL", "hash:ip,port",
     "Kubernetes service load balancer ip + port with externalTrafficPolicy=local"},
    {"LOAD-BALANCER-SOURCE-CIDR", "hash:ip,port,net",
     "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"},
    {"NODE-PORT-TCP", "bitmap:port range 0-65535",
     "Kubernetes nodeport TCP port for masquerade purpose"},
    {"HEALTH-CHECK-NODE-PORT", "bitmap:port range 0-65535", "Kubernetes health check node port"},
    {"IPVS-IPS", "hash:ip", ""},
};

// The name is cut where the kernel's room for it ends.
std::string NameOf(const IpSet& set, IpFamily family) {
  constexpr size_t kLongestName = 31;
  return absl::StrCat(family == IpFamily::kIpv4 ? "KUBE-" : "KUBE-6-", set.name)
      .substr(0, kLongestName);
}

}  // namespace

std::vector<ProxyJump> IpvsJumps(const ProxySettings& settings) {
  const Version version = settings.version;
  const bool firewall = !Does(version, Trait::kIpvsDropsByMarkDrop);
  const char* portals = "kubernetes service portals";
  const char* filter = "kubernetes ipvs access filter";
  return JumpsWhere({
      {true, "nat", "KUBE-SERVICES", "OUTPUT", portals},
      {true, "nat", "KUBE-SERVICES", "PREROUTING", portals},
      {true, "nat", "KUBE-POSTROUTING", "POSTROUTING", "kubernetes postrouting rules"},
      {true, "filter", "KUBE-FORWARD", "FORWARD", "kubernetes forwarding rules"},
      {Does(version, Trait::kIpvsNodePortChain), "filter", "KUBE-NODE-PORT", "INPUT",
       "kubernetes health check rules"},
      {firewall, "filter", "KUBE-PROXY-FIREWALL", "INPUT", "kube-proxy firewall rules"},
      {firewall, "filter", "KUBE-PROXY-FIREWALL", "FORWARD", "kube-proxy firewall rules"},
      {Does(version, Trait::kIpvsAccessFilter), "filter", "KUBE-IPVS-FILTER", "INPUT", filter},
      {Does(version, Trait::kIpvsOutFilter), "filter", "KUBE-IPVS-OUT-FILTER", "OUTPUT", filter},
  });
}

std::string IpvsSets(const ProxySettings& settings) {
  const bool six = settings.family == IpFamily::kIpv6;
  std::string text;
  for (const IpSet& set : kSets) {
    const bool has_family = set.type[0] == 'h';
    absl::StrAppend(&text, "create ", NameOf(set, settings.family), " ", set.type,
                    has_family ? (six ? " family inet6" : " family inet") : "", "\n");
  }
  return text;
}

std::string IpvsSync(const ProxySettings& settings) {
  const Version version = settings.version;
  // "@SET" matches it, "#SET" too, with its comment.
  std::vector<std::pair<std::string, std::string>> matches;
  for (const IpSet& set : kSets) {
    const std::string match =
        absl::StrCat("-m set --match-set ", NameOf(set, settings.family), " ");
    matches.emplace_back(absl::StrCat("@", set.name, " "), match);
    matches.emplace_back(absl::StrCat("#", set.name, " "), Comment(set.comment) + " " + match);
  }
  // Empty rules are left out.
  const auto add = [&matches](TableText& table, const std::string& chain,
                              const std::vector<std::string>& rules) {
    table.Chain(chain);
    for (const std::string& rule : rules) {
      if (!rule.empty()) table.Rule(chain, absl::StrReplaceAll(rule, matches));
    }
  };
  SyncTables tables;
  TableText& filter = tables.filter;
  TableText& nat = tables.nat;
  const bool filters = Does(version, Trait::kIpvsAccessFilter);
  const std::string localhost =
      settings.family == IpFamily::kIpv6 ? "-s ::1/128" : "-s 127.0.0.0/8";
  // Without a local detector: what comes from a service's own address.
  const std::string from_outside =
      settings.pod_cidr.empty() ? "src,dst" : "dst,dst ! -s " + settings.pod_cidr;
  add(nat, "KUBE-SERVICES",
      {filters ? localhost + " -j RETURN" : "", "#LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER",
       absl::StrCat("#CLUSTER-IP ", from_outside, " -j KUBE-MARK-MASQ"),
       "#EXTERNAL-IP dst,dst -j KUBE-MARK-MASQ", "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT",
       "@CLUSTER-IP dst,dst -j ACCEPT", "@LOAD-BALANCER dst,dst -j ACCEPT"});
  // The name clash: up to 1.24 IPVS has a KUBE-FIREWALL of its own, in nat.
  const bool marks = Does(version, Trait::kIpvsDropsByMarkDrop);
  const std::string firewall = marks ? "KUBE-FIREWALL" : "KUBE-SOURCE-RANGES-FIREWALL";
  if (Does(version, Trait::kIpvsEmptiesMarkDrop)) nat.Chain("KUBE-MARK-DROP");
  add(marks ? nat : filter, marks ? "KUBE-LOAD-BALANCER" : "KUBE-PROXY-FIREWALL",
      {"#LOAD-BALANCER-FW dst,dst -j " + firewall});
  add(marks ? nat : filter, firewall,
      {"#LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j RETURN",
       marks ? "-j KUBE-MARK-DROP" : "-j DROP"});
  add(nat, "KUBE-LOAD-BALANCER", {"#LOAD-BALANCER-LOCAL dst,dst -j RETURN", "-j KUBE-MARK-MASQ"});
  add(nat, "KUBE-NODE-PORT", {"-p tcp #NODE-PORT-TCP dst -j KUBE-MARK-MASQ"});
  add(nat, "KUBE-POSTROUTING", {"#LOOP-BACK dst,dst,src -j MASQUERADE"});
  WriteMasquerade(settings, &nat);
  filter.Chain("KUBE-FORWARD");
  WriteForwardAccepts(settings, &filter);
  if (Does(version, Trait::kIpvsNodePortChain)) {
    add(filter, "KUBE-NODE-PORT", {"#HEALTH-CHECK-NODE-PORT dst -j ACCEPT"});
  }
  if (Does(version, Trait::kIpvsOutFilter)) filter.Chain("KUBE-IPVS-OUT-FILTER");
  if (!filters) return tables.Text();
  // Keeps the node's own ports from being reached through service addresses.
  add(filter, "KUBE-IPVS-FILTER",
      {"@LOAD-BALANCER dst,dst -j RETURN", "@CLUSTER-IP dst,dst -j RETURN",
       "@EXTERNAL-IP dst,dst -j RETURN",
       Does(version, Trait::kIpvsHealthCheckSet) ? "@HEALTH-CHECK-NODE-PORT dst -j RETURN" : "",
       "-m conntrack --ctstate NEW @IPVS-IPS dst -j REJECT"});
  return tables.Text();
}

}  // namespace kipt::skew
