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

constexpr char kLocalDestination[] = "-m addrtype --dst-type LOCAL ";
constexpr char kFromNode[] = " -m addrtype --src-type LOCAL";

}  // namespace

void WriteServiceTo123(const ProxySettings& settings, const ServicePort& port, SyncTables* tables) {
  const Version version = settings.version;
  const PortText text(settings, port);
  TableText& nat = tables->nat;
  std::vector<Endpoint> endpoints = EndpointsOf(version, port);
  // The gate ServiceInternalTrafficPolicy is on from 1.22 on; external policy Local wins.
  if (Does(version, Trait::kInternalPolicy) && port.internal_local && !port.external_local) {
    endpoints = LocalOf(endpoints);
  }
  const bool serves = !endpoints.empty();
  const std::string not_from_pod = settings.pod_cidr.empty() ? "" : " ! -s $pods";
  const auto rule = [&](const std::string& chain, const std::string& words) {
    nat.Rule(text.Of(chain), text.Of(words));
  };
  // In the service's own chain, or the common one.
  const auto masquerade = [&](const std::string& common, const std::string& match) {
    const bool own = Does(version, Trait::kMasqueradesInServiceChain);
    rule(own ? "$svc" : common, match + " -j KUBE-MARK-MASQ");
  };
  const auto reject = [&](const std::string& chain, const std::string& match) {
    tables->filter.Rule(chain, text.Of("#none " + match + " -j REJECT"));
  };

  if (serves) nat.Chain(text.Of("$svc"));
  // Empty where the service has no endpoint at all.
  if (port.external_local) nat.Chain(text.Of("$xlb"));
  const std::string cluster = text.To(port.cluster_ip);
  if (!serves) reject("KUBE-SERVICES", cluster);
  if (serves && !not_from_pod.empty()) {
    masquerade("KUBE-SERVICES", "#cluster " + cluster + not_from_pod);
  }
  if (serves) rule("KUBE-SERVICES", "#cluster " + cluster + " -j $svc");

  for (const std::string& address : port.external_ips) {
    if (!serves) {
      reject("KUBE-EXTERNAL-SERVICES", text.To(address));
      continue;
    }
    // Up to 1.18 the policy Local does not hold for external addresses: the gate
    // ExternalPolicyForExternalIP is off. 1.19 was not seen, and is taken to be as 1.18.6.
    const bool local = port.external_local && Does(version, Trait::kLocalPolicyForExternalIps);
    const std::string to = "#external " + text.To(address);
    const std::string jump = local ? " -j $xlb" : " -j $svc";
    if (Does(version, Trait::kHealthCheckChain)) {
      if (!local) masquerade("KUBE-SERVICES", to + not_from_pod);
      rule("KUBE-SERVICES", to + jump);
      continue;
    }
    if (!local) rule("KUBE-SERVICES", to + " -j KUBE-MARK-MASQ");
    // From outside the node: neither from a container on a bridge nor from the node itself.
    rule("KUBE-SERVICES",
         absl::StrCat(to, " -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL", jump));
    rule("KUBE-SERVICES", absl::StrCat(to, " -m addrtype --dst-type LOCAL", jump));
  }

  const std::string outside = port.external_local ? " -j $xlb" : " -j $svc";
  for (const std::string& address : port.load_balancer_ips) {
    if (!serves) {
      const bool forwards = Does(version, Trait::kExternalServicesInForward);
      reject(forwards ? "KUBE-EXTERNAL-SERVICES" : "KUBE-SERVICES", text.To(address));
      continue;
    }
    nat.Chain(text.Of("$fw"));
    rule("KUBE-SERVICES", "#balancer " + text.To(address) + " -j $fw");
    if (!port.external_local) rule("$fw", "#balancer -j KUBE-MARK-MASQ");
    if (port.source_ranges.empty()) rule("$fw", "#balancer" + outside);
    for (const std::string& range : port.source_ranges) {
      rule("$fw", absl::StrCat("#balancer -s ", range, outside));
    }
    rule("$fw", "#balancer -j KUBE-MARK-DROP");
  }

  if (port.node_port != 0 && !serves) {
    reject("KUBE-EXTERNAL-SERVICES", absl::StrCat(kLocalDestination, "$to-node-port"));
  } else if (port.node_port != 0 && port.external_local) {
    const bool six = settings.family == testing::IpFamily::kIpv6;
    rule("KUBE-NODEPORTS", absl::StrCat("#bare $to-node-port -s ", six ? "::1/128" : "127.0.0.0/8",
                                        " -j KUBE-MARK-MASQ"));
    rule("KUBE-NODEPORTS", "#bare $to-node-port -j $xlb");
  } else if (port.node_port != 0) {
    masquerade("KUBE-NODEPORTS", "#bare $to-node-port");
    rule("KUBE-NODEPORTS", "#bare $to-node-port -j $svc");
  }
  WriteHealthCheck(text, &tables->filter);
  if (!serves) return;
  for (const Endpoint& endpoint : endpoints) WriteEndpoint(text, endpoint, &nat);
  WriteBalancing(text, "$svc", endpoints, &nat);
  if (!port.external_local) return;

  if (!settings.pod_cidr.empty()) {
    rule("$xlb", Comment("Redirect pods trying to reach external loadbalancer VIP to clusterIP") +
                     " -s $pods -j $svc");
  }
  rule("$xlb", absl::StrCat(Comment("masquerade LOCAL traffic for $name LB IP"), kFromNode,
                            " -j KUBE-MARK-MASQ"));
  rule("$xlb", absl::StrCat(Comment("route LOCAL traffic for $name LB IP to service chain"),
                            kFromNode, " -j $svc"));
  const std::vector<Endpoint> local = LocalOf(endpoints);
  if (local.empty()) rule("$xlb", "#no-local -j KUBE-MARK-DROP");
  WriteBalancing(text, "$xlb", local, &nat);
}

