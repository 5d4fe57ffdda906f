// SPDX-License-Identifier: Apache-2.0
//
// The chains of a service, as two generations of kube-proxy lay them out.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/kube_proxy/rule_parts.h"

namespace kipt::skew {
namespace {

class ServiceTo123 {
 public:
  ServiceTo123(const ProxySettings& settings, const ServicePort& port, SyncTables* tables)
      : version_(settings.version),
        six_(settings.family == testing::IpFamily::kIpv6),
        port_(port),
        words_(settings, port),
        filter_(tables->filter),
        nat_(tables->nat),
        svc_(words_.Chain("KUBE-SVC-")),
        xlb_(words_.Chain("KUBE-XLB-")),
        fw_(words_.Chain("KUBE-FW-")),
        endpoints_(words_.Endpoints()) {
    // The gate ServiceInternalTrafficPolicy is on from 1.22 on; external policy Local wins.
    if (Does(version_, Trait::kInternalPolicy) && port.internal_local && !port.external_local) {
      endpoints_ = PortWords::LocalOf(endpoints_);
    }
  }

  void Write() {
    if (!endpoints_.empty()) nat_.Chain(svc_);
    // Empty where the service has no endpoint at all.
    if (port_.external_local) nat_.Chain(xlb_);
    ClusterIp();
    for (const std::string& address : port_.external_ips) ExternalIp(address);
    for (const std::string& address : port_.load_balancer_ips) LoadBalancer(address);
    if (port_.node_port != 0) NodePort();
    WriteHealthCheck(words_, &filter_);
    if (endpoints_.empty()) return;
    for (const Endpoint& endpoint : endpoints_) WriteEndpoint(words_, endpoint, &nat_);
    WriteBalancing(words_, svc_, endpoints_, &nat_);
    if (port_.external_local) LocalChain();
  }

 private:
  // Where rules stand that masquerade what else would stand in `common`.
  const std::string& MasqueradesIn(const std::string& common) const {
    return Does(version_, Trait::kMasqueradesInServiceChain) ? svc_ : common;
  }

  void Reject(const std::string& chain, const std::string& match) {
    filter_.Rule(chain, {words_.Named(" has no endpoints"), match, Jump("REJECT")});
  }

  void ClusterIp() {
    const std::string to = words_.To(port_.cluster_ip);
    if (endpoints_.empty()) return Reject("KUBE-SERVICES", to);
    const std::string comment = words_.Named(" cluster IP");
    if (!words_.NotFromPod().empty()) {
      nat_.Rule(MasqueradesIn("KUBE-SERVICES"),
                {comment, to, words_.NotFromPod(), Jump("KUBE-MARK-MASQ")});
    }
    nat_.Rule("KUBE-SERVICES", {comment, to, Jump(svc_)});
  }

  void ExternalIp(const std::string& address) {
    const std::string to = words_.To(address);
    if (endpoints_.empty()) return Reject("KUBE-EXTERNAL-SERVICES", to);
    const std::string comment = words_.Named(" external IP");
    // Up to 1.18 the policy Local does not hold for external addresses: the gate
    // ExternalPolicyForExternalIP is off. 1.19 was not seen, and is taken to be as 1.18.6.
    const bool local = port_.external_local && Does(version_, Trait::kLocalPolicyForExternalIps);
    const std::string& target = local ? xlb_ : svc_;
    if (Does(version_, Trait::kHealthCheckChain)) {
      if (!local) {
        nat_.Rule(MasqueradesIn("KUBE-SERVICES"),
                  {comment, to, words_.NotFromPod(), Jump("KUBE-MARK-MASQ")});
      }
      nat_.Rule("KUBE-SERVICES", {comment, to, Jump(target)});
      return;
    }
    if (!local) nat_.Rule("KUBE-SERVICES", {comment, to, Jump("KUBE-MARK-MASQ")});
    // From outside the node, that is not from a container behind a bridge nor from the node itself.
    nat_.Rule("KUBE-SERVICES", {comment, to, "-m physdev ! --physdev-is-in",
                                "-m addrtype ! --src-type LOCAL", Jump(target)});
    nat_.Rule("KUBE-SERVICES", {comment, to, "-m addrtype --dst-type LOCAL", Jump(target)});
  }

