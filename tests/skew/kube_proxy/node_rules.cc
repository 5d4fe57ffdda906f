// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/kube_proxy/node_rules.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/skew/kube_proxy/nfacct.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

constexpr char kEstablished[] = "-m conntrack --ctstate RELATED,ESTABLISHED";

std::string Mark(const ProxySettings& settings) {
  return absl::StrFormat("0x%08x", uint32_t{1} << settings.masquerade_bit);
}

bool IsIpv4WithLocalhost(const ProxySettings& settings) {
  return settings.family == IpFamily::kIpv4 && settings.localhost_node_ports;
}

}  // namespace

void WriteMasquerade(const ProxySettings& settings, TableText* nat) {
  const std::string mark = Mark(settings);
  const std::string comment = Comment("kubernetes service traffic requiring SNAT");
  nat->Chain("KUBE-POSTROUTING");
  nat->Chain("KUBE-MARK-MASQ");
  if (!Does(settings.version, Trait::kProxyMarksByOr)) {
    nat->Rule("KUBE-POSTROUTING",
              {comment, "-m mark --mark", mark + "/" + mark, "-j MASQUERADE --random-fully"});
    nat->Rule("KUBE-MARK-MASQ", {"-j MARK --set-xmark", mark + "/" + mark});
    return;
  }
  nat->Rule("KUBE-POSTROUTING", {"-m mark ! --mark", mark + "/" + mark, Jump("RETURN")});
  nat->Rule("KUBE-POSTROUTING", {"-j MARK --xor-mark", mark});
  nat->Rule("KUBE-POSTROUTING", {comment, "-j MASQUERADE --random-fully"});
  nat->Rule("KUBE-MARK-MASQ", {"-j MARK --or-mark", mark});
}

void WriteForwardAccepts(const ProxySettings& settings, TableText* filter) {
  const Version version = settings.version;
  const std::string mark = Mark(settings);
  const std::string source = "kubernetes forwarding conntrack pod source rule";
  const std::string destination = "kubernetes forwarding conntrack pod destination rule";
  filter->Rule("KUBE-FORWARD", {Comment("kubernetes forwarding rules"), "-m mark --mark",
                                mark + "/" + mark, Jump("ACCEPT")});
  if (Does(version, Trait::kOneForwardRule)) {
    filter->Rule("KUBE-FORWARD",
                 {Comment("kubernetes forwarding conntrack rule"), kEstablished, Jump("ACCEPT")});
  } else if (Does(version, Trait::kNoPodCidrInForward)) {
    filter->Rule("KUBE-FORWARD", {Comment(source), kEstablished, Jump("ACCEPT")});
    filter->Rule("KUBE-FORWARD", {Comment(destination), kEstablished, Jump("ACCEPT")});
  } else if (!settings.pod_cidr.empty()) {
    filter->Rule("KUBE-FORWARD",
                 {"-s " + settings.pod_cidr, Comment(source), kEstablished, Jump("ACCEPT")});
    filter->Rule("KUBE-FORWARD",
                 {Comment(destination), "-d " + settings.pod_cidr, kEstablished, Jump("ACCEPT")});
  }
}

void BeginSync(const ProxySettings& settings, SyncTables* tables) {
  const Version version = settings.version;
  TableText& filter = tables->filter;
  for (const char* chain : {"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FORWARD"}) {
    filter.Chain(chain);
  }
  if (Does(version, Trait::kHealthCheckChain)) filter.Chain("KUBE-NODEPORTS");
  if (Does(version, Trait::kProxyFirewall)) filter.Chain("KUBE-PROXY-FIREWALL");
  // Elsewhere the chain is ensured (JumpsOf) and left as it is.
  if (Does(version, Trait::kOwnMartianRule) && IsIpv4WithLocalhost(settings)) {
    filter.Chain("KUBE-FIREWALL");
    filter.Rule(
        "KUBE-FIREWALL",
        {Comment("block incoming localnet connections"), "-d 127.0.0.0/8", "! -s 127.0.0.0/8",
         "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", Jump("DROP")});
  }
  tables->nat.Chain("KUBE-SERVICES");
  tables->nat.Chain("KUBE-NODEPORTS");
  WriteMasquerade(settings, &tables->nat);
}

void EndSync(const ProxySettings& settings, SyncTables* tables) {
  std::string not_loopback;
  if (Does(settings.version, Trait::kSparesLoopback)) {
    if (settings.family == IpFamily::kIpv6) {
      not_loopback = "! -d ::1/128";
    } else if (!settings.localhost_node_ports) {
      not_loopback = "! -d 127.0.0.0/8";
    }
  }
  tables->nat.Rule("KUBE-SERVICES",
                   {Comment("kubernetes service nodeports; NOTE: this must be the last rule in "
                            "this chain"),
                    "-m addrtype --dst-type LOCAL", not_loopback, Jump("KUBE-NODEPORTS")});
  // 1.29 and later leave this out where nf_conntrack_tcp_be_liberal is set; by default it is not.
  tables->filter.Rule("KUBE-FORWARD", {"-m conntrack --ctstate INVALID",
                                       Counted(settings, kDroppedInvalid), Jump("DROP")});
  WriteForwardAccepts(settings, &tables->filter);
}

}  // namespace kipt::skew
