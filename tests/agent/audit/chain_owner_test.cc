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

TEST(ChainOwnerTest, TheMartianRuleIsKubeletsOnIPv4Only) {
  netlink::SurveyRule rule;
  rule.content = DropMartians(0);
  EXPECT_EQ(OwnerOfRule(kFilter, "KUBE-FIREWALL", /*base=*/false, rule), Owner::kKubelet);
  EXPECT_EQ(OwnerOfRule({"ip6", "filter"}, "KUBE-FIREWALL", /*base=*/false, rule), Owner::kUnknown);
}

TEST(ChainOwnerTest, KnowsEachKindOfChain) {
  struct Row {
    netlink::TableId table;
    const char* chain;
    const char* owner;
  };
  const netlink::TableId mangle = {"ip", "mangle"};
  const Row rows[] = {
      {kNat, "KUBE-FIREWALL", "kube-proxy (IPVS)"},
      {kFilter, "KUBE-FIREWALL", "kubelet"},
      {kFilter, "KUBE-ROUTER-INPUT", "kube-router"},
      {kFilter, "KUBE-POD-FW-ABC", "kube-router"},
      {kFilter, "KUBE-NWPLCY-DEFAULT", "kube-router"},
      {kNat, "KUBE-HP-ABC", "CRI-O up to 1.26, or dockershim"},
      {kNat, "KUBE-HOSTPORTS", "CRI-O up to 1.26, or dockershim"},
      {kNat, "KUBE-SVC-GNZBNJ2PO5MGZ6GT", "kube-proxy"},
      {kNat, "KUBE-LOAD-BALANCER", "kube-proxy (IPVS)"},
      {kNat, "CNI-DN-0123", "the CNI plugin portmap"},
      {kNat, "CRIO-HOSTPORTS-MASQ", "CRI-O"},
      {kFilter, "cali-INPUT", "Calico"},
      {kFilter, "OLD_CILIUM_FORWARD", "Cilium"},
      {kFilter, "WEAVE-NPC", "Weave Net"},
      {kNat, "IP-MASQ-AGENT", "ip-masq-agent"},
      {{"ip", "kube-proxy"}, "masquerading", "kube-proxy (nftables)"},
      {{"ip6", "k8s_svc6"}, "z_dispatch_svc", "kpng"},
      {{"inet", "firewalld"}, "filter_INPUT", "firewalld"},
      {mangle, "KUBE-IPTABLES-HINT", "kubelet"},
      {kNat, "KUBE-KUBELET-CANARY", "kubelet"},
      {kNat, "KUBE-MARK-MASQ", "kubelet"},
      {kNat, "KUBE-MARK-DROP", "kubelet"},
      {kNat, "KUBE-POSTROUTING", "kubelet"},
      {kFilter, "KUBE-NODE-PORT", "kube-proxy (IPVS)"},
      {kFilter, "KUBE-SOURCE-RANGES-FIREWALL", "kube-proxy (IPVS)"},
      {kFilter, "KUBE-IPVS-FILTER", "kube-proxy (IPVS)"},
      {kFilter, "KUBE-IPVS-OUT-FILTER", "kube-proxy (IPVS)"},
      {kNat, "KUBE-SERVICES", "kube-proxy"},
      {kFilter, "KUBE-EXTERNAL-SERVICES", "kube-proxy"},
      {kFilter, "KUBE-NODEPORTS", "kube-proxy"},
      {kFilter, "KUBE-FORWARD", "kube-proxy"},
      {kFilter, "KUBE-PROXY-FIREWALL", "kube-proxy"},
      {mangle, "KUBE-PROXY-CANARY", "kube-proxy"},
      {kNat, "KUBE-SVL-GNZBNJ2PO5MGZ6GT", "kube-proxy"},
      {kNat, "KUBE-SEP-GNZBNJ2PO5MGZ6GT", "kube-proxy"},
      {kNat, "KUBE-FW-GNZBNJ2PO5MGZ6GT", "kube-proxy"},
      {kNat, "KUBE-XLB-GNZBNJ2PO5MGZ6GT", "kube-proxy"},
      {kNat, "KUBE-EXT-GNZBNJ2PO5MGZ6GT", "kube-proxy"},
      {kNat, "CILIUM_POST_nat", "Cilium"},
      {kNat, "FLANNEL-POSTRTG", "flannel"},
      {mangle, "ANTREA-MANGLE", "Antrea"},
      {kFilter, "DOCKER", "Docker"},
      {kFilter, "DOCKER-ISOLATION-STAGE-1", "Docker"},
      {kFilter, "IN_public", "firewalld"},
      {kFilter, "FWDI_public", "firewalld"},
      {kFilter, "FWDO_public", "firewalld"},
      {kFilter, "INPUT_direct", "firewalld"},
      {kFilter, "INPUT_ZONES_SOURCE", "firewalld"},
      {kFilter, "FORWARD_direct", "firewalld"},
      {kFilter, "OUTPUT_direct", "firewalld"},
      {kNat, "PREROUTING_ZONES", "firewalld"},
      {kNat, "POSTROUTING_ZONES", "firewalld"},
      {{"ip", "k8s_svc"}, "z_dispatch_svc", "kpng"},
      {{"ip", "kube-iptables-agent"}, "input", "kube-iptables-agent"},
      {kNat, "KUBELET-MARK-MASQ", "kube-iptables-agent"},
      {kNat, "KUBELET-MARK-DROP", "kube-iptables-agent"},
      {kNat, "KUBELET-POSTROUTING", "kube-iptables-agent"},
      {kFilter, "KUBELET-FIREWALL", "kube-iptables-agent"},
      {kFilter, "KUBELET-MARK-MASQ", "unknown"},
      {kNat, "KUBELET-FIREWALL", "unknown"},
      {kNat, "KUBELET-MARK-MASQ-2", "unknown"},
      {kNat, "KUBE-HOSTPORTSX", "unknown"},
      {kNat, "KUBE-HPX", "unknown"},
      {{"inet", "mine"}, "input", "unknown"},
      {{"inet", "cni_hostport"}, "hostports", "the CNI plugin portmap"},
      {{"ip", "calico"}, "filter-FORWARD", "Calico"},
      {{"ip", "docker-bridges"}, "filter-FORWARD", "Docker"},
      {kFilter, "ts-input", "Tailscale"},
      {kNat, "ts-postrouting", "Tailscale"},
      {kFilter, "NETAVARK_FORWARD", "netavark (Podman)"},
      {kNat, "NETAVARK-DN-1D8721804F16F", "netavark (Podman)"},
      {{"inet", "netavark"}, "INPUT", "netavark (Podman)"},
      {kNat, "AWS-SNAT-CHAIN-0", "the Amazon VPC CNI"},
      {kNat, "AWS-CONNMARK-CHAIN-0", "the Amazon VPC CNI"},
      {kFilter, "AZURE-NPM", "Azure NPM"},
      {kFilter, "AZURE-NPM-INGRESS", "Azure NPM"},
      {kNat, "OVN-KUBE-ITP", "OVN-Kubernetes"},
      {{"inet", "ovn-kubernetes"}, "mgmtport-snat", "OVN-Kubernetes"},
      {kNat, "OVN-POSTROUTING", "kube-ovn"},
      {kNat, "OVN-MASQUERADE", "kube-ovn"},
      {kNat, "OVN-NAT-PSUBNET-0123456789ab", "kube-ovn"},
      {mangle, "OVN-OUTPUT", "kube-ovn"},
      {{"ip6", "kube-ovn"}, "nat-postrouting", "kube-ovn"},
      {kNat, "ISTIO_REDIRECT", "Istio"},
      {{"inet", "istio-ambient-nat"}, "istio-prerouting", "Istio"},
      {{"inet", "istio-proxy-mangle"}, "istio-inbound", "Istio"},
      {kFilter, "RKE2-CILIUM-INPUT", "RKE2"},
      {kFilter, "LIBVIRT_INP", "libvirt"},
      {{"ip", "libvirt_network"}, "guest_output", "libvirt"},
      {kFilter, "ufw-before-input", "ufw"},
      {{"ip6", "filter"}, "ufw6-before-input", "ufw"},
      {{"ip", "kube-router-filter-ipv4"}, "KUBE-NWPLCY-DEFAULT", "kube-router"},
      {{"ip6", "kube-router-filter-ipv6"}, "KUBE-ROUTER-INPUT", "kube-router"},
      {{"ip", "wg-quick-wg0"}, "premangle", "wg-quick"},
      // Nearly such a name.
      {kNat, "KUBE-SOMETHING-NEW", "unknown"},
      {kNat, "KUBE-SVCX", "unknown"},
      {kFilter, "ts", "unknown"},
      {kFilter, "Ts-input", "unknown"},
      {kFilter, "my-ts-input", "unknown"},
      {kFilter, "\x1b[2Jts-input", "unknown"},
      {kFilter, "AWS", "unknown"},
      {kFilter, "AZURE-NP", "unknown"},
      {kFilter, "OVN-MASQUERADE-2", "unknown"},
      {kFilter, "ISTIO", "unknown"},
      {kFilter, "LIBVIRT", "unknown"},
      {kFilter, "ufw", "unknown"},
      {{"ip", "wg-quick"}, "premangle", "unknown"},
      {{"inet", "netavark-mine"}, "INPUT", "unknown"},
      {{"inet", "istio"}, "prerouting", "unknown"},
      {{"ip", "kube-router"}, "KUBE-X", "unknown"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(OwnerName(OwnerOfChain(row.table, row.chain)), row.owner) << row.chain;
  }
}

TEST(ChainOwnerTest, ABaseChainIsEverybodysWhateverItsName) {
  EXPECT_EQ(OwnerName(OwnerOfChain(kNat, "POSTROUTING", /*base=*/true)),
            "everybody (a base chain)");
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
  EXPECT_EQ(OwnerName(Owner::kNodeLocalDns), "NodeLocal DNS");
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