  void LoadBalancer(const std::string& address) {
    const std::string to = words_.To(address);
    if (endpoints_.empty()) {
      return Reject(Does(version_, Trait::kExternalServicesInForward) ? "KUBE-EXTERNAL-SERVICES"
                                                                      : "KUBE-SERVICES",
                    to);
    }
    const std::string comment = words_.Named(" loadbalancer IP");
    const std::string& target = port_.external_local ? xlb_ : svc_;
    nat_.Chain(fw_);
    nat_.Rule("KUBE-SERVICES", {comment, to, Jump(fw_)});
    if (!port_.external_local) nat_.Rule(fw_, {comment, Jump("KUBE-MARK-MASQ")});
    if (port_.source_ranges.empty()) nat_.Rule(fw_, {comment, Jump(target)});
    for (const std::string& range : port_.source_ranges) {
      nat_.Rule(fw_, {comment, "-s " + range, Jump(target)});
    }
    nat_.Rule(fw_, {comment, Jump("KUBE-MARK-DROP")});
  }

  void NodePort() {
    const std::string to = words_.ToNodePort();
    if (endpoints_.empty()) {
      return Reject("KUBE-EXTERNAL-SERVICES", "-m addrtype --dst-type LOCAL " + to);
    }
    if (port_.external_local) {
      nat_.Rule("KUBE-NODEPORTS", {words_.Named(""), to, six_ ? "-s ::1/128" : "-s 127.0.0.0/8",
                                   Jump("KUBE-MARK-MASQ")});
      nat_.Rule("KUBE-NODEPORTS", {words_.Named(""), to, Jump(xlb_)});
      return;
    }
    nat_.Rule(MasqueradesIn("KUBE-NODEPORTS"), {words_.Named(""), to, Jump("KUBE-MARK-MASQ")});
    nat_.Rule("KUBE-NODEPORTS", {words_.Named(""), to, Jump(svc_)});
  }

  void LocalChain() {
    if (!words_.FromPod().empty()) {
      nat_.Rule(xlb_,
                {Comment("Redirect pods trying to reach external loadbalancer VIP to clusterIP"),
                 words_.FromPod(), Jump(svc_)});
    }
    const std::string from_node = "-m addrtype --src-type LOCAL";
    nat_.Rule(xlb_, {Comment("masquerade LOCAL traffic for " + words_.name() + " LB IP"), from_node,
                     Jump("KUBE-MARK-MASQ")});
    nat_.Rule(xlb_,
              {Comment("route LOCAL traffic for " + words_.name() + " LB IP to service chain"),
               from_node, Jump(svc_)});
    const std::vector<Endpoint> local = PortWords::LocalOf(endpoints_);
    if (local.empty()) {
      nat_.Rule(xlb_, {words_.Named(" has no local endpoints"), Jump("KUBE-MARK-DROP")});
    }
    WriteBalancing(words_, xlb_, local, &nat_);
  }

  const Version version_;
  const bool six_;
  const ServicePort& port_;
  const PortWords words_;
  TableText& filter_;
  TableText& nat_;
  const std::string svc_;
  const std::string xlb_;
  const std::string fw_;
  std::vector<Endpoint> endpoints_;
};

class ServiceFrom124 {
 public:
  ServiceFrom124(const ProxySettings& settings, const ServicePort& port, SyncTables* tables)
      : settings_(settings),
        version_(settings.version),
        port_(port),
        words_(settings, port),
        filter_(tables->filter),
        nat_(tables->nat),
        svc_(words_.Chain("KUBE-SVC-")),
        svl_(words_.Chain("KUBE-SVL-")),
        ext_(words_.Chain("KUBE-EXT-")),
        fw_(words_.Chain("KUBE-FW-")),
        endpoints_(words_.Endpoints()),
        local_(PortWords::LocalOf(endpoints_)),
        has_external_address_(port.node_port != 0 || !port.load_balancer_ips.empty() ||
                              !port.external_ips.empty()) {}

