// SPDX-License-Identifier: Apache-2.0
//
// What an audit finds before a change, and that it finds nothing on sound nodes. The hostile cases
// first: comments that lie, chains that imitate kube-proxy's, files that only look like rules.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/audit.h"
#include "agent/audit/finding.h"
#include "agent/audit/kube_proxy_facts.h"
#include "agent/audit/node_view.h"
#include "tests/agent/audit/audited.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

constexpr netlink::Family kFamily = netlink::Family::kIPv4;

AuditOptions Before(NodeChange change) {
  return {.mode = Mode::kCleanup,
          .change = change,
          .families = {netlink::Family::kIPv4, netlink::Family::kIPv6}};
}
const AuditOptions kNftables = Before(NodeChange::kKubeProxyNftables);
const AuditOptions kIpvs = Before(NodeChange::kKubeProxyIpvsRemoval);
const AuditOptions kToNft = Before(NodeChange::kIptablesNft);
const AuditOptions kGate = {.mode = Mode::kCleanup};

AuditOptions OfIPv4(AuditOptions options) {
  options.families = {kFamily};
  return options;
}
AuditOptions GateOff(AuditOptions options) {
  options.mode = Mode::kLegacy;
  return options;
}

// Errors and warnings.
std::vector<std::string> Bad(const AuditReport& report) {
  std::vector<std::string> lines = Lines(report);
  std::erase_if(lines, [](const std::string& line) { return absl::StartsWith(line, "info "); });
  return lines;
}

// ---- no finding on a sound node ----

TEST(BeforeChangeTest, SoundNodesOfEveryGenerationHaveNothingToRepair) {
  const std::string skew = absl::StrCat(KIPT_TESTDATA_DIR, "/../../skew/kube_proxy/testdata");
  int files = 0;
  for (const std::string& directory : {absl::StrCat(KIPT_TESTDATA_DIR, "/rulesets"), skew}) {
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      const std::string name = entry.path().filename();
      // Not what --cleanup left, nor the cases of another mark bit.
      if (!absl::EndsWith(name, ".save") || absl::StrContains(name, "cleanup") ||
          absl::StrContains(name, "bit20")) {
        continue;
      }
      const std::string text = FileText(entry.path());
      const bool v6 = absl::StrContains(name, "-v6");
      // Up to 1.19, its own jump from INPUT keeps its chains.
      const size_t input = text.find(
          "-A INPUT -m conntrack --ctstate NEW -m comment --comment "
          "\"kubernetes service portals\" -j KUBE-SERVICES");
      const bool old = input != std::string::npos;
      for (const char* mode : {"nft", "legacy"}) {
        SCOPED_TRACE(name + " " + mode);
        const NodeView view = ViewOf(v6 ? SurveyOf(mode, "", text) : SurveyOf(mode, text));
        for (const AuditOptions& options : {kNftables, kIpvs, kToNft}) {
          const std::vector<std::string> bad = Bad(Audit(view, options));
          if (old && options.change != NodeChange::kIptablesNft) {
            EXPECT_THAT(bad, ElementsAre("warning CleanupBlocked filter/KUBE-SERVICES"));
          } else {
            EXPECT_THAT(bad, IsEmpty()) << ChangeName(options.change);
          }
        }
      }
      ++files;
    }
  }
  EXPECT_GE(files, 40);
}

// ---- rules of others next to kube-proxy 1.28's ----

struct RulesRow {
  std::string name;
  AuditOptions options;
  std::vector<std::string> nat;
  std::string bad;               // errors and warnings, the worst first
  std::string consequence = {};  // a part of that of the first
  std::vector<std::string> filter = {};
  std::string mode = "nft";
};

