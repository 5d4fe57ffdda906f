// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
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

constexpr IpSet kLoopBack = {
    "LOOP-BACK", "hash:ip,port,ip",
    "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"};
constexpr IpSet kClusterIp = {"CLUSTER-IP", "hash:ip,port",
                              "Kubernetes service cluster ip + port for masquerade purpose"};
constexpr IpSet kExternalIp = {
    "EXTERNAL-IP", "hash:ip,port",
    "Kubernetes service external ip + port for masquerade and filter purpose"};
constexpr IpSet kLoadBalancer = {"LOAD-BALANCER", "hash:ip,port", "Kubernetes service lb portal"};
constexpr IpSet kFirewalled = {
    "LOAD-BALANCER-FW", "hash:ip,port",
    "Kubernetes service load balancer ip + port for load balancer with sourceRange"};
constexpr IpSet kLocal = {
    "LOAD-BALANCER-LOCAL", "hash:ip,port",
    "Kubernetes service load balancer ip + port with externalTrafficPolicy=local"};
constexpr IpSet kSourceRange = {
    "LOAD-BALANCER-SOURCE-CIDR", "hash:ip,port,net",
    "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"};
constexpr IpSet kNodePortTcp = {"NODE-PORT-TCP", "bitmap:port range 0-65535",
                                "Kubernetes nodeport TCP port for masquerade purpose"};
constexpr IpSet kHealthCheck = {"HEALTH-CHECK-NODE-PORT", "bitmap:port range 0-65535",
                                "Kubernetes health check node port"};
constexpr IpSet kAddresses = {"IPVS-IPS", "hash:ip", ""};

constexpr const IpSet* kSets[] = {&kLoopBack,    &kClusterIp, &kExternalIp,  &kLoadBalancer,
                                  &kFirewalled,  &kLocal,     &kSourceRange, &kNodePortTcp,
                                  &kHealthCheck, &kAddresses};

// The name is cut where the kernel's room for it ends.
std::string NameOf(const IpSet& set, IpFamily family) {
  constexpr size_t kLongestName = 31;
  return absl::StrCat(family == IpFamily::kIpv4 ? "KUBE-" : "KUBE-6-", set.name)
      .substr(0, kLongestName);
}

class IpvsRules {
 public:
  explicit IpvsRules(const ProxySettings& settings)
      : settings_(settings), version_(settings.version) {}

  std::string Text() && {
    Services();
    LoadBalancers();
    nat_.Chain("KUBE-NODE-PORT");
    nat_.Rule("KUBE-NODE-PORT", {"-p tcp", Commented(kNodePortTcp, "dst"), Jump("KUBE-MARK-MASQ")});
    nat_.Rule("KUBE-POSTROUTING", {Commented(kLoopBack, "dst,dst,src"), Jump("MASQUERADE")});
    WriteMasquerade(settings_, &nat_);
    filter_.Chain("KUBE-FORWARD");
    WriteForwardAccepts(settings_, &filter_);
    if (Does(version_, Trait::kIpvsNodePortChain)) {
      filter_.Chain("KUBE-NODE-PORT");
      filter_.Rule("KUBE-NODE-PORT", {Commented(kHealthCheck, "dst"), Jump("ACCEPT")});
    }
    if (Does(version_, Trait::kIpvsAccessFilter)) AccessFilter();
    return tables_.Text();
  }

 private:
  std::string Matches(const IpSet& set, const std::string& what) const {
    return absl::StrCat("-m set --match-set ", NameOf(set, settings_.family), " ", what);
  }
  std::string Commented(const IpSet& set, const std::string& what) const {
    return absl::StrCat(Comment(set.comment), " ", Matches(set, what));
  }

  void Services() {
    const bool six = settings_.family == IpFamily::kIpv6;
    const std::string chain = "KUBE-SERVICES";
    nat_.Chain(chain);
    if (Does(version_, Trait::kIpvsAccessFilter)) {
      nat_.Rule(chain, {six ? "-s ::1/128" : "-s 127.0.0.0/8", Jump("RETURN")});
    }
    nat_.Rule(chain, {Commented(kLoadBalancer, "dst,dst"), Jump("KUBE-LOAD-BALANCER")});
    // Without a local detector: what comes from a service's own address.
    const bool detects = !settings_.pod_cidr.empty();
    nat_.Rule(chain, {Commented(kClusterIp, detects ? "dst,dst" : "src,dst"),
                      detects ? "! -s " + settings_.pod_cidr : "", Jump("KUBE-MARK-MASQ")});
    nat_.Rule(chain, {Commented(kExternalIp, "dst,dst"), Jump("KUBE-MARK-MASQ")});
    nat_.Rule(chain, {"-m addrtype --dst-type LOCAL", Jump("KUBE-NODE-PORT")});
    nat_.Rule(chain, {Matches(kClusterIp, "dst,dst"), Jump("ACCEPT")});
    nat_.Rule(chain, {Matches(kLoadBalancer, "dst,dst"), Jump("ACCEPT")});
  }