  void WriteCommonChains() {
    ClusterIp();
    for (const std::string& address : port_.external_ips) {
      ExternalDestination("KUBE-SERVICES", " external IP", words_.To(address), ext_);
    }
    for (const std::string& address : port_.load_balancer_ips) {
      ExternalDestination("KUBE-SERVICES", " loadbalancer IP", words_.To(address),
                          HasFirewall() ? fw_ : ext_);
      if (HasFirewall() && DropsInFilter()) {
        filter_.Rule("KUBE-PROXY-FIREWALL", {words_.Named(" traffic not accepted by " + fw_),
                                             words_.To(address), Jump("DROP")});
      }
    }
    if (port_.node_port != 0) {
      CountLocalhost();
      ExternalDestination("KUBE-NODEPORTS", "", words_.ToNodePort(), ext_);
    }
    WriteHealthCheck(words_, &filter_);
  }

  void WriteOwnChains() {
    if (endpoints_.empty()) return;
    if (ServesInside() && !words_.NotFromPod().empty()) {
      nat_.Rule(InsideChain(), {words_.Named(" cluster IP"), words_.To(port_.cluster_ip),
                                words_.NotFromPod(), Jump("KUBE-MARK-MASQ")});
    }
    if (has_external_address_) ExternalChain();
    if (HasFirewall()) FirewallChain();
    if (UsesAll()) {
      nat_.Chain(svc_);
      WriteBalancing(words_, svc_, endpoints_, &nat_);
    }
    if (UsesLocal()) LocalChain();
    for (const Endpoint& endpoint : UsesAll() ? endpoints_ : local_) {
      WriteEndpoint(words_, endpoint, &nat_);
    }
  }

 private:
  // What comes to the node port of 127.0.0.1 is counted apart.
  void CountLocalhost() {
    const std::string counted = Counted(settings_, kAcceptedLocalhost);
    const bool ipv4 = settings_.family == testing::IpFamily::kIpv4;
    if (counted.empty() || !ipv4 || endpoints_.empty()) return;
    nat_.Rule("KUBE-NODEPORTS", {words_.Named(""), words_.OfProtocol(), "-d 127.0.0.0/8",
                                 absl::StrCat("--dport ", port_.node_port), counted, Jump(ext_)});
  }

  bool DropsInFilter() const { return Does(version_, Trait::kProxyFirewall); }
  bool HasFirewall() const {
    return !endpoints_.empty() && !port_.load_balancer_ips.empty() && !port_.source_ranges.empty();
  }
  // External traffic of pods and of the node itself goes to any endpoint, whatever the policy.
  bool UsesAll() const { return !port_.internal_local || has_external_address_; }
  bool UsesLocal() const {
    return port_.internal_local || (port_.external_local && has_external_address_);
  }
  // 1.24 has chains for what is going to be dropped.
  bool ServesInside() const { return Serves(port_.internal_local); }
  bool ServesOutside() const { return Serves(port_.external_local); }
  bool Serves(bool only_local) const {
    if (endpoints_.empty()) return false;
    return !DropsInFilter() || !only_local || !local_.empty();
  }
  const std::string& InsideChain() const { return port_.internal_local ? svl_ : svc_; }

  // In the filter table, for what has no endpoint, or none that its policy allows.
  void Refuse(const std::string& chain, const std::string& match) {
    const bool none = endpoints_.empty();
    filter_.Rule(chain, {words_.Named(none ? " has no endpoints" : " has no local endpoints"),
                         match, Jump(none ? "REJECT" : "DROP")});
  }