TEST(BeforeChangeTest, FindsTheseRulesOfOthers) {
  const std::string lie = "-m comment --comment \"kubernetes service portals\"";
  const std::string masq = "nat/KUBE-MARK-MASQ";
  const std::vector<std::string> user = {"-A CNI-DN-1 -s 10.88.0.0/16 -j KUBE-MARK-MASQ"};
  AuditOptions bit_20 = kNftables;
  bit_20.bits.masquerade = 20;
  const std::vector<std::string> sets_bit = {
      "-A OWN -s 10.88.0.0/16 -j MARK --set-xmark 0x4000/0x4000"};
  const std::vector<std::string> reject = {
      "-A FORWARD -j REJECT --reject-with icmp-port-unreachable"};
  const RulesRow rows[] = {
      {"jumps that only read like kube-proxy's keep its chains", kNftables,
       List("-A PREROUTING -s 10.1.0.0/16 " + lie + " -j KUBE-SERVICES",
            "-A PREROUTING " + lie + " -j KUBE-NODEPORTS",
            "-A KUBE-EVIL " + lie + " -j KUBE-SVC-GNZBNJ2PO5MGZ6GT"),
       "warning CleanupBlocked nat/KUBE-SVC-GNZBNJ2PO5MGZ6GT, warning CleanupBlocked "
       "nat/KUBE-SERVICES, warning CleanupBlocked nat/KUBE-NODEPORTS"},
      {"a chain that imitates kube-proxy's is removed with them", kNftables,
       List("-A KUBE-SVC-EVIL -j KUBE-MARK-MASQ"), ""},
      {"a chain that does not stays", kNftables, List("-A KUBE-EVIL -j KUBE-MARK-MASQ"),
       "error ChainUser " + masq + ", warning CleanupBlocked " + masq},
      {"users of the mark work on with kube-proxy", kGate, user, "warning ChainUser " + masq},
      {"and in the other iptables mode", kToNft, user, ""},
      {"but break with nftables mode", kNftables, user,
       "error ChainUser " + masq + ", warning CleanupBlocked " + masq,
       "Once kube-proxy is in nftables mode, no program makes nat/KUBE-MARK-MASQ"},
      {"with the gate off kubelet keeps its chains", GateOff(kNftables),
       List("-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000", "-A OWN -j KUBE-MARK-MASQ",
            "-A OWN -j KUBE-MARK-DROP"),
       "warning ChainUser " + masq +
           ", warning ChainUser nat/KUBE-MARK-DROP, warning "
           "CleanupBlocked " +
           masq,
       "keeps nat/KUBE-MARK-MASQ while IPTablesOwnershipCleanup is off"},
      {"who sets the bit is still masqueraded", kNftables, sets_bit,
       "warning MarkBitSet nat/KUBE-POSTROUTING", "nftables mode masquerades"},
      {"by bit 14, whatever is configured here", bit_20, sets_bit,
       "warning MarkBitSet nat/KUBE-POSTROUTING", "nftables mode masquerades"},
      {"a firewall that drops meets traffic that kube-proxy accepted", kNftables, List(),
       "warning FirewallBypassed filter/KUBE-FORWARD", "", reject},
      {"not one of some packets", kNftables, List(), "", "",
       List("-A FORWARD -s 10.0.0.0/8 -j DROP")},
      {"not one that accepts first", kNftables, List(), "", "",
       List("-A OWN -j ACCEPT", "-A FORWARD -j OWN", "-A FORWARD -j DROP")},
      {"one from which some packets return", kNftables, List(),
       "warning FirewallBypassed filter/KUBE-FORWARD", "",
       List("-A OWN -s 10.0.0.0/8 -j RETURN", "-A OWN -j ACCEPT", "-A FORWARD -j OWN",
            "-A FORWARD -j DROP")},
      {"nor before another change", kToNft, List(), "", "", reject},
      {"kube-proxy's sets go with IPVS mode", kIpvs,
       List("-A OWN -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN"), "warning IpsetUser", "",
       List(), "legacy"},
      {"kube-router has others", kIpvs,
       List("-A OWN -m set --match-set KUBE-SRC-ABCDEFGH src -j RETURN"), "", "", List(), "legacy"},
      {"a plugin may spare what kube-proxy masquerades", kGate,
       List("-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -j RETURN"), ""},
      {"and not do more by its mark", kGate,
       List("-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -j ACCEPT"), "warning MarkBitTested"},
      {"no rule of iptables-nft remains", kToNft, List(), "", "",
       List("-A INPUT -s 192.0.2.0/24 -j DROP")},
  };
  for (const RulesRow& row : rows) {
    SCOPED_TRACE(row.name);
    const AuditReport report =
        Audit(ViewOf(WithKubeProxy(row.nat, row.filter, row.mode)), row.options);
    EXPECT_EQ(absl::StrJoin(Bad(report), ", "), row.bad);
    EXPECT_THAT(report.findings[0].consequence, HasSubstr(row.consequence));
  }
}

struct HostRow {
  std::string name;
  ChangeFacts facts = {};
  std::vector<std::string> lines = {};
  AuditOptions options = kNftables;
};

