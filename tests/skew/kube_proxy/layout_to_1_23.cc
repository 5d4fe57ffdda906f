// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/kube_proxy/layout_to_1_23.h"

#include <string>
#include <vector>

#include "tests/skew/kube_proxy/endpoint_rules.h"
#include "tests/skew/kube_proxy/port_words.h"

namespace kipt::skew {
namespace {

class Service {
 public:
  Service(const ProxySettings& settings, const ServicePort& port, SyncTables* tables)
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

}  // namespace

void WriteServiceTo123(const ProxySettings& settings, const ServicePort& port, SyncTables* tables) {
  Service(settings, port, tables).Write();
}

}  // namespace kipt::skew
