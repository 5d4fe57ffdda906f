// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

}  // namespace

NftablesTable::NftablesTable(const ProxySettings& settings)
    : settings_(settings),
      ip_(settings.family == testing::IpFamily::kIpv4 ? "ip" : "ip6"),
      address_type_(settings.family == testing::IpFamily::kIpv4 ? "ipv4_addr" : "ipv6_addr"),
      pre_dnat_(Does(settings.version, Trait::kNftFilterPriorityZero)),
      inline_(Does(settings.version, Trait::kNftMarksInline)) {}

std::string NftablesTable::Line(const std::string& verb, const std::string& rest) const {
  return absl::StrCat(verb, " ", ip_, " kube-proxy ", rest, "\n");
}

std::string NftablesTable::Chain(const std::string& chain) const {
  return Line("add chain", chain) + Line("flush chain", chain);
}

std::string NftablesTable::Rule(const std::string& chain, const std::string& rule) const {
  return Line("add rule", absl::StrCat(chain, " ", rule));
}

std::string NftablesTable::Bit() const {
  return absl::StrFormat("0x%08x", 1U << static_cast<unsigned>(settings_.masquerade_bit));
}

std::string NftablesTable::MarkToMasquerade(const std::string& comment) const {
  return absl::StrCat(inline_ ? "mark set mark or " + Bit() : "jump mark-for-masquerade",
                      comment.empty() ? "" : absl::StrCat(" comment \"", comment, "\""));
}

std::string NftablesTable::NotFromPod() const {
  return absl::StrCat(ip_, " saddr != ", settings_.pod_cidr);
}

std::string NftablesTable::BaseChains() const {
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

std::string NftablesTable::Jumps() const {
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

std::string NftablesTable::Masquerade() const {
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

std::string NftablesTable::Sets() const {
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

std::string NftablesTable::Maps() const {
  const auto map = [this](const char* name, bool by_address, const char* comment) {
    return Line("add map", absl::StrCat(name, " { type ", by_address ? address_type_ + " . " : "",
                                        "inet_proto . inet_service : verdict ; comment \"", comment,
                                        "\" ; }"));
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
    text +=
        Rule("services", absl::StrCat(ip_, " daddr @cluster-ips ", NotFromPod(), " ",
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

std::string NftablesTable::Head() const {
  return absl::StrCat("add table ", ip_, " kube-proxy { comment \"rules for kube-proxy\" ; }\n",
                      BaseChains(), Jumps(), Masquerade(), Sets(), Maps());
}

}  // namespace kipt::skew