TEST(BeforeChangeHostTest, IsJudged) {
  const ChangeFacts no_ipv6_reject = {.missing = {{.feature = "nft reject, IPv6",
                                                   .module = "nft_reject_ipv6",
                                                   .family = netlink::Family::kIPv6,
                                                   .reason = "nft_reject_ipv6 is not loaded"}}};
  const auto nft = [](const char* version) {
    return ChangeFacts{.nft_path = "/usr/sbin/nft", .nft_version = version};
  };
  const auto kernel = [](const char* version) { return ChangeFacts{.kernel = version}; };
  const auto counting = [](const char* version) {
    return ChangeFacts{.kernel = version, .counters = {{"ct_state_invalid_dropped_pkts", 3}}};
  };
  const auto saved = [](const char* line, BootRefusal refusal = BootRefusal::kNone) {
    return ChangeFacts{
        .saved = {{.file = "/etc/iptables/rules.v4", .lines = {line}, .refusal = refusal}}};
  };
  const ChangeFacts lock_and_table = {
      .lock_holder = "/run/xtables.lock: held by process 7 (iptables)",
      .no_nat = "table nat, IPv6"};
  const ChangeFacts no_nft_compat = {.no_nft_compat = "nft_compat is not loaded"};
  const std::string probe = "warning IptablesProbeFails";
  const HostRow rows[] = {
      {"Unknown"},
      {"Nonsense", {.kernel = "gentoo", .nft_path = "/usr/sbin/nft", .nft_version = "x"}},
      {"Kernel5_10", kernel("5.10.0-28-amd64"), List("error KernelTooOld")},
      {"Kernel5_13", kernel("5.13.0")},
      {"Kernel6_1", kernel("6.1-rc1")},
      {"LacksAModule", no_ipv6_reject, List("error KernelLacksModules")},
      {"OfAFamilyThatTheNodeLacks", no_ipv6_reject, List(), OfIPv4(kNftables)},
      {"NftOfBullseye", nft("0.9.8"), List("warning NftTooOld")},
      {"Nft1_0_0", nft("1.0.0")},
      {"Nft1_0_1", nft("1.0.1")},
      {"Nft1_1_3", nft("1.1.3")},
      {"NeedsTheWorkaround", counting("5.15.0"), List("warning ConntrackWorkaround")},
      {"NeedsItNoMore", counting("6.1.0")},
      {"LvsDirectors", {.ipvs_schedulers = {{"wlc", 2}}}, {"error IpvsOfOthers"}},
      {"SavedGhosts", saved("3: :KUBE-X"), List("error SavedRules")},
      {"SavedJumps", saved("3: -A X -j KUBE-MARK-MASQ", BootRefusal::kChain),
       List("error SavedRules")},
      {"CannotHoldNftsRules", no_nft_compat, List("error NotInNft"), kToNft},
      {"AHeldLockAndAMissingTable", lock_and_table, List(probe, probe), kToNft},
      {"AHeldLock", lock_and_table, List(probe), OfIPv4(kToNft)},
  };
  for (const HostRow& row : rows) {
    SCOPED_TRACE(row.name);
    NodeView view;
    view.facts = row.facts;
    EXPECT_EQ(Bad(Audit(view, row.options)), row.lines);
    view.problems = {"iptables-legacy tables: it hangs"};
    view.hidden = {"saved rules: /host/etc/nftables.conf"};
    EXPECT_THAT(Bad(Audit(view, row.options)), Contains("warning NotSeen"));
  }
}

// ---- what is reported of a node with kube-proxy 1.28, or with one in IPVS mode ----

