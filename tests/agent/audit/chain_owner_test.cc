// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/chain_owner.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/audit/rule_words.h"
#include "agent/policy/policy.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/surveyed.h"

namespace kipt::agent {
namespace {

const netlink::TableId kNat = {"ip", "nat"};
const netlink::TableId kFilter = {"ip", "filter"};

// "nat/KUBE-FIREWALL" of family ip, "inet:firewalld/filter_INPUT".
std::pair<netlink::TableId, std::string> ChainNamed(absl::string_view place) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(place, absl::MaxSplits('/', 1));
  const std::vector<std::string> table = absl::StrSplit(parts.first, ':');
  return {
      table.size() == 2 ? netlink::TableId{table[0], table[1]} : netlink::TableId{"ip", table[0]},
      std::string(parts.second)};
}

TEST(ChainOwnerTest, KnowsEachKindOfChain) {
  const std::pair<const char*, const char*> rows[] = {
      {"kube-proxy (IPVS)",
       "nat/KUBE-FIREWALL nat/KUBE-LOAD-BALANCER filter/KUBE-NODE-PORT "
       "filter/KUBE-SOURCE-RANGES-FIREWALL filter/KUBE-IPVS-FILTER filter/KUBE-IPVS-OUT-FILTER"},
      {"kubelet",
       "filter/KUBE-FIREWALL mangle/KUBE-IPTABLES-HINT nat/KUBE-KUBELET-CANARY nat/KUBE-MARK-MASQ "
       "nat/KUBE-MARK-DROP nat/KUBE-POSTROUTING"},
      {"kube-router",
       "filter/KUBE-ROUTER-INPUT filter/KUBE-POD-FW-ABC filter/KUBE-NWPLCY-DEFAULT "
       "kube-router-filter-ipv4/KUBE-NWPLCY-DEFAULT ip6:kube-router-filter-ipv6/INPUT"},
      {"CRI-O up to 1.26, or dockershim", "nat/KUBE-HP-ABC nat/KUBE-HOSTPORTS"},
      {"kube-proxy",
       "nat/KUBE-SVC-GNZBNJ2PO5MGZ6GT nat/KUBE-SERVICES filter/KUBE-EXTERNAL-SERVICES "
       "filter/KUBE-NODEPORTS filter/KUBE-FORWARD filter/KUBE-PROXY-FIREWALL "
       "mangle/KUBE-PROXY-CANARY nat/KUBE-SVL-GNZBNJ2PO5MGZ6GT nat/KUBE-SEP-GNZBNJ2PO5MGZ6GT "
       "nat/KUBE-FW-GNZBNJ2PO5MGZ6GT nat/KUBE-XLB-GNZBNJ2PO5MGZ6GT nat/KUBE-EXT-GNZBNJ2PO5MGZ6GT"},
      {"the CNI plugin portmap", "nat/CNI-DN-0123 inet:cni_hostport/hostports"},
      {"CRI-O", "nat/CRIO-HOSTPORTS-MASQ"},
      {"Calico", "filter/cali-INPUT calico/filter-FORWARD"},
      {"Cilium", "filter/OLD_CILIUM_FORWARD nat/CILIUM_POST_nat"},
      {"Weave Net", "filter/WEAVE-NPC"},
      {"ip-masq-agent", "nat/IP-MASQ-AGENT"},
      {"kube-proxy (nftables)", "kube-proxy/masquerading"},
      {"kpng", "ip6:k8s_svc6/z_dispatch_svc k8s_svc/z_dispatch_svc"},
      {"firewalld",
       "inet:firewalld/filter_INPUT filter/IN_public filter/FWDI_public filter/FWDO_public "
       "filter/INPUT_direct filter/INPUT_ZONES_SOURCE filter/FORWARD_direct filter/OUTPUT_direct "
       "nat/PREROUTING_ZONES nat/POSTROUTING_ZONES"},
      {"flannel", "nat/FLANNEL-POSTRTG"},
      {"Antrea", "mangle/ANTREA-MANGLE"},
      {"Docker", "filter/DOCKER filter/DOCKER-ISOLATION-STAGE-1 docker-bridges/filter-FORWARD"},
      {"kube-iptables-agent",
       "kube-iptables-agent/input nat/KUBELET-MARK-MASQ nat/KUBELET-MARK-DROP "
       "nat/KUBELET-POSTROUTING filter/KUBELET-FIREWALL"},
      // Nearly such a name.
      {"unknown",
       "filter/KUBELET-MARK-MASQ nat/KUBELET-FIREWALL nat/KUBELET-MARK-MASQ-2 nat/KUBE-HOSTPORTSX "
       "nat/KUBE-HPX inet:mine/input nat/KUBE-SOMETHING-NEW nat/KUBE-SVCX filter/ts "
       "filter/Ts-input filter/my-ts-input filter/\x1b[2Jts-input filter/AWS filter/AZURE-NP "
       "filter/OVN-MASQUERADE-2 filter/ISTIO filter/LIBVIRT filter/ufw wg-quick/premangle "
       "inet:netavark-mine/INPUT inet:istio/prerouting kube-router/KUBE-X"},
      {"Tailscale", "filter/ts-input nat/ts-postrouting"},
      {"netavark (Podman)",
       "filter/NETAVARK_FORWARD nat/NETAVARK-DN-1D8721804F16F inet:netavark/INPUT"},
      {"the Amazon VPC CNI", "nat/AWS-SNAT-CHAIN-0 nat/AWS-CONNMARK-CHAIN-0"},
      {"Azure NPM", "filter/AZURE-NPM filter/AZURE-NPM-INGRESS"},
      {"OVN-Kubernetes", "nat/OVN-KUBE-ITP inet:ovn-kubernetes/mgmtport-snat"},
      {"kube-ovn",
       "nat/OVN-PREROUTING nat/OVN-POSTROUTING nat/OVN-MASQUERADE mangle/OVN-OUTPUT "
       "nat/OVN-NAT-PSUBNET-0123456789ab ip6:kube-ovn/nat-postrouting"},
      {"Istio",
       "nat/ISTIO_REDIRECT inet:istio-ambient-nat/istio-prerouting "
       "inet:istio-proxy-mangle/istio-inbound"},
      {"RKE2", "filter/RKE2-CILIUM-INPUT"},
      {"libvirt", "filter/LIBVIRT_INP libvirt_network/guest_output"},
      {"ufw", "filter/ufw-before-input ip6:filter/ufw6-before-input"},
      {"wg-quick", "wg-quick-wg0/premangle"},
  };
  for (const auto& [owner, places] : rows) {
    for (const absl::string_view place : absl::StrSplit(places, ' ')) {
      const auto [table, chain] = ChainNamed(place);
      EXPECT_EQ(OwnerName(OwnerOfChain(table, chain)), owner) << place;
    }
  }
}

TEST(ChainOwnerTest, ABaseChainIsSharedWhateverItsName) {
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
  const auto is_private = [](absl::string_view place) {
    const std::string chain = ChainNamed(place).second;
    const std::string table = ChainNamed(place).first.name;
    EXPECT_EQ(IsPrivateChain(table, chain), IsPrivateChain(place)) << place;
    return IsPrivateChain(place);
  };
  for (const char* place : {"nat/KUBELET-MARK-MASQ", "nat/KUBELET-MARK-DROP",
                            "nat/KUBELET-POSTROUTING", "filter/KUBELET-FIREWALL"}) {
    EXPECT_TRUE(is_private(place)) << place;
  }
  for (const char* place :
       {"filter/KUBELET-MARK-MASQ", "nat/KUBELET-FIREWALL", "raw/KUBELET-FIREWALL",
        "nat/KUBE-MARK-MASQ", "nat/KUBELET-MARK", "/"}) {
    EXPECT_FALSE(is_private(place)) << place;
  }
  EXPECT_FALSE(IsPrivateChain("KUBELET-MARK-MASQ"));
}

// The owner of a chain and the policy are separate tables, which must agree.
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
  const std::pair<const char*, Owner> rows[] = {
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
  for (const auto& [comment, owner] : rows) {
    const netlink::SurveyRule rule = Surveyed(
        absl::StrCat("-m comment --comment ", netlink::QuoteForSave(comment), " -j ACCEPT"));
    EXPECT_EQ(OwnerOfRule(kFilter, "FORWARD", true, rule), owner) << comment;
  }
}

TEST(RuleOwnerTest, FollowsFromChainCommentAndTarget) {
  const struct {
    std::string name;
    std::string place;
    std::string rule;
    Owner owner;
  } rows[] = {
      {"KubeletsFormWithAnotherBit", "nat/KUBE-MARK-MASQ", "-j MARK --set-xmark 0x100000/0x100000",
       Owner::kKubelet},
      {"AForeignRuleInKubeletsChain", "nat/KUBE-MARK-MASQ", "-s 10.0.0.1/32 -j ACCEPT",
       Owner::kUnknown},
      {"IpvsModesHairpinRule", "nat/KUBE-POSTROUTING",
       "-m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE", Owner::kKubeProxyIpvs},
      {"AnotherSetMasquerades", "nat/KUBE-POSTROUTING",
       "-m set --match-set MINE dst,dst,src -j MASQUERADE", Owner::kUnknown},
      {"IpvsModesSetIsNegated", "nat/KUBE-POSTROUTING",
       "-m set ! --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE", Owner::kUnknown},
      {"OurFormWithAnotherLabel", "nat/KUBELET-MARK-MASQ", R"(-m connlabel --label "7" --set)",
       Owner::kThisAgent},
      {"AMarkInOurChainIsForeign", "nat/KUBELET-MARK-MASQ", "-j MARK --set-xmark 0x4000/0x4000",
       Owner::kUnknown},
      {"OurJump", "filter/FORWARD", "-j KUBELET-FIREWALL", Owner::kThisAgent},
      {"AForeignCommentOnOurJump", "filter/FORWARD",
       R"(-m comment --comment "mine" -j KUBELET-FIREWALL)", Owner::kUnknown},
      {"AForeignJumpToOurChain", "filter/FORWARD", "-i eth0 -j KUBELET-FIREWALL", Owner::kUnknown},
      {"AForeignJumpWithoutOurComment", "nat/POSTROUTING", "-j KUBELET-POSTROUTING",
       Owner::kUnknown},
      {"KubeletsJump", "filter/INPUT", "-j KUBE-FIREWALL", Owner::kKubelet},
      {"AForeignJumpToTheSameChain", "filter/INPUT", "-i eth0 -j KUBE-FIREWALL", Owner::kUnknown},
      {"AForeignJumpFromForward", "filter/FORWARD", "-j KUBE-FIREWALL", Owner::kUnknown},
      {"KubeProxysJump", "nat/PREROUTING",
       R"(-m comment --comment "kubernetes service portals" -j KUBE-SERVICES)", Owner::kKubeProxy},
      {"KubeletsPostroutingJump", "nat/POSTROUTING",
       R"(-m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING)",
       Owner::kKubelet},
      {"AForeignJumpToPostrouting", "nat/POSTROUTING",
       R"(-m comment --comment "mine" -j KUBE-POSTROUTING)", Owner::kUnknown},
      {"KubeletsWordsInAnotherBaseChain", "nat/OUTPUT",
       R"(-m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING)",
       Owner::kUnknown},
      {"AGotoIsNotKubeletsJump", "filter/INPUT", "-g KUBE-FIREWALL", Owner::kUnknown},
      {"AKubeletFormIsOneOfItsFamily", "ip6:filter/KUBE-FIREWALL",
       R"(! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP)",
       Owner::kUnknown},
      {"AForeignCommentOnTheSameJump", "filter/INPUT",
       R"(-m comment --comment "mine" -j KUBE-FIREWALL)", Owner::kUnknown},
      {"IpvsModesLoopbackSetInABaseChain", "nat/POSTROUTING",
       "-m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE", Owner::kUnknown},
      {"CalicosRuleInAForeignChain", "filter/MINE",
       R"(-m comment --comment "cali:O3lYWMrLQYEMJtB5" -j ACCEPT)", Owner::kCalico},
      {"AKubeletFormInATableThatIptablesDoesNotHave", "inet:nat/KUBE-MARK-MASQ",
       "-j MARK --set-xmark 0x4000/0x4000", Owner::kUnknown},
      {"ARuleOfOurNativeTable", "kube-iptables-agent/MINE", "-j DROP", Owner::kThisAgent},
      {"NodeLocalDns", "filter/INPUT",
       R"(-d 169.254.20.10/32 -m comment --comment "NodeLocal DNS Cache: allow DNS traffic" -j ACCEPT)",
       Owner::kNodeLocalDns},
      {"Weave", "filter/FORWARD",
       R"(-o weave -m comment --comment "NOTE: this must go before '-j KUBE-FORWARD'" -j WEAVE-NPC)",
       Owner::kWeave},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const auto [table, chain] = ChainNamed(row.place);
    const bool base = !absl::StrContains(chain, "-") && chain != "MINE";
    const std::string target(ParseRuleWords(row.rule).target);
    const netlink::SurveyRule rule =
        Surveyed(row.rule, absl::StrContains(target, "-") ? target : "",
                 table.family == "ip6" ? netlink::Family::kIPv6 : netlink::Family::kIPv4);
    EXPECT_EQ(OwnerOfRule(table, chain, base, rule), row.owner);
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

}  // namespace
}  // namespace kipt::agent
