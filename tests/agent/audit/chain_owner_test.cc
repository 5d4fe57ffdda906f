// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/chain_owner.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "agent/policy/ownership.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/surveyed.h"

namespace kipt::agent {
namespace {

const netlink::TableId kNat = {"ip", "nat"};
const netlink::TableId kFilter = {"ip", "filter"};

const netlink::TableId kInetNat = {"inet", "nat"};
const netlink::TableId kIp6Filter = {"ip6", "filter"};
const netlink::TableId kIp6Nat = {"ip6", "nat"};
const netlink::TableId kIpKubeIptablesAgent = {"ip", "kube-iptables-agent"};
const netlink::TableId kIpMangle = {"ip", "mangle"};

TEST(ChainOwnerTest, TellsTheTwoKubeFirewallsApart) {
  EXPECT_EQ(OwnerOfChain(kFilter, "KUBE-FIREWALL"), Owner::kKubelet);
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-FIREWALL"), Owner::kKubeProxyIpvs);
}

TEST(ChainOwnerTest, DoesNotTakeEveryKubeForKubernetes) {
  for (const char* chain : {"KUBE-ROUTER-INPUT", "KUBE-POD-FW-ABC", "KUBE-NWPLCY-DEFAULT"}) {
    EXPECT_EQ(OwnerOfChain(kFilter, chain), Owner::kKubeRouter) << chain;
  }
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-HP-ABC"), Owner::kHostPorts);
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-HOSTPORTS"), Owner::kHostPorts);
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-SOMETHING-NEW"), Owner::kUnknown);
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-SVCX"), Owner::kUnknown);
}

TEST(ChainOwnerTest, KnowsTheNeighboursByTheirNames) {
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-SVC-GNZBNJ2PO5MGZ6GT"), Owner::kKubeProxy);
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-LOAD-BALANCER"), Owner::kKubeProxyIpvs);
  EXPECT_EQ(OwnerOfChain(kNat, "CNI-DN-0123"), Owner::kPortmap);
  EXPECT_EQ(OwnerOfChain(kNat, "CRIO-HOSTPORTS-MASQ"), Owner::kCrio);
  EXPECT_EQ(OwnerOfChain(kFilter, "cali-INPUT"), Owner::kCalico);
  EXPECT_EQ(OwnerOfChain(kFilter, "OLD_CILIUM_FORWARD"), Owner::kCilium);
  EXPECT_EQ(OwnerOfChain(kFilter, "WEAVE-NPC"), Owner::kWeave);
  EXPECT_EQ(OwnerOfChain(kNat, "IP-MASQ-AGENT"), Owner::kIpMasqAgent);
  EXPECT_EQ(OwnerOfChain({"ip", "kube-proxy"}, "masquerading"), Owner::kKubeProxyNftables);
  EXPECT_EQ(OwnerOfChain({"ip6", "k8s_svc6"}, "z_dispatch_svc"), Owner::kKpng);
  EXPECT_EQ(OwnerOfChain({"inet", "firewalld"}, "filter_INPUT"), Owner::kFirewalld);
}

TEST(ChainOwnerTest, TheMartianRuleIsKubeletsOnIPv4Only) {
  netlink::SurveyRule rule;
  rule.content = DropMartians(0);
  EXPECT_EQ(OwnerOfRule(kFilter, "KUBE-FIREWALL", /*base=*/false, rule), Owner::kKubelet);
  EXPECT_EQ(OwnerOfRule({"ip6", "filter"}, "KUBE-FIREWALL", /*base=*/false, rule), Owner::kUnknown);
}

TEST(ChainOwnerTest, HasANameForEachOwner) {
  struct Row {
    Owner owner;
    const char* name;
  };
  const Row rows[] = {{Owner::kUnknown, "unknown"},
                      {Owner::kBaseChain, "everybody (a base chain)"},
                      {Owner::kKubelet, "kubelet"},
                      {Owner::kKubeProxy, "kube-proxy"},
                      {Owner::kKubeProxyIpvs, "kube-proxy (IPVS)"},
                      {Owner::kKubeProxyNftables, "kube-proxy (nftables)"},
                      {Owner::kKpng, "kpng"},
                      {Owner::kThisAgent, "kube-iptables-agent"},
                      {Owner::kKubeRouter, "kube-router"},
                      {Owner::kPortmap, "the CNI plugin portmap"},
                      {Owner::kHostPorts, "CRI-O up to 1.26, or dockershim"},
                      {Owner::kCrio, "CRI-O"},
                      {Owner::kCalico, "Calico"},
                      {Owner::kCilium, "Cilium"},
                      {Owner::kFlannel, "flannel"},
                      {Owner::kWeave, "Weave Net"},
                      {Owner::kAntrea, "Antrea"},
                      {Owner::kDocker, "Docker"},
                      {Owner::kFirewalld, "firewalld"},
                      {Owner::kIpMasqAgent, "ip-masq-agent"},
                      {Owner::kNodeLocalDns, "NodeLocal DNS"},
                      {Owner::kTailscale, "Tailscale"},
                      {Owner::kNetavark, "netavark (Podman)"},
                      {Owner::kAwsVpcCni, "the Amazon VPC CNI"},
                      {Owner::kAzureNpm, "Azure NPM"},
                      {Owner::kOvnKubernetes, "OVN-Kubernetes"},
                      {Owner::kIstio, "Istio"},
                      {Owner::kRke2, "RKE2"},
                      {Owner::kLibvirt, "libvirt"},
                      {Owner::kUfw, "ufw"},
                      {Owner::kWgQuick, "wg-quick"},
                      {Owner::kKubeOvn, "kube-ovn"}};
  for (const Row& row : rows) EXPECT_EQ(OwnerName(row.owner), row.name);
}

TEST(ChainOwnerTest, KnowsEachKindOfChain) {
  struct Row {
    netlink::TableId table;
    const char* chain;
    Owner owner;
  };
  const netlink::TableId mangle = {"ip", "mangle"};
  const Row rows[] = {
      {mangle, "KUBE-IPTABLES-HINT", Owner::kKubelet},
      {kNat, "KUBE-KUBELET-CANARY", Owner::kKubelet},
      {kNat, "KUBE-MARK-MASQ", Owner::kKubelet},
      {kNat, "KUBE-MARK-DROP", Owner::kKubelet},
      {kNat, "KUBE-POSTROUTING", Owner::kKubelet},
      {kFilter, "KUBE-NODE-PORT", Owner::kKubeProxyIpvs},
      {kFilter, "KUBE-SOURCE-RANGES-FIREWALL", Owner::kKubeProxyIpvs},
      {kFilter, "KUBE-IPVS-FILTER", Owner::kKubeProxyIpvs},
      {kFilter, "KUBE-IPVS-OUT-FILTER", Owner::kKubeProxyIpvs},
      {kNat, "KUBE-SERVICES", Owner::kKubeProxy},
      {kFilter, "KUBE-EXTERNAL-SERVICES", Owner::kKubeProxy},
      {kFilter, "KUBE-NODEPORTS", Owner::kKubeProxy},
      {kFilter, "KUBE-FORWARD", Owner::kKubeProxy},
      {kFilter, "KUBE-PROXY-FIREWALL", Owner::kKubeProxy},
      {mangle, "KUBE-PROXY-CANARY", Owner::kKubeProxy},
      {kNat, "KUBE-SVL-GNZBNJ2PO5MGZ6GT", Owner::kKubeProxy},
      {kNat, "KUBE-SEP-GNZBNJ2PO5MGZ6GT", Owner::kKubeProxy},
      {kNat, "KUBE-FW-GNZBNJ2PO5MGZ6GT", Owner::kKubeProxy},
      {kNat, "KUBE-XLB-GNZBNJ2PO5MGZ6GT", Owner::kKubeProxy},
      {kNat, "KUBE-EXT-GNZBNJ2PO5MGZ6GT", Owner::kKubeProxy},
      {kNat, "CILIUM_POST_nat", Owner::kCilium},
      {kNat, "FLANNEL-POSTRTG", Owner::kFlannel},
      {mangle, "ANTREA-MANGLE", Owner::kAntrea},
      {kFilter, "DOCKER", Owner::kDocker},
      {kFilter, "DOCKER-ISOLATION-STAGE-1", Owner::kDocker},
      {kFilter, "IN_public", Owner::kFirewalld},
      {kFilter, "FWDI_public", Owner::kFirewalld},
      {kFilter, "FWDO_public", Owner::kFirewalld},
      {kFilter, "INPUT_direct", Owner::kFirewalld},
      {kFilter, "INPUT_ZONES_SOURCE", Owner::kFirewalld},
      {kFilter, "FORWARD_direct", Owner::kFirewalld},
      {kFilter, "OUTPUT_direct", Owner::kFirewalld},
      {kNat, "PREROUTING_ZONES", Owner::kFirewalld},
      {kNat, "POSTROUTING_ZONES", Owner::kFirewalld},
      {{"ip", "k8s_svc"}, "z_dispatch_svc", Owner::kKpng},
      {{"ip", "kube-iptables-agent"}, "input", Owner::kThisAgent},
      {kNat, "KUBELET-MARK-MASQ", Owner::kThisAgent},
      {kNat, "KUBELET-MARK-DROP", Owner::kThisAgent},
      {kNat, "KUBELET-POSTROUTING", Owner::kThisAgent},
      {kFilter, "KUBELET-FIREWALL", Owner::kThisAgent},
      {kFilter, "KUBELET-MARK-MASQ", Owner::kUnknown},
      {kNat, "KUBELET-FIREWALL", Owner::kUnknown},
      {kNat, "KUBELET-MARK-MASQ-2", Owner::kUnknown},
      {kNat, "KUBE-HOSTPORTSX", Owner::kUnknown},
      {kNat, "KUBE-HPX", Owner::kUnknown},
      {{"inet", "mine"}, "input", Owner::kUnknown},
      {{"inet", "cni_hostport"}, "hostports", Owner::kPortmap},
      {{"ip", "calico"}, "filter-FORWARD", Owner::kCalico},
      {{"ip", "docker-bridges"}, "filter-FORWARD", Owner::kDocker},
      {kFilter, "ts-input", Owner::kTailscale},
      {kNat, "ts-postrouting", Owner::kTailscale},
      {kFilter, "NETAVARK_FORWARD", Owner::kNetavark},
      {kNat, "NETAVARK-DN-1D8721804F16F", Owner::kNetavark},
      {{"inet", "netavark"}, "INPUT", Owner::kNetavark},
      {kNat, "AWS-SNAT-CHAIN-0", Owner::kAwsVpcCni},
      {kNat, "AWS-CONNMARK-CHAIN-0", Owner::kAwsVpcCni},
      {kFilter, "AZURE-NPM", Owner::kAzureNpm},
      {kFilter, "AZURE-NPM-INGRESS", Owner::kAzureNpm},
      {kNat, "OVN-KUBE-ITP", Owner::kOvnKubernetes},
      {{"inet", "ovn-kubernetes"}, "mgmtport-snat", Owner::kOvnKubernetes},
      {kNat, "OVN-POSTROUTING", Owner::kKubeOvn},
      {kNat, "OVN-MASQUERADE", Owner::kKubeOvn},
      {kNat, "OVN-NAT-PSUBNET-0123456789ab", Owner::kKubeOvn},
      {mangle, "OVN-OUTPUT", Owner::kKubeOvn},
      {{"ip6", "kube-ovn"}, "nat-postrouting", Owner::kKubeOvn},
      {kNat, "ISTIO_REDIRECT", Owner::kIstio},
      {{"inet", "istio-ambient-nat"}, "istio-prerouting", Owner::kIstio},
      {{"inet", "istio-proxy-mangle"}, "istio-inbound", Owner::kIstio},
      {kFilter, "RKE2-CILIUM-INPUT", Owner::kRke2},
      {kFilter, "LIBVIRT_INP", Owner::kLibvirt},
      {{"ip", "libvirt_network"}, "guest_output", Owner::kLibvirt},
      {kFilter, "ufw-before-input", Owner::kUfw},
      {{"ip6", "filter"}, "ufw6-before-input", Owner::kUfw},
      {{"ip", "kube-router-filter-ipv4"}, "KUBE-NWPLCY-DEFAULT", Owner::kKubeRouter},
      {{"ip6", "kube-router-filter-ipv6"}, "KUBE-ROUTER-INPUT", Owner::kKubeRouter},
      {{"ip", "wg-quick-wg0"}, "premangle", Owner::kWgQuick},
      // Nearly such a name.
      {kFilter, "ts", Owner::kUnknown},
      {kFilter, "Ts-input", Owner::kUnknown},
      {kFilter, "my-ts-input", Owner::kUnknown},
      {kFilter, "\x1b[2Jts-input", Owner::kUnknown},
      {kFilter, "AWS", Owner::kUnknown},
      {kFilter, "AZURE-NP", Owner::kUnknown},
      {kFilter, "OVN-MASQUERADE-2", Owner::kUnknown},
      {kFilter, "ISTIO", Owner::kUnknown},
      {kFilter, "LIBVIRT", Owner::kUnknown},
      {kFilter, "ufw", Owner::kUnknown},
      {{"ip", "wg-quick"}, "premangle", Owner::kUnknown},
      {{"inet", "netavark-mine"}, "INPUT", Owner::kUnknown},
      {{"inet", "istio"}, "prerouting", Owner::kUnknown},
      {{"ip", "kube-router"}, "KUBE-X", Owner::kUnknown},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(OwnerName(OwnerOfChain(row.table, row.chain)), OwnerName(row.owner)) << row.chain;
  }
}

TEST(ChainOwnerTest, ABaseChainIsEverybodysWhateverItsName) {
  EXPECT_EQ(OwnerOfChain(kNat, "POSTROUTING", /*base=*/true), Owner::kBaseChain);
  EXPECT_EQ(OwnerOfChain(kNat, "KUBE-SERVICES", /*base=*/true), Owner::kBaseChain);
  EXPECT_EQ(OwnerOfChain({"inet", "mine"}, "ts-input", /*base=*/true), Owner::kBaseChain);
}

TEST(ChainOwnerTest, ABaseChainOfAProgramsOwnTableIsThatPrograms) {
  EXPECT_EQ(OwnerOfChain({"ip", "wg-quick-wg0"}, "premangle", /*base=*/true), Owner::kWgQuick);
  EXPECT_EQ(OwnerOfChain({"inet", "firewalld"}, "filter_INPUT", true), Owner::kFirewalld);
  const netlink::SurveyRule rule = Surveyed("-j MARK --set-xmark 0xca6c/0xffffffff");
  EXPECT_EQ(OwnerOfRule({"ip", "wg-quick-wg0"}, "premangle", true, rule), Owner::kWgQuick);
}

// testdata/owners: what the programs themselves made.
TEST(ChainOwnerTest, KnowsEveryChainThatTheRealProgramsMake) {
  struct Row {
    const char* file;
    netlink::Family family;
    Owner owner;
    size_t chains;
  };
  const Row rows[] = {
      {"ufw-0.36.2-v4.save", netlink::Family::kIPv4, Owner::kUfw, 32},
      {"ufw-0.36.2-v6.save", netlink::Family::kIPv6, Owner::kUfw, 31},
      {"docker-20.10.24-v4.save", netlink::Family::kIPv4, Owner::kDocker, 5},
      {"netavark-1.4.0-v4.save", netlink::Family::kIPv4, Owner::kNetavark, 6},
      {"libvirt-9.0.0-v4.save", netlink::Family::kIPv4, Owner::kLibvirt, 7},
      {"firewalld-1.3.3-v4.save", netlink::Family::kIPv4, Owner::kFirewalld, 98},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.file);
    const netlink::Survey survey =
        SurveyOfText("nft", row.family, ReadTestdata(absl::StrCat("owners/", row.file)));
    size_t chains = 0;
    for (const auto& [table, of_table] : survey.tables) {
      for (const auto& [name, chain] : of_table) {
        if (chain.base) continue;
        ++chains;
        EXPECT_EQ(OwnerName(OwnerOfChain(table, name)), OwnerName(row.owner)) << name;
      }
    }
    EXPECT_EQ(chains, row.chains);
  }
}

TEST(ChainOwnerTest, FindsAChainOfAFamilyInAnyOfThreeTables) {
  for (const char* table : {"mangle", "nat", "filter", "raw"}) {
    netlink::Survey survey;
    survey.tables[{"ip", table}]["MINE"];
    const bool known = std::string(table) != "raw";
    EXPECT_EQ(FamilyChains(survey, netlink::Family::kIPv4).HasAnywhere("MINE"), known) << table;
    EXPECT_FALSE(FamilyChains(survey, netlink::Family::kIPv4).HasAnywhere("OTHER")) << table;
    EXPECT_FALSE(FamilyChains(survey, netlink::Family::kIPv6).HasAnywhere("MINE")) << table;
  }
}

TEST(ChainOwnerTest, PrivateAreTheChainsOfLabelsInTheirTables) {
  struct Row {
    const char* table;
    const char* chain;
    bool is_private;
  };
  const Row rows[] = {
      {"nat", "KUBELET-MARK-MASQ", true},     {"nat", "KUBELET-MARK-DROP", true},
      {"nat", "KUBELET-POSTROUTING", true},   {"filter", "KUBELET-FIREWALL", true},
      {"filter", "KUBELET-MARK-MASQ", false}, {"nat", "KUBELET-FIREWALL", false},
      {"raw", "KUBELET-FIREWALL", false},     {"nat", "KUBE-MARK-MASQ", false},
      {"nat", "KUBELET-MARK", false},         {"", "", false},
  };
  for (const Row& row : rows) {
    const std::string place = absl::StrCat(row.table, "/", row.chain);
    EXPECT_EQ(IsPrivateChain(row.table, row.chain), row.is_private) << place;
    EXPECT_EQ(IsPrivateChain(place), row.is_private) << place;
  }
  EXPECT_FALSE(IsPrivateChain("KUBELET-MARK-MASQ"));
}

// Whose a chain is and what policy makes of it are two tables.
TEST(ChainOwnerTest, CallsOursWhatPolicyMakesForTheGate) {
  for (const netlink::Family family : netlink::kFamilies) {
    for (const DesiredChain& chain : EveryKubeletChain(family)) {
      const netlink::TableId table = {std::string(netlink::FamilyName(family)),
                                      std::string(netlink::TableName(chain.id.table))};
      EXPECT_EQ(OwnerOfChain(table, chain.id.name),
                IsPrivateChain(table.name, chain.id.name) ? Owner::kThisAgent : Owner::kKubelet)
          << netlink::ToString(chain.id);
    }
  }
}

TEST(ChainOwnerTest, KnowsTheCommentsOfRulesInBaseChains) {
  struct Row {
    const char* comment;
    Owner owner;
  };
  const Row rows[] = {
      {"CNI portfwd requiring masquerade", Owner::kPortmap},
      {"kube hostport portals", Owner::kHostPorts},
      {"cali:O3lYWMrLQYEMJtB5", Owner::kCalico},
      {"cilium-feeder: CILIUM_INPUT", Owner::kCilium},
      {"flanneld masq", Owner::kFlannel},
      {"NOTE: this must go before '-j KUBE-FORWARD'", Owner::kWeave},
      {"ip-masq-agent: ensure nat POSTROUTING directs all", Owner::kIpMasqAgent},
      {"Antrea: jump to Antrea forwarding rules", Owner::kAntrea},
      {"kube-router netpol - 4IA2OSFRMVNDXBVV", Owner::kKubeRouter},
      {"netavark portfw masq mark", Owner::kNetavark},
      {"AWS SNAT CHAIN", Owner::kAwsVpcCni},
      {"AWS, primary ENI", Owner::kAwsVpcCni},
      {"by hand", Owner::kUnknown},
  };
  for (const Row& row : rows) {
    const netlink::SurveyRule rule = Surveyed(
        absl::StrCat("-m comment --comment ", netlink::QuoteForSave(row.comment), " -j ACCEPT"));
    EXPECT_EQ(OwnerOfRule(kFilter, "FORWARD", true, rule), row.owner) << row.comment;
  }
}

struct RuleRow {
  std::string name;
  netlink::TableId table;
  std::string chain;
  bool base;
  std::string rule;
  Owner owner;
  std::string jump = {};
};

TEST(RuleOwnerTest, IsToldByChainCommentAndTarget) {
  const RuleRow rows[] = {
      {"KubeletsFormWithAnotherBit", kNat, "KUBE-MARK-MASQ", false,
       "-j MARK --set-xmark 0x100000/0x100000", Owner::kKubelet},
      {"SomebodysRuleInKubeletsChain", kNat, "KUBE-MARK-MASQ", false, "-s 10.0.0.1/32 -j ACCEPT",
       Owner::kUnknown},
      {"IpvsModesHairpinRule", kNat, "KUBE-POSTROUTING", false,
       "-m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE", Owner::kKubeProxyIpvs},
      {"AnotherSetMasquerades", kNat, "KUBE-POSTROUTING", false,
       "-m set --match-set MINE dst,dst,src -j MASQUERADE", Owner::kUnknown},
      {"IpvsModesSetIsNegated", kNat, "KUBE-POSTROUTING", false,
       "-m set ! --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE", Owner::kUnknown},
      {"OurFormWithAnotherLabel", kNat, "KUBELET-MARK-MASQ", false,
       "-m connlabel --label \"7\" --set", Owner::kThisAgent},
      {"SomebodysRuleInOurChain", kNat, "KUBELET-MARK-MASQ", false, "-s 10.0.0.1/32 -j ACCEPT",
       Owner::kUnknown},
      {"AMarkInOurChainIsSomebodys", kNat, "KUBELET-MARK-MASQ", false,
       "-j MARK --set-xmark 0x4000/0x4000", Owner::kUnknown},
      {"OurJump", kFilter, "FORWARD", true, "-j KUBELET-FIREWALL", Owner::kThisAgent,
       "KUBELET-FIREWALL"},
      {"OurJumpOnIPv6", kIp6Nat, "POSTROUTING", true,
       "-m comment --comment \"kubelet postrouting rules\" -j KUBELET-POSTROUTING",
       Owner::kThisAgent, "KUBELET-POSTROUTING"},
      {"AGotoIsNotOurJump", kFilter, "FORWARD", true, "-g KUBELET-FIREWALL", Owner::kUnknown,
       "KUBELET-FIREWALL"},
      {"SomebodysCommentOnOurJump", kFilter, "FORWARD", true,
       "-m comment --comment \"mine\" -j KUBELET-FIREWALL", Owner::kUnknown, "KUBELET-FIREWALL"},
      {"SomebodysJumpToOurChain", kFilter, "FORWARD", true, "-i eth0 -j KUBELET-FIREWALL",
       Owner::kUnknown, "KUBELET-FIREWALL"},
      {"SomebodysJumpWithoutOurComment", kNat, "POSTROUTING", true, "-j KUBELET-POSTROUTING",
       Owner::kUnknown, "KUBELET-POSTROUTING"},
      {"SomebodysUseOfOurChain", kNat, "PREROUTING", true, "-p tcp -j KUBELET-MARK-MASQ",
       Owner::kUnknown, "KUBELET-MARK-MASQ"},
      {"KubeletsJump", kFilter, "INPUT", true, "-j KUBE-FIREWALL", Owner::kKubelet,
       "KUBE-FIREWALL"},
      {"SomebodysJumpToTheSameChain", kFilter, "INPUT", true, "-i eth0 -j KUBE-FIREWALL",
       Owner::kUnknown, "KUBE-FIREWALL"},
      {"SomebodysJumpFromForward", kFilter, "FORWARD", true, "-j KUBE-FIREWALL", Owner::kUnknown,
       "KUBE-FIREWALL"},
      {"SomebodysUseFromABaseChain", kNat, "PREROUTING", true, "-s 10.0.0.1/32 -j KUBE-MARK-MASQ",
       Owner::kUnknown, "KUBE-MARK-MASQ"},
      {"KubeProxysJump", kNat, "PREROUTING", true,
       "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES", Owner::kKubeProxy,
       "KUBE-SERVICES"},
      {"KubeletsJumpOnIPv6", kIp6Filter, "OUTPUT", true, "-j KUBE-FIREWALL", Owner::kKubelet,
       "KUBE-FIREWALL"},
      {"KubeletsPostroutingJump", kNat, "POSTROUTING", true,
       "-m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING", Owner::kKubelet,
       "KUBE-POSTROUTING"},
      {"SomebodysJumpToPostrouting", kNat, "POSTROUTING", true,
       "-m comment --comment \"mine\" -j KUBE-POSTROUTING", Owner::kUnknown, "KUBE-POSTROUTING"},
      {"KubeletsWordsInAnotherBaseChain", kNat, "OUTPUT", true,
       "-m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING", Owner::kUnknown,
       "KUBE-POSTROUTING"},
      {"KubeletsWordsAtAnotherChain", kNat, "POSTROUTING", true,
       "-m comment --comment \"kubernetes postrouting rules\" -j KUBE-MARK-MASQ", Owner::kUnknown,
       "KUBE-MARK-MASQ"},
      {"AGotoIsNotKubeletsJump", kFilter, "INPUT", true, "-g KUBE-FIREWALL", Owner::kUnknown,
       "KUBE-FIREWALL"},
      {"KubeletsFormOnIPv6", kIp6Nat, "KUBE-MARK-MASQ", false, "-j MARK --set-xmark 0x4000/0x4000",
       Owner::kKubelet},
      {"AKubeletFormIsOneOfItsFamily", kIp6Filter, "KUBE-FIREWALL", false,
       "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet "
       "connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
       Owner::kUnknown},
      {"AnotherTargetFromInput", kFilter, "INPUT", true, "-j ACCEPT", Owner::kUnknown},
      {"SomebodysCommentOnTheSameJump", kFilter, "INPUT", true,
       "-m comment --comment \"mine\" -j KUBE-FIREWALL", Owner::kUnknown, "KUBE-FIREWALL"},
      {"IpvsModesLoopbackSetInABaseChain", kNat, "POSTROUTING", true,
       "-m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE", Owner::kUnknown},
      {"CalicosRuleInSomebodysChain", kFilter, "MINE", false,
       "-m comment --comment \"cali:O3lYWMrLQYEMJtB5\" -j ACCEPT", Owner::kCalico},
      {"AKubeletFormInATableThatIptablesDoesNotHave", kInetNat, "KUBE-MARK-MASQ", false,
       "-j MARK --set-xmark 0x4000/0x4000", Owner::kUnknown},
      {"OurPostroutingJump", kNat, "POSTROUTING", true,
       "-m comment --comment \"kubelet postrouting rules\" -j KUBELET-POSTROUTING",
       Owner::kThisAgent, "KUBELET-POSTROUTING"},
      {"SomebodysJumpToOurPostrouting", kNat, "POSTROUTING", true,
       "-m comment --comment \"mine\" -j KUBELET-POSTROUTING", Owner::kUnknown,
       "KUBELET-POSTROUTING"},
      {"OurWordsInAnotherBaseChain", kNat, "OUTPUT", true,
       "-m comment --comment \"kubelet postrouting rules\" -j KUBELET-POSTROUTING", Owner::kUnknown,
       "KUBELET-POSTROUTING"},
      {"OurWordsInAnotherTable", kIpMangle, "POSTROUTING", true,
       "-m comment --comment \"kubelet postrouting rules\" -j KUBELET-POSTROUTING", Owner::kUnknown,
       "KUBELET-POSTROUTING"},
      {"OurWordsAtAnotherChain", kNat, "POSTROUTING", true,
       "-m comment --comment \"kubelet postrouting rules\" -j KUBELET-MARK-MASQ", Owner::kUnknown,
       "KUBELET-MARK-MASQ"},
      {"ARuleOfOurNativeTable", kIpKubeIptablesAgent, "MINE", false, "-j DROP", Owner::kThisAgent},
      {"NodeLocalDns", kFilter, "INPUT", true,
       "-d 169.254.20.10/32 -m comment --comment \"NodeLocal DNS Cache: allow DNS "
       "traffic\" -j ACCEPT",
       Owner::kNodeLocalDns},
      {"Weave", kFilter, "FORWARD", true,
       "-o weave -m comment --comment \"NOTE: this must go before '-j KUBE-FORWARD'\" -j "
       "WEAVE-NPC",
       Owner::kWeave, "WEAVE-NPC"},
  };
  for (const RuleRow& row : rows) {
    SCOPED_TRACE(row.name);
    const netlink::SurveyRule rule =
        Surveyed(row.rule, row.jump,
                 row.table.family == "ip6" ? netlink::Family::kIPv6 : netlink::Family::kIPv4);
    EXPECT_EQ(OwnerOfRule(row.table, row.chain, row.base, rule), row.owner);
  }
}

TEST(ChainGroupTest, IsOneForAllServices) {
  EXPECT_EQ(ChainGroup("KUBE-SVC-GNZBNJ2PO5MGZ6GT"), "KUBE-SVC-*");
  EXPECT_EQ(ChainGroup("KUBE-SERVICES"), "KUBE-SERVICES");
  for (const char* prefix :
       {"KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-FW-", "KUBE-XLB-", "KUBE-EXT-", "KUBE-POD-FW-",
        "KUBE-HP-", "CNI-DN-", "CNI-SN-", "KUBE-NWPLCY-", "CRIO-HOSTPORT-", "cali-fw-", "cali-tw-",
        "NETAVARK-DN-"}) {
    EXPECT_EQ(ChainGroup(absl::StrCat(prefix, "1")), absl::StrCat(prefix, "*"));
  }
}

// Two tables name kube-proxy's chains: whose rules claim a chain (policy), and how they are called.
TEST(ChainOwnerTest, CallsKubeProxysWhatPolicyTakesForKubeProxys) {
  for (const netlink::Table table : netlink::kTables) {
    for (const char* name :
         {"KUBE-SERVICES", "KUBE-PROXY-CANARY", "KUBE-FORWARD", "KUBE-PROXY-FIREWALL",
          "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-FIREWALL", "KUBE-LOAD-BALANCER",
          "KUBE-NODE-PORT", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER",
          "KUBE-IPVS-OUT-FILTER", "KUBE-SVC-X", "KUBE-SEP-X", "KUBE-FW-X", "KUBE-XLB-X",
          "KUBE-EXT-X", "KUBE-SVL-X"}) {
      if (!IsKubeProxyChain({netlink::Family::kIPv4, table, name})) continue;
      const Owner owner = OwnerOfChain({"ip", std::string(netlink::TableName(table))}, name);
      EXPECT_TRUE(owner == Owner::kKubeProxy || owner == Owner::kKubeProxyIpvs)
          << netlink::TableName(table) << " " << name;
    }
  }
  EXPECT_TRUE(IsKubeProxyChain({netlink::Family::kIPv4, netlink::Table::kNat, "KUBE-SVC-X"}));
}

}  // namespace
}  // namespace kipt::agent