TEST(BeforeChangeTest, GivesTheConsequencesWithKubeProxy) {
  const NodeView sound = ViewOf(WithKubeProxy({}));
  NodeView with_ipvs = ViewOf(WithKubeProxy({"-A CNI-DN-1 -s 10.88.0.0/16 -j KUBE-MARK-MASQ"}));
  with_ipvs.facts.has_ip_vs = true;
  NodeView azure = sound;
  azure.cni.references = {
      {.file = "/net.conflist", .plugin = "portmap", .chain = "KUBE-MARK-MASQ"}};
  NodeView nftables_backend = azure;
  nftables_backend.cni.references[0].backend = "nftables";
  NodeView wireguard = sound;
  wireguard.device_marks = {{.place = "the WireGuard interface wg0",
                             .text = "fwmark 0x4000",
                             .marks = {.set = 0x4000, .cleared = ~uint32_t{0x4000}}}};
  const NodeView bit20 = ViewOf(SurveyOf(
      "nft", ReadTestdata("../../skew/kube_proxy/testdata/kube-proxy-1.31-A-v4.bit20.save")));
  // The file is of one family.
  NodeView ipvs = ViewOf(SurveyOf("nft", ReadTestdata("audited/ipvs-1.28-v4.save")));
  ipvs.facts.ipvs_device = true;
  ipvs.facts.ipvs_schedulers = {{"rr", 3}, {"lc", 1}};
  NodeView left_over = sound;
  left_over.facts = ipvs.facts;
  const NodeView legacy = ViewOf(
      WithKubeProxy({"-A CNI-DN-1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:80",
                     "-A PREROUTING -d 10.7.0.1/32 -j CLUSTERIP --new"},
                    {"-A INPUT -s 192.0.2.0/24 -j DROP"}, "legacy"));
  NodeView localhost = sound;
  localhost.route_localnet.interfaces = {"all"};
  NodeView unused = localhost;
  unused.facts.counters = {{"localhost_nps_accepted_pkts", 0}};
  NodeView used = localhost;
  used.facts.counters = {{"localhost_nps_accepted_pkts", 7}};
  const NodeView no_localhost = ViewOf(SurveyOf(
      "nft", ReadTestdata("../../skew/kube_proxy/testdata/kube-proxy-1.31-A-v4.nolocalhost.save")));
  const AuditKind node_ports = AuditKind::kLocalhostNodePorts;
  const std::string cni = "CniConfig nat/KUBE-MARK-MASQ\n";
  const struct {
    const char* name;
    NodeView view;
    AuditOptions options;
    AuditKind kind;
    std::vector<std::string> parts;  // empty: nothing is found
  } rows[] = {
      {"cleanup empties chains of who has IPVS", with_ipvs, kNftables, AuditKind::kCleanupBlocked,
       List("empties KUBE-MARK-MASQ")},
      {"a conflist that names MARK-MASQ", azure, kGate, AuditKind::kCniConfig,
       List("warning " + cni)},
      {"next to a kubelet", azure, GateOff(kNftables), AuditKind::kCniConfig,
       List("warning " + cni)},
      {"fails after the change", azure, kNftables, AuditKind::kCniConfig,
       List("error " + cni, "its next ADD will fail")},
      {"in nftables it is refused", nftables_backend, kNftables, AuditKind::kCniConfig,
       List("error " + cni, "refuses externalSetMarkChain")},
      {"a device sets the bit", wireguard, kNftables, AuditKind::kDeviceMark, List("DeviceMark")},
      {"which another change leaves", wireguard, kToNft, AuditKind::kDeviceMark, List()},
      {"another masquerade bit", bit20, kNftables, AuditKind::kMasqueradeBit,
       List("warning MasqueradeBit nat/KUBE-MARK-MASQ")},
      {"IPVS mode is in use", ipvs, OfIPv4(kIpvs), AuditKind::kIpvsInUse, List("error IpvsInUse")},
      {"with schedulers that others lack", ipvs, OfIPv4(kIpvs), AuditKind::kIpvsScheduler,
       List("warning IpvsScheduler", "\nlc: 1 virtual service\n")},
      {"the way out is not its own obstacle", ipvs, OfIPv4(kNftables), AuditKind::kIpvsInUse,
       List()},
      {"nor is it one of the gate", ipvs, kGate, AuditKind::kIpvsInUse, List()},
      {"a left over device takes packets", left_over, kIpvs, AuditKind::kIpvsInUse,
       List("warning IpvsInUse")},
      {"node ports over localhost", localhost, kNftables, node_ports, List("info ")},
      {"that are used", used, kNftables, node_ports,
       List("error LocalhostNodePorts nat/KUBE-NODEPORTS",
            "\nnfacct localhost_nps_accepted_pkts: 7 packets\n")},
      {"that are not", unused, kNftables, node_ports, List()},
      {"that cannot be", sound, kNftables, node_ports, List()},
      {"that are switched off", no_localhost, kNftables, node_ports, List()},
      {"targets that nft lacks", legacy, kToNft, AuditKind::kNotInNft, List("error NotInNft")},
  };
  for (const auto& row : rows) {
    const std::string text = Described(Audit(row.view, row.options), row.kind);
    EXPECT_EQ(text.empty(), row.parts.empty()) << row.name << ": " << text;
    for (const std::string& part : row.parts) EXPECT_THAT(text, HasSubstr(part)) << row.name;
  }
  const AuditReport stay = Audit(legacy, kToNft);
  ASSERT_THAT(Bad(stay),
              ElementsAre("error NotInNft", "warning LegacyRulesStay", "warning LegacyRulesStay"));
  EXPECT_THAT(stay.findings[1].owner, Owner::kUnknown);
  EXPECT_THAT(stay.findings[2].remedy, HasSubstr("the host's iptables"));
  EXPECT_EQ(stay.findings.back().kind, AuditKind::kLegacyRulesStay) << "of Kubernetes";
  EXPECT_GT(stay.findings.back().count, 20U);
}

TEST(BeforeChangeTest, AnOldNftIsAnErrorWhereTablesOfNftExist) {
  NodeView view = ViewOf(WithKubeProxy({}));
  view.surveys[0].tables[{"ip", "kube-proxy"}]["services"] = {};
  view.surveys[0].tables[{"ip", "kube-iptables-agent"}]["input"] = {};
  view.surveys[0].tables[{"ip6", "security"}]["INPUT"] = {};
  view.facts = {.nft_path = "/usr/sbin/nft", .nft_version = "0.9.8"};
  EXPECT_THAT(Bad(Audit(view, kNftables)), ElementsAre("warning NftTooOld"));
  view.surveys[0].tables[{"inet", "filter"}] = {};
  const AuditReport report = Audit(view, kNftables);
  ASSERT_THAT(Bad(report), ElementsAre("error NftTooOld"));
  EXPECT_THAT(report.findings[0].details, ElementsAre("/usr/sbin/nft: 0.9.8", "table inet filter"));
  EXPECT_THAT(report.findings[0].consequence, HasSubstr("So do firewalls"));
  view.facts.nft_version = "1.0.0";
  const AuditReport newer = Audit(view, kNftables);
  EXPECT_THAT(Bad(newer), IsEmpty());
  EXPECT_NE(FindKind(newer, AuditKind::kNftTooOld), nullptr);
}