void WriteServiceFrom124(const ProxySettings& settings, const ServicePort& port, ServicePart part,
                         SyncTables* tables) {
  const Version version = settings.version;
  const PortText text(settings, port);
  TableText& filter = tables->filter;
  TableText& nat = tables->nat;
  const std::vector<Endpoint> endpoints = EndpointsOf(version, port);
  const std::vector<Endpoint> local = LocalOf(endpoints);
  const bool serves = !endpoints.empty();
  const bool drops_in_filter = Does(version, Trait::kProxyFirewall);
  const bool has_outside =
      port.node_port != 0 || !port.load_balancer_ips.empty() || !port.external_ips.empty();
  const bool has_firewall =
      serves && !port.load_balancer_ips.empty() && !port.source_ranges.empty();
  // 1.24 has chains for what is going to be dropped.
  const auto serves_by = [&](bool only_local) {
    return serves && (!drops_in_filter || !only_local || !local.empty());
  };
  const std::string inside = port.internal_local ? "$svl" : "$svc";
  const auto rule = [&](const std::string& chain, const std::string& words) {
    nat.Rule(text.Of(chain), text.Of(words));
  };
  // In the filter table, for what has no endpoint, or none that its policy allows.
  const auto refuse = [&](const std::string& chain, const std::string& match) {
    filter.Rule(chain, text.Of(absl::StrCat(serves ? "#no-local " : "#none ", match, " -j ",
                                            serves ? "DROP" : "REJECT")));
  };
  const auto from_outside = [&](const std::string& chain, const std::string& comment,
                                const std::string& to, const std::string& target) {
    if (serves) rule(chain, absl::StrCat(comment, " ", to, " -j ", target));
    if (serves_by(port.external_local)) return;
    const bool node_port = chain == "KUBE-NODEPORTS";
    refuse("KUBE-EXTERNAL-SERVICES", absl::StrCat(node_port ? kLocalDestination : "", to));
  };

  const std::string cluster = text.To(port.cluster_ip);
  if (serves_by(port.internal_local)) {
    rule("KUBE-SERVICES", absl::StrCat("#cluster ", cluster, " -j ", inside));
  } else {
    refuse("KUBE-SERVICES", cluster);
  }
  for (const std::string& address : port.external_ips) {
    from_outside("KUBE-SERVICES", "#external", text.To(address), "$ext");
  }
  for (const std::string& address : port.load_balancer_ips) {
    from_outside("KUBE-SERVICES", "#balancer", text.To(address), has_firewall ? "$fw" : "$ext");
    if (!has_firewall || !drops_in_filter) continue;
    filter.Rule("KUBE-PROXY-FIREWALL",
                text.Of(absl::StrCat(Comment("$name traffic not accepted by $fw"), " ",
                                     text.To(address), " -j DROP")));
  }
  if (port.node_port != 0) {
    const std::string counted = Counted(settings, kAcceptedLocalhost);
    // What comes to the node port of 127.0.0.1 is counted apart.
    if (!counted.empty() && settings.family == testing::IpFamily::kIpv4 && serves) {
      rule("KUBE-NODEPORTS", absl::StrCat("#bare $protocol -d 127.0.0.0/8 --dport ", port.node_port,
                                          " ", counted, " -j $ext"));
    }
    from_outside("KUBE-NODEPORTS", "#bare", "$to-node-port", "$ext");
  }
  WriteHealthCheck(text, &filter);
  if (part == ServicePart::kCommonChains || !serves) return;

  if (serves_by(port.internal_local) && !settings.pod_cidr.empty()) {
    rule(inside, absl::StrCat("#cluster ", cluster, " ! -s $pods -j KUBE-MARK-MASQ"));
  }
  if (has_outside) nat.Chain(text.Of("$ext"));
  if (has_outside && !port.external_local) {
    rule("$ext",
         Comment("masquerade traffic for $name external destinations") + " -j KUBE-MARK-MASQ");
    rule("$ext", "-j $svc");
  } else if (has_outside) {
    if (!settings.pod_cidr.empty()) {
      rule("$ext", Comment("pod traffic for $name external destinations") + " -s $pods -j $svc");
    }
    rule("$ext", absl::StrCat(Comment("masquerade LOCAL traffic for $name external destinations"),
                              kFromNode, " -j KUBE-MARK-MASQ"));
    rule("$ext", absl::StrCat(Comment("route LOCAL traffic for $name external destinations"),
                              kFromNode, " -j $svc"));
    if (serves_by(true)) rule("$ext", "-j $svl");
  }
  if (has_firewall) nat.Chain(text.Of("$fw"));
  // 1.24 writes them all again for each address.
  for (size_t i = 0; has_firewall && i < (drops_in_filter ? 1 : port.load_balancer_ips.size());
       ++i) {
    for (const std::string& range : port.source_ranges) {
      rule("$fw", absl::StrCat("#balancer -s ", range, " -j $ext"));
    }
    if (!drops_in_filter) rule("$fw", "#balancer -j KUBE-MARK-DROP");
  }
  // A rule that does nothing, for the reader.
  if (has_firewall && Does(version, Trait::kFirewallRemark)) {
    rule("$fw", Comment("other traffic to $name will be dropped by KUBE-PROXY-FIREWALL"));
  }
  // External traffic of pods and of the node itself goes to any endpoint, whatever the policy.
  const bool uses_all = !port.internal_local || has_outside;
  if (uses_all) {
    nat.Chain(text.Of("$svc"));
    WriteBalancing(text, "$svc", endpoints, &nat);
  }
  const bool uses_local = port.internal_local || (port.external_local && has_outside);
  if (uses_local && !(local.empty() && drops_in_filter)) {
    nat.Chain(text.Of("$svl"));
    if (local.empty()) rule("$svl", "#no-local -j KUBE-MARK-DROP");
    WriteBalancing(text, "$svl", local, &nat);
  }
  for (const Endpoint& endpoint : uses_all ? endpoints : local) {
    WriteEndpoint(text, endpoint, &nat);
  }
}

}  // namespace kipt::skew
