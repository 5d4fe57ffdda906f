// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/kube_proxy/proxy_rules.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "tests/skew/kube_proxy/rule_parts.h"

namespace kipt::skew {
namespace {

using Ports = std::vector<ServicePort>;

void WriteService(const ProxySettings& settings, const ServicePort& port, ServicePart part,
                  SyncTables* tables) {
  if (!Does(settings.version, Trait::kExtChains)) return WriteServiceTo123(settings, port, tables);
  WriteServiceFrom124(settings, port, part, tables);
}

void WriteAll(const ProxySettings& settings, const Ports& ports, SyncTables* tables) {
  BeginSync(settings, tables);
  for (const ServicePort& port : ports) {
    WriteService(settings, port, ServicePart::kWhole, tables);
  }
}

// Every chain in nat that these services have.
std::set<std::string> ServiceChains(const ProxySettings& settings, const Ports& ports) {
  SyncTables tables;
  WriteAll(settings, ports, &tables);
  std::set<std::string> chains = tables.nat.chains();
  std::erase_if(chains, [&settings](const std::string& chain) {
    return !IsServiceChain(settings.version, chain);
  });
  return chains;
}

template <typename Chains>
void DeleteStale(Version version, const Chains& existing, const std::set<std::string>& needed,
                 TableText* nat) {
  for (const std::string& chain : std::set<std::string>(existing.begin(), existing.end())) {
    if (IsServiceChain(version, chain) && needed.count(chain) == 0) nat->Delete(chain);
  }
}

Ports OfService(const Ports& ports, const std::string& service) {
  Ports rest = ports;
  std::erase_if(rest, [&service](const ServicePort& port) { return port.service != service; });
  return rest;
}

bool IsUnchanged(const Ports& now, const Ports& before) {
  return now.size() == before.size() && std::is_permutation(now.begin(), now.end(), before.begin());
}

}  // namespace

Ports OfFamily(const Ports& services, testing::IpFamily family) {
  Ports ports = services;
  std::erase_if(ports, [family](const ServicePort& port) {
    const bool six = port.cluster_ip.find(':') != std::string::npos;
    return six != (family == testing::IpFamily::kIpv6);
  });
  return ports;
}

bool IsServiceChain(Version version, const std::string& chain) {
  for (const char* prefix : {"KUBE-SVC-", "KUBE-SEP-", "KUBE-FW-"}) {
    if (absl::StartsWith(chain, prefix)) return true;
  }
  if (absl::StartsWith(chain, "KUBE-XLB-")) return Does(version, Trait::kKnowsXlbChains);
  const bool newer = absl::StartsWith(chain, "KUBE-EXT-") || absl::StartsWith(chain, "KUBE-SVL-");
  return newer && Does(version, Trait::kExtChains);
}

std::string FullSync(const ProxySettings& settings, const Ports& services,
                     const std::vector<std::string>& existing) {
  const Ports ports = OfFamily(services, settings.family);
  SyncTables tables;
  WriteAll(settings, ports, &tables);
  DeleteStale(settings.version, existing, tables.nat.chains(), &tables.nat);
  EndSync(settings, &tables);
  return tables.Text();
}

std::string PartialSync(const ProxySettings& settings, const Ports& services, const Ports& synced) {
  const Ports before = OfFamily(synced, settings.family);
  const std::set<std::string> existing = ServiceChains(settings, before);
  if (!Does(settings.version, Trait::kPartialSyncs)) {
    return FullSync(settings, services, {existing.begin(), existing.end()});
  }
  const Ports now = OfFamily(services, settings.family);
  SyncTables tables;
  BeginSync(settings, &tables);
  for (const ServicePort& port : now) {
    const bool same = IsUnchanged(OfService(now, port.service), OfService(before, port.service));
    WriteService(settings, port, same ? ServicePart::kCommonChains : ServicePart::kWhole, &tables);
  }
  DeleteStale(settings.version, existing, ServiceChains(settings, now), &tables.nat);
  EndSync(settings, &tables);
  return tables.Text();
}

// Captured: 1.17, 1.18 and 1.20 to 1.36. 1.19 was not seen: it is taken to have 1.18's jumps, for
// what changed them (kubernetes #95252) came in for 1.20.

std::vector<ProxyJump> JumpsOf(const ProxySettings& settings) {
  const Version version = settings.version;
  const char* external = "kubernetes externally-visible service portals";
  const char* portals = "kubernetes service portals";
  const char* firewall = "kubernetes load balancer firewall";
  const bool drops = Does(version, Trait::kProxyFirewall);
  // In both families.
  const bool martians = Does(version, Trait::kOwnMartianRule);
  std::vector<ProxyJump> jumps = JumpsWhere({
      {true, "filter", "KUBE-EXTERNAL-SERVICES", "INPUT", external, true},
      {Does(version, Trait::kExternalServicesInForward), "filter", "KUBE-EXTERNAL-SERVICES",
       "FORWARD", external, true},
      {Does(version, Trait::kHealthCheckChain), "filter", "KUBE-NODEPORTS", "INPUT",
       "kubernetes health check service ports"},
      {true, "filter", "KUBE-SERVICES", "FORWARD", portals, true},
      {true, "filter", "KUBE-SERVICES", "OUTPUT", portals, true},
      {Does(version, Trait::kServicesInInput), "filter", "KUBE-SERVICES", "INPUT", portals, true},
      {true, "filter", "KUBE-FORWARD", "FORWARD", "kubernetes forwarding rules"},
      {drops, "filter", "KUBE-PROXY-FIREWALL", "INPUT", firewall, true},
      {drops, "filter", "KUBE-PROXY-FIREWALL", "OUTPUT", firewall, true},
      {drops, "filter", "KUBE-PROXY-FIREWALL", "FORWARD", firewall, true},
      {true, "nat", "KUBE-SERVICES", "OUTPUT", portals},
      {true, "nat", "KUBE-SERVICES", "PREROUTING", portals},
      {true, "nat", "KUBE-POSTROUTING", "POSTROUTING", "kubernetes postrouting rules"},
      {martians, "filter", "KUBE-FIREWALL", "INPUT"},
      {martians, "filter", "KUBE-FIREWALL", "OUTPUT"},
  });
  // 1.27 counts POSTROUTING's jump among those that it shares with kubelet.
  if (!Does(version, Trait::kPostroutingJumpLast)) return jumps;
  std::rotate(jumps.end() - 3, jumps.end() - 2, jumps.end());
  return jumps;
}

}  // namespace kipt::skew