TEST(BeforeChangeTest, AFindingShowsTwentyDetailsAndCountsAll) {
  NodeView view;
  for (int i = 0; i < 1000; ++i) view.problems.push_back(absl::StrCat("problem ", i));
  AuditReport report = Audit(view, kNftables);
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_THAT(report.findings[0].details, SizeIs(kMostDetails));
  EXPECT_EQ(report.findings[0].count, 1000U);
  EXPECT_THAT(AuditText(report), HasSubstr("980 more"));
  // A finding that comes with its details.
  std::string text;
  for (const char* table : {"nat", "filter"}) {
    std::string chains = absl::StrCat("*", table, "\n:INPUT ACCEPT [0:0]\n");
    std::string rules;
    for (const char* name :
         {"SERVICES", "NODEPORTS", "EXTERNAL-SERVICES", "FORWARD", "PROXY-FIREWALL", "MARK-MASQ",
          "MARK-DROP", "POSTROUTING", "FIREWALL", "LOAD-BALANCER", "NODE-PORT", "IPVS-FILTER",
          "PROXY-CANARY", "SVC-1", "SEP-1", "FW-1", "XLB-1", "SVL-1", "EXT-1"}) {
      absl::StrAppend(&chains, ":KUBE-", name, " - [0:0]\n");
      absl::StrAppend(&rules, "-A INPUT -j KUBE-", name, "\n-A KUBE-", name, " -j ACCEPT\n");
    }
    absl::StrAppend(&text, chains, rules, "COMMIT\n");
  }
  NodeView both = ViewOf(SurveyOf("nft", text));
  both.surveys.push_back(SurveyOf("legacy", text));
  report = Audit(both, {});
  const AuditFinding* same = FindKind(report, AuditKind::kSameChainInBothModes);
  ASSERT_NE(same, nullptr);
  EXPECT_THAT(same->details, SizeIs(kMostDetails));
  EXPECT_GT(same->count, kMostDetails);
}

// ---- kubelet's probe ----

netlink::Survey Kubelets(const std::string& mode, bool v4, bool v6) {
  const std::string text =
      "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";
  return SurveyOf(mode, v4 ? text : "", v6 ? text : "");
}

TEST(BeforeChangeTest, AFamilyWithoutKubeletsChainsWasGivenUp) {
  EXPECT_THAT(Bad(Audit(ViewOf(Kubelets("nft", true, true)), kNftables)), IsEmpty());
  const AuditReport v4 = Audit(ViewOf(Kubelets("nft", false, true)), kNftables);
  ASSERT_THAT(Bad(v4), ElementsAre("error FamilySkipped"));
  EXPECT_THAT(Bad(Audit(ViewOf(Kubelets("nft", false, true)), GateOff(kNftables))), IsEmpty());
  EXPECT_EQ(v4.findings[0].family, "ip");
  EXPECT_THAT(Bad(Audit(ViewOf(Kubelets("legacy", true, false)), kToNft)),
              ElementsAre("warning FamilySkipped"));
  // A node of one family, and one whose families use two modes.
  EXPECT_THAT(Bad(Audit(ViewOf(Kubelets("nft", true, false)), OfIPv4(kNftables))), IsEmpty());
  const std::string agents = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n";
  EXPECT_THAT(Bad(Audit(ViewOf(SurveyOf("nft", agents)), kNftables)), IsEmpty()) << "no kubelet";
  NodeView both = ViewOf(Kubelets("nft", true, false));
  both.surveys.push_back(Kubelets("legacy", false, true));
  EXPECT_THAT(Bad(Audit(both, kNftables)), IsEmpty());
}