  void ClusterIp() {
    const std::string to = words_.To(port_.cluster_ip);
    if (!ServesInside()) return Refuse("KUBE-SERVICES", to);
    nat_.Rule("KUBE-SERVICES", {words_.Named(" cluster IP"), to, Jump(InsideChain())});
  }

  void ExternalDestination(const std::string& chain, const std::string& comment,
                           const std::string& to, const std::string& target) {
    if (!endpoints_.empty()) nat_.Rule(chain, {words_.Named(comment), to, Jump(target)});
    if (ServesOutside()) return;
    const bool node_port = chain == "KUBE-NODEPORTS";
    Refuse("KUBE-EXTERNAL-SERVICES", node_port ? "-m addrtype --dst-type LOCAL " + to : to);
  }

  void ExternalChain() {
    nat_.Chain(ext_);
    const std::string rest = words_.name() + " external destinations";
    if (!port_.external_local) {
      nat_.Rule(ext_, {Comment("masquerade traffic for " + rest), Jump("KUBE-MARK-MASQ")});
      nat_.Rule(ext_, {Jump(svc_)});
      return;
    }
    if (!words_.FromPod().empty()) {
      nat_.Rule(ext_, {Comment("pod traffic for " + rest), words_.FromPod(), Jump(svc_)});
    }
    const std::string from_node = "-m addrtype --src-type LOCAL";
    nat_.Rule(ext_,
              {Comment("masquerade LOCAL traffic for " + rest), from_node, Jump("KUBE-MARK-MASQ")});
    nat_.Rule(ext_, {Comment("route LOCAL traffic for " + rest), from_node, Jump(svc_)});
    if (ServesOutside()) nat_.Rule(ext_, {Jump(svl_)});
  }

  void FirewallChain() {
    nat_.Chain(fw_);
    const std::string comment = words_.Named(" loadbalancer IP");
    // 1.24 writes them all again for each address.
    const size_t times = DropsInFilter() ? 1 : port_.load_balancer_ips.size();
    for (size_t i = 0; i < times; ++i) {
      for (const std::string& range : port_.source_ranges) {
        nat_.Rule(fw_, {comment, "-s " + range, Jump(ext_)});
      }
      if (!DropsInFilter()) nat_.Rule(fw_, {comment, Jump("KUBE-MARK-DROP")});
    }
    // A rule that does nothing, for the reader.
    if (Does(version_, Trait::kFirewallRemark)) {
      nat_.Rule(fw_, {Comment("other traffic to " + words_.name() +
                              " will be dropped by KUBE-PROXY-FIREWALL")});
    }
  }

  void LocalChain() {
    if (local_.empty() && DropsInFilter()) return;
    nat_.Chain(svl_);
    if (local_.empty()) {
      nat_.Rule(svl_, {words_.Named(" has no local endpoints"), Jump("KUBE-MARK-DROP")});
    }
    WriteBalancing(words_, svl_, local_, &nat_);
  }

  const ProxySettings& settings_;
  const Version version_;
  const ServicePort& port_;
  const PortWords words_;
  TableText& filter_;
  TableText& nat_;
  const std::string svc_;
  const std::string svl_;
  const std::string ext_;
  const std::string fw_;
  const std::vector<Endpoint> endpoints_;
  const std::vector<Endpoint> local_;
  const bool has_external_address_;
};

}  // namespace

void WriteServiceTo123(const ProxySettings& settings, const ServicePort& port, SyncTables* tables) {
  ServiceTo123(settings, port, tables).Write();
}

void WriteServiceFrom124(const ProxySettings& settings, const ServicePort& port, ServicePart part,
                         SyncTables* tables) {
  ServiceFrom124 service(settings, port, tables);
  service.WriteCommonChains();
  if (part == ServicePart::kWhole) service.WriteOwnChains();
}

}  // namespace kipt::skew