  // The name clash: up to 1.24 IPVS has a KUBE-FIREWALL of its own, in nat.
  void LoadBalancers() {
    const std::string chain = "KUBE-LOAD-BALANCER";
    const bool marks = Does(version_, Trait::kIpvsDropsByMarkDrop);
    TableText& table = marks ? nat_ : filter_;
    const std::string from = marks ? chain : "KUBE-PROXY-FIREWALL";
    const std::string firewall = marks ? "KUBE-FIREWALL" : "KUBE-SOURCE-RANGES-FIREWALL";
    nat_.Chain(chain);
    table.Chain(from);
    table.Chain(firewall);
    if (Does(version_, Trait::kIpvsEmptiesMarkDrop)) nat_.Chain("KUBE-MARK-DROP");
    table.Rule(from, {Commented(kFirewalled, "dst,dst"), Jump(firewall)});
    table.Rule(firewall, {Commented(kSourceRange, "dst,dst,src"), Jump("RETURN")});
    table.Rule(firewall, {Jump(marks ? "KUBE-MARK-DROP" : "DROP")});
    nat_.Rule(chain, {Commented(kLocal, "dst,dst"), Jump("RETURN")});
    nat_.Rule(chain, {Jump("KUBE-MARK-MASQ")});
  }

  // Keeps the node's own ports from being reached through service addresses.
  void AccessFilter() {
    const std::string chain = "KUBE-IPVS-FILTER";
    filter_.Chain(chain);
    filter_.Rule(chain, {Matches(kLoadBalancer, "dst,dst"), Jump("RETURN")});
    filter_.Rule(chain, {Matches(kClusterIp, "dst,dst"), Jump("RETURN")});
    filter_.Rule(chain, {Matches(kExternalIp, "dst,dst"), Jump("RETURN")});
    if (Does(version_, Trait::kIpvsHealthCheckSet)) {
      filter_.Rule(chain, {Matches(kHealthCheck, "dst"), Jump("RETURN")});
    }
    if (Does(version_, Trait::kIpvsOutFilter)) filter_.Chain("KUBE-IPVS-OUT-FILTER");
    filter_.Rule(chain, {"-m conntrack --ctstate NEW", Matches(kAddresses, "dst"), Jump("REJECT")});
  }

  const ProxySettings& settings_;
  const Version version_;
  SyncTables tables_;
  TableText& filter_ = tables_.filter;
  TableText& nat_ = tables_.nat;
};

}  // namespace

std::vector<ProxyJump> IpvsJumps(const ProxySettings& settings) {
  std::vector<ProxyJump> jumps;
  const auto add = [&jumps](const char* table, const char* chain, const char* base_chain,
                            const char* comment) {
    jumps.push_back({table, chain, base_chain, {"-m", "comment", "--comment", comment}});
  };
  const Version version = settings.version;
  add("nat", "KUBE-SERVICES", "OUTPUT", "kubernetes service portals");
  add("nat", "KUBE-SERVICES", "PREROUTING", "kubernetes service portals");
  add("nat", "KUBE-POSTROUTING", "POSTROUTING", "kubernetes postrouting rules");
  add("filter", "KUBE-FORWARD", "FORWARD", "kubernetes forwarding rules");
  if (Does(version, Trait::kIpvsNodePortChain)) {
    add("filter", "KUBE-NODE-PORT", "INPUT", "kubernetes health check rules");
  }
  if (!Does(version, Trait::kIpvsDropsByMarkDrop)) {
    add("filter", "KUBE-PROXY-FIREWALL", "INPUT", "kube-proxy firewall rules");
    add("filter", "KUBE-PROXY-FIREWALL", "FORWARD", "kube-proxy firewall rules");
  }
  const char* filter = "kubernetes ipvs access filter";
  if (Does(version, Trait::kIpvsAccessFilter)) add("filter", "KUBE-IPVS-FILTER", "INPUT", filter);
  if (Does(version, Trait::kIpvsOutFilter)) add("filter", "KUBE-IPVS-OUT-FILTER", "OUTPUT", filter);
  return jumps;
}

std::string IpvsSets(const ProxySettings& settings) {
  const bool six = settings.family == IpFamily::kIpv6;
  std::string text;
  for (const IpSet* set : kSets) {
    const bool has_family = set->type[0] == 'h';
    absl::StrAppend(&text, "create ", NameOf(*set, settings.family), " ", set->type,
                    has_family ? (six ? " family inet6" : " family inet") : "", "\n");
  }
  return text;
}

std::string IpvsSync(const ProxySettings& settings) { return IpvsRules(settings).Text(); }

}  // namespace kipt::skew