TEST(BeforeChangeTest, ARuleThatIptablesCannotListIsFoundBeforeKubeletStarts) {
  netlink::Survey survey = Kubelets("nft", true, true);
  survey.tables[{"ip", "nat"}]["POSTROUTING"] = {.base = true,
                                                 .rules = {Surveyed("-j MASQUERADE")}};
  EXPECT_THAT(Bad(Audit(ViewOf(survey), kNftables)), IsEmpty());
  survey.tables[{"ip", "nat"}]["POSTROUTING"].rules[0].unlistable = true;
  for (const NodeChange change : {NodeChange::kOwnershipCleanup, NodeChange::kKubeProxyNftables}) {
    EXPECT_THAT(
        Bad(Audit(ViewOf(survey), Before(change))),
        ElementsAre("error IptablesProbeFails nat/POSTROUTING", "warning TableIncompatible nat/*"));
  }
  // kubelet does not run in a container's namespace.
  NodeView container = ViewOf(survey);
  container.name = "netns of a container";
  EXPECT_EQ(FindKind(Audit(container, kNftables), AuditKind::kIptablesProbeFails), nullptr);
  // kubelet asks iptables-legacy there.
  NodeView legacy = ViewOf(survey);
  legacy.surveys[0].tables.erase({"ip", "mangle"});
  legacy.surveys[0].tables.erase({"ip6", "mangle"});
  legacy.surveys.push_back(Kubelets("legacy", true, true));
  EXPECT_EQ(FindKind(Audit(legacy, kNftables), AuditKind::kIptablesProbeFails), nullptr);
  EXPECT_NE(FindKind(Audit(legacy, kToNft), AuditKind::kIptablesProbeFails), nullptr);
}

TEST(BeforeChangeTest, ABaseChainOfAnotherPriorityTakesNoRuleOfIptables) {
  netlink::Survey survey = Kubelets("nft", true, true);
  netlink::SurveyChain& chain = survey.tables[{"ip", "nat"}]["POSTROUTING"];
  chain = {.base = true, .hook = netlink::HookOfIptables("nat", "POSTROUTING")};
  EXPECT_THAT(Bad(Audit(ViewOf(survey), kNftables)), IsEmpty());
  chain.hook->priority = 0;
  const AuditReport report = Audit(ViewOf(survey), kNftables);
  ASSERT_THAT(Bad(report), ElementsAre("error TableIncompatible nat/POSTROUTING"));
  EXPECT_THAT(report.findings[0].details, ElementsAre("priority 0, of iptables 100"));
}

// ---- what is gathered ----

class ChangeFactsTest : public ::testing::Test {
 protected:
  ChangeFactsTest() {
    tree_.Write("proc/modules", "");
    tree_.Write("proc/version", "Linux");
    sources_.kernel.proc = tree_.Path("proc");
    sources_.kernel.sys_module = tree_.Path("sys");
    sources_.kernel.module_directories = {tree_.Path("lib")};
    sources_.table_names_path = tree_.Path("proc/thread-self/net/%s_tables_names");
    tree_.Write("proc/thread-self/net/dev", "");
    sources_.host_root.directory = tree_.Path("host");
    tree_.Write("host/etc/hosts", "");
    tree_.Write("lib/modules.builtin", "");
    tree_.Write("lib/modules.dep", "kernel/net/netfilter/nft_ct.ko:\n");
  }
  NodeView Gather(NodeChange change) { return GatherNodeView(sources_, {}, change); }

  TemporaryTree tree_;
  ModeSources sources_;
};

TEST_F(ChangeFactsTest, ReadTheVersionInTheProgramAndRunNothing) {
  tree_.Write("host/usr/sbin/nft", std::string("\0ELF\0 1.0.6\0"
                                               "1.0.6\0nftables\0"
                                               "9.9\0",
                                               28));
  const NodeView view = Gather(NodeChange::kKubeProxyNftables);
  EXPECT_EQ(view.facts.nft_version, "1.0.6");
  EXPECT_EQ(view.facts.nft_path, tree_.Path("host/usr/sbin/nft"));
  tree_.Write("host/usr/sbin/nft", "#!/bin/sh\nexec /opt/nft-0.9/nft \"$@\"\n");
  EXPECT_EQ(Gather(NodeChange::kKubeProxyNftables).facts.nft_version, "");
}

TEST_F(ChangeFactsTest, NameTheModulesThatTheKernelLacks) {
  const auto missing = [&] {
    std::vector<std::string> modules;
    for (const Capability& one : Gather(NodeChange::kKubeProxyNftables).facts.missing) {
      modules.emplace_back(one.module);
    }
    return modules;
  };
  // conntrack's netlink is needed by the other modes, too.
  EXPECT_THAT(missing(),
              ElementsAre("nf_tables", "nft_chain_nat", "nft_nat", "nft_masq", "nft_numgen",
                          "nft_fib_ipv4", "nft_fib_ipv6", "nft_reject_ipv4", "nft_reject_ipv6"));
  tree_.Write("proc/modules", "nft_numgen 1 - Live 0x0\n");
  EXPECT_THAT(missing(), Not(Contains("nft_numgen")));
  // What cannot be read is not missing.
  tree_.Remove("lib/modules.dep");
  EXPECT_THAT(missing(), IsEmpty());
}

TEST_F(ChangeFactsTest, FindLinesOfSavedRulesAndTheirUndeclaredChains) {
  tree_.Write("host/etc/iptables/rules.v4",
              "# KUBE-COMMENT\n*nat\n:KUBE-MARK-MASQ - [0:0]\n-A OWN -j KUBE-MARK-MASQ\nCOMMIT\n");
  tree_.Write("host/etc/firewalld/direct.xml",
              "<!-- KUBE-SERVICES -->\n<rule ipv=\"ipv4\">-j KUBE-MARK-MASQ</rule>\n");
  tree_.Write("host/etc/ufw/before.rules", "-A ufw -j ACCEPT\n");
  const std::vector<SavedRules> saved = Gather(NodeChange::kIptablesNft).facts.saved;
  ASSERT_THAT(saved, SizeIs(2));
  EXPECT_EQ(saved[0].count, 2U);
  EXPECT_EQ(saved[0].refusal, BootRefusal::kNone);
  EXPECT_THAT(saved[0].lines,
              ElementsAre("3: :KUBE-MARK-MASQ - [0:0]", "4: -A OWN -j KUBE-MARK-MASQ"));
  EXPECT_EQ(saved[1].refusal, BootRefusal::kChain);
  EXPECT_THAT(saved[1].lines, ElementsAre(HasSubstr("2: <rule")));
}

TEST_F(ChangeFactsTest, KeepLittleOfAnEndlessLineAndNameWhatCannotBeRead) {
  tree_.Write("host/etc/iptables/rules.v4", "-A X -j KUBE-" + std::string(1000000, 'A'));
  tree_.Directory("host/etc/nftables.conf");
  const NodeView view = Gather(NodeChange::kIptablesNft);
  ASSERT_THAT(view.facts.saved, SizeIs(1));
  EXPECT_LT(view.facts.saved[0].lines[0].size(), 210U);
  EXPECT_THAT(view.problems, ElementsAre(HasSubstr("etc/nftables.conf is no regular file")));
}

// A change must not seem harmless because a source could not be read.
TEST_F(ChangeFactsTest, NameEachSourceThatIsHidden) {
  tree_.Link("host/etc/nftables.d", "nftables.d");
  tree_.Link("host/etc/iptables/ipsets", "ipsets");
  tree_.Link("host/usr/sbin/nft", "nft");
  tree_.Remove("proc/thread-self/net/dev");
  EXPECT_THAT(Gather(NodeChange::kKubeProxyNftables).problems,
              UnorderedElementsAre(HasSubstr("saved rules: "), HasSubstr("etc/iptables/ipsets"),
                                   HasSubstr("the version of nft: "), HasSubstr("IPVS: "),
                                   HasSubstr("ip_tables_names"), HasSubstr("ip6_tables_names")));
}

TEST_F(ChangeFactsTest, CountVirtualServicesByScheduler) {
  tree_.Write("proc/thread-self/net/ip_vs",
              "IP Virtual Server version 1.2.1 (size=4096)\n"
              "Prot LocalAddress:Port Scheduler Flags\n"
              "  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n"
              "TCP  0A600001:01BB rr \n  -> 0AF40001:01BB      Masq    1      0          0\n"
              "UDP  [fd00:0000]:0035 sh persistent 10800 FFFFFFFF\nFWM  00000001 rr \n");
  tree_.Write("proc/sys/net/ipv4/conf/kube-ipvs0/forwarding", "1\n");
  tree_.Write("proc/modules", "ip_vs 1 - Live 0x0\n");
  const ChangeFacts facts = Gather(NodeChange::kKubeProxyIpvsRemoval).facts;
  EXPECT_EQ(facts.ipvs_schedulers, (std::map<std::string, size_t>{{"rr", 2}, {"sh", 1}}));
  EXPECT_TRUE(facts.ipvs_device);
  EXPECT_TRUE(facts.has_ip_vs);
}

TEST_F(ChangeFactsTest, ForTheGateAreSavedRulesAlone) {
  tree_.Write("host/etc/iptables/rules.v4", "-A OWN -j KUBE-MARK-MASQ\n");
  ChangeFacts facts = Gather(NodeChange::kOwnershipCleanup).facts;
  EXPECT_THAT(facts.saved, SizeIs(1));
  facts.saved.clear();
  EXPECT_EQ(facts, ChangeFacts());
}

// The lines are of nft 0.9.8, 1.0.6, 1.1.3 and 1.1.7, and of iptables-save.
TEST_F(ChangeFactsTest, FindWhatIsLoadedAtBootAndWhyLoadingFails) {
  struct Row {
    const char* path;
    const char* text;
    std::optional<BootRefusal> refusal;  // nothing: no finding
  };
  const std::string chain = "table ip nat {\n\tchain KUBE-POSTROUTING {\n\t\t";
  const std::string unreadable = chain + "comment \"c\" counter packets 0 bytes 0 masquerade\n";
  const std::string untranslated = chain + "ct state new xt match \"set\" counter drop\n";
  const std::string readable = chain + "masquerade fully-random comment \"c\"\n\t}\n";
  using enum BootRefusal;
  for (const Row& row : std::vector<Row>{
           {"var/lib/iptables/rules-save", ":KUBE-A - [0:0]\n", kNone},
           {"var/lib/ip6tables/rules-save", ":KUBE-A - [0:0]\n", kNone},
           {"var/lib/nftables/rules-save", readable.c_str(), kNone},
           {"etc/iptables/rules-save", "-A A -j KUBE-A\n", kChain},
           {"etc/iptables/iptables.rules", ":KUBE-A - [0:0]\n", kNone},
           {"etc/nftables/node.nft", readable.c_str(), kNone},
           {"etc/nftables.d/50-node.nft", unreadable.c_str(), kSyntax},
           {"etc/nftables.conf", untranslated.c_str(), kSyntax},
           {"etc/nftables.conf", "set s {\n comment \"KUBE-A jump KUBE-B\"\n}\n", std::nullopt},
           {"etc/nftables.conf", "set KUBE-A {\n comment \"KUBE-A\"\n}\n", kNone},
           {"etc/nftables.conf", "include \"/opt/*.nft\"\n", kChain},
           {"etc/nftables.conf", "chain KUBE-A {\n}\ninclude \"/opt/x.nft\"\n", kNone},
           {"etc/nftables.conf", "include \"/opt/rules\"\n", kSyntax},
           {"etc/nftables.conf", "include \"x.conf\"\n", std::nullopt},
           {"etc/nftables.d/50-node.conf", readable.c_str(), std::nullopt},
           {"etc/iptables/rules.v4",
            ":KUBE-A - [0:0]\n-A KUBE-A -m nfacct --nfacct-name ct_state_invalid_dropped_pkts\n",
            kObject},
           {"etc/iptables/rules.v4",
            ":KUBE-A - [0:0]\n-A KUBE-A -m set --match-set KUBE-LOOP-BACK dst,dst,src -j RETURN\n",
            kObject},
           {"etc/iptables/rules.v4",
            ":KUBE-A - [0:0]\n-A KUBE-A -m set --match-set kept src -j RETURN\n", kNone},
           {"etc/iptables/rules.v4", "-A A --comment \"\\\"a -j KUBE-B\" -j B\n", std::nullopt},
           {"etc/iptables/rules.v4", "-A A -m comment --comment KUBE-A -j B\n", std::nullopt},
           {"etc/iptables/rules.v4", "-A INPUT -m nfacct --nfacct-name mine\n", std::nullopt}}) {
    const std::string path = std::string("host/") + row.path;
    tree_.Write("host/opt/x.nft", "add rule ip nat A jump KUBE-A\n");
    tree_.Write("host/opt/rules", "include \"/opt/more\"\n");
    tree_.Write("host/opt/more", unreadable);
    tree_.Write("host/etc/iptables/ipsets", "create kept hash:ip family inet\n");
    tree_.Write(path, row.text);
    const std::vector<SavedRules> saved = Gather(NodeChange::kOwnershipCleanup).facts.saved;
    tree_.Remove(path);
    EXPECT_EQ(saved.empty(), !row.refusal) << row.path << "\n" << row.text;
    for (const SavedRules& one : saved) EXPECT_EQ(one.refusal, row.refusal) << row.text;
  }
}

// ---- names and output ----

TEST(BeforeChangeTest, ChangesHaveNamesThatCanBeReadBack) {
  for (int number = 0; number < 4; ++number) {
    const auto change = static_cast<NodeChange>(number);
    EXPECT_EQ(ChangeFromName(ChangeName(change)), change);
  }
  EXPECT_EQ(ChangeFromName("nftables"), std::nullopt);
}

TEST(BeforeChangeTest, TextAndJsonNameTheChangeAndTheSource) {
  NodeView view = ViewOf(WithKubeProxy({}));
  view.facts.kernel = "5.10.0";
  const AuditReport report = Audit(view, kNftables);
  EXPECT_THAT(AuditText(report),
              AllOf(HasSubstr("error   KernelTooOld"), HasSubstr("    see KEP-3866\n"),
                    HasSubstr(" before kube-proxy-nftables\n")));
  EXPECT_THAT(AuditJson(report), AllOf(HasSubstr("\"before\": \"kube-proxy-nftables\""),
                                       HasSubstr("\"source\": \"KEP-3866\"")));
}

}  // namespace
}  // namespace kipt::agent
