// SPDX-License-Identifier: Apache-2.0
//
// What `audit --before=CHANGE` predicts, and what packets and programs then do: on nft and
// iptables-legacy, with rules that kube-proxy wrote, and iptables of three releases.
#include <nlohmann/json.hpp>

#include "tests/interop/retire_fixture.h"
#include "tests/interop/service_world.h"

namespace kipt::testing {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kWait = absl::Seconds(5);

std::string Capture(const std::string& name) {
  std::string text = FileText(absl::StrCat(KIPT_CAPTURES_DIR, "/", name));
  EXPECT_NE(text, "") << name;
  return text;
}

class BeforeChangeTest : public RetireTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static Iptables Ip4() { return {.mode = GetParam()}; }

  // "error ChainUser nat/KUBE-MARK-MASQ": errors and warnings of this audit.
  std::vector<std::string> Bad(const std::string& change) const {
    const ProgramResult audit =
        Agent({"audit", "--before=" + change, "--output=json", "--cni-conf-dir=" + cni_dir()});
    const Json report = Json::parse(audit.out, nullptr, /*allow_exceptions=*/false);
    EXPECT_FALSE(report.is_discarded()) << audit;
    if (report.is_discarded()) return {};
    EXPECT_EQ(report["before"], change);
    std::vector<std::string> bad;
    for (const Json& finding : report["findings"]) {
      if (finding["severity"] == "info") continue;
      bad.push_back(absl::StrCat(finding["severity"].get<std::string>(), " ",
                                 finding["id"].get<std::string>(), " ",
                                 finding["chain"].get<std::string>()));
    }
    EXPECT_EQ(audit.exit_code, bad.empty() ? kExitOk : kExitDifferences) << audit;
    return bad;
  }
};

constexpr char kUser[] =
    "*nat\n:OWN-PORT - [0:0]\n-A PREROUTING -p tcp -m tcp --dport 8080 -j OWN-PORT\n"
    "-A OWN-PORT -j KUBE-MARK-MASQ\n"
    "-A OWN-PORT -p tcp -j DNAT --to-destination 10.180.0.3:80\nCOMMIT\n";

// As kube-proxy 1.36 starts in nftables mode: its jumps, then its chains, then its table.
ProgramResult SwitchToNftables(const Iptables& iptables) {
  for (const char* const base : {"PREROUTING", "OUTPUT"}) {
    iptables.Run({"-t", "nat", "-D", base, "-m", "comment", "--comment",
                  "kubernetes service portals", "-j", "KUBE-SERVICES"});
  }
  iptables.Run({"-t", "nat", "-D", "POSTROUTING", "-m", "comment", "--comment",
                "kubernetes postrouting rules", "-j", "KUBE-POSTROUTING"});
  ProgramResult cleaned = iptables.Restore(Capture("kube-proxy-1.34-A-v4.cleanup-nat.input"));
  const ProgramResult loaded =
      RunProgram({"nft", "-f", "-"}, Capture("kube-proxy-1.36-A-v4.nftables.input"));
  EXPECT_EQ(loaded.exit_code, 0) << loaded;
  return cleaned;
}

TEST_P(BeforeChangeTest, AUserOfMarkMasqIsMasqueradedUntilTheRebootAndNotAfterwards) {
  ServiceWorld world;
  Load(Ip4(), KubeProxySave("1.28", Ip4()));
  EXPECT_THAT(Bad("kube-proxy-nftables"), IsEmpty()) << "a sound node";
  Load(Ip4(), kUser);
  EXPECT_EQ(world.Reaches(kHostPort, kWait), kMasqueraded);
  const std::vector<std::string> bad = Bad("kube-proxy-nftables");
  EXPECT_THAT(bad, Contains("error ChainUser nat/KUBE-MARK-MASQ"));
  EXPECT_THAT(bad, Contains("warning CleanupBlocked nat/KUBE-MARK-MASQ"));

  // CleanupBlocked: the chains stay, and so the mark, which nftables mode masquerades.
  EXPECT_NE(SwitchToNftables(Ip4()).exit_code, 0);
  EXPECT_EQ(Ip4().Run({"-t", "nat", "-S", "KUBE-MARK-MASQ"}).exit_code, 0);
  EXPECT_EQ(world.Reaches(kHostPort, kWait), kMasqueraded);
  EXPECT_EQ(world.Reaches(kNodePort, kWait), kMasqueraded) << "the new table serves";

  // ChainUser: after a reboot the rule is refused, and the packet keeps its source.
  Ip4().Run({"-t", "nat", "-F"});
  Ip4().Run({"-t", "nat", "-X"});
  EXPECT_NE(Ip4().Restore(kUser).exit_code, 0);
  std::string without = kUser;
  without.erase(without.find("-A OWN-PORT -j KUBE"), sizeof("-A OWN-PORT -j KUBE-MARK-MASQ"));
  Load(Ip4(), without);
  EXPECT_EQ(world.Reaches(kHostPort, kWait), kUnchanged);
}

// Not here: those that need a reboot, a kernel module, or another release of a program. Those of
// KubeProxyLeftOver are tried next to kube-proxy (skew_kube_proxy_actor_test).
struct RemedyRow {
  const char* name;
  const char* finding;
  const char* remedy;
  // Scripts: $IPT of this mode, $OTHER of the other one.
  const char* cause;
  const char* tried;
  const char* change = "ownership-cleanup";
};
constexpr RemedyRow kRemedies[] = {
    {"MasqueradeInTheRules", "error ChainUser nat/KUBE-MARK-MASQ",
     "the same match with -j MASQUERADE in a chain that nat POSTROUTING jumps to",
     "$IPT -t nat -N KUBE-MARK-MASQ; $IPT -t nat -N OWN; $IPT -t nat -A PREROUTING -j OWN; $IPT -t "
     "nat -A OWN -p tcp --dport 80 -j KUBE-MARK-MASQ",
     "$IPT -t nat -F OWN && $IPT -t nat -F PREROUTING && $IPT -t nat -A POSTROUTING -j OWN && $IPT "
     "-t nat -A OWN -p tcp --dport 80 -j MASQUERADE"},
    {"DropInTableFilter", "error ChainUser nat/KUBE-MARK-DROP", "-m conntrack --ctorigdst",
     "$IPT -t nat -N KUBE-MARK-DROP; $IPT -t nat -N OWN; $IPT -t nat -A PREROUTING -j OWN; $IPT -t "
     "nat -A OWN -d 192.0.2.1 -j KUBE-MARK-DROP",
     "$IPT -t nat -F OWN && $IPT -N OWN && $IPT -A FORWARD -j OWN && $IPT -A OWN -m conntrack "
     "--ctorigdst 192.0.2.1 -j DROP"},
    {"LetThisAgentMakeTheChain", "error MarkMasqUnheard nat/KUBE-MARK-MASQ",
     "or let kubelet, kube-proxy or this agent make the chain",
     "$IPT -t nat -N KUBE-MARK-MASQ; $IPT -t nat -A PREROUTING -j KUBE-MARK-MASQ; $IPT -t nat -A "
     "KUBE-MARK-MASQ -j MARK --or-mark 0x4000",
     "$AGENT sync --emulated-version=1.26"},
    {"LetThisAgentFillTheChain", "error MarkMasqEmpty nat/KUBE-MARK-MASQ",
     "or let kubelet, kube-proxy or this agent make the chain",
     "$IPT -t nat -N KUBE-MARK-MASQ; $IPT -t nat -A PREROUTING -j KUBE-MARK-MASQ",
     "$AGENT sync --emulated-version=1.26"},
    {"AChainOfTheirOwn", "warning ForeignRule filter/KUBE-FIREWALL",
     "Put them into a chain of their own.",
     "$IPT -N KUBE-FIREWALL; $IPT -A INPUT -j KUBE-FIREWALL; $IPT -A KUBE-FIREWALL -s 192.0.2.1 -j "
     "DROP",
     "$IPT -F KUBE-FIREWALL && $IPT -N OWN && $IPT -A INPUT -j OWN && $IPT -A OWN -s 192.0.2.1 -j "
     "DROP"},
    {"AnotherBitForARule", "warning MarkBitTested ", "or a mark bit of your own",
     "$IPT -A INPUT -m mark --mark 0x4000/0x4000 -j ACCEPT",
     "$IPT -F INPUT && $IPT -A INPUT -m mark --mark 0x10000/0x10000 -j ACCEPT"},
    {"AnotherMaskForARoutingRule", "warning IpRuleFwmark ", "Change the mask of the routing rule",
     "ip rule add fwmark 0x4000/0x4000 lookup 100",
     "ip rule delete fwmark 0x4000/0x4000 && ip rule add fwmark 0x10000/0x10000 lookup 100"},
    {"LetThisAgentMakeKubeFirewall", "error RouteLocalnetExposed filter/KUBE-FIREWALL",
     "Let kubelet or this agent make filter/KUBE-FIREWALL",
     "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet", "$AGENT sync"},
    {"TurnRouteLocalnetOff", "error RouteLocalnetExposed filter/KUBE-FIREWALL",
     "or set net.ipv4.conf.*.route_localnet to 0",
     "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet",
     "echo 0 > /proc/sys/net/ipv4/conf/all/route_localnet"},
    {"DeleteOneHint", "error TwoHints ", "Delete the chain from the mode that",
     "$IPT -t mangle -N KUBE-IPTABLES-HINT; $OTHER -t mangle -N KUBE-IPTABLES-HINT",
     "$OTHER -t mangle -X KUBE-IPTABLES-HINT"},
    {"MoveTheRule", "warning ShadowedByOtherMode ",
     "Move the rule to the mode that Kubernetes uses",
     "$IPT -N KUBE-FIREWALL; $IPT -A INPUT -j KUBE-FIREWALL; $OTHER -A INPUT -j DROP",
     "$OTHER -F INPUT && $IPT -A INPUT -j DROP"},
    {"ATableOfItsOwn", "error IptablesProbeFails nat/POSTROUTING",
     "Move these rules to a table of their own (nft add table).",
     "nft 'add table ip nat; add chain ip nat POSTROUTING { type nat hook postrouting priority "
     "100; }; add rule ip nat POSTROUTING masquerade'",
     "nft 'flush chain ip nat POSTROUTING; add table ip own; add chain ip own post { type nat hook "
     "postrouting priority 100; }; add rule ip own post masquerade'"},
    {"RemoveTheJumps", "warning CleanupBlocked nat/KUBE-SERVICES",
     "Remove these rules before the change.",
     "$IPT -t nat -N KUBE-SERVICES; $IPT -t nat -N OWN; $IPT -t nat -A OWN -j KUBE-SERVICES",
     "$IPT -t nat -F OWN && $IPT -t nat -X KUBE-SERVICES", "kube-proxy-nftables"},
};

TEST_P(BeforeChangeTest, ARemedyEndsItsFinding) {
  const bool nft = GetParam() == IptablesMode::kNft;
  const std::string words =
      absl::StrCat("set -e; IPT=iptables-", nft ? "nft" : "legacy", "; OTHER=iptables-",
                   nft ? "legacy" : "nft", "; AGENT=", AgentProgram(), "; ");
  for (const RemedyRow& row : kRemedies) {
    SCOPED_TRACE(row.name);
    const std::string mode = absl::StrCat("--iptables-mode=", NameOf(GetParam()));
    ProgramResult ran = RunProgram({"sh", "-c", words + row.cause});
    EXPECT_EQ(ran.exit_code, 0) << ran;
    EXPECT_THAT(Bad(row.change), Contains(row.finding));
    const std::string json =
        Agent({"audit", absl::StrCat("--before=", row.change), "--output=json"}).out;
    EXPECT_THAT(json, HasSubstr(row.remedy));
    std::string tried = row.tried;
    if (absl::StrContains(tried, "sync")) absl::StrAppend(&tried, " ", mode);
    ran = RunProgram({"sh", "-c", words + tried});
    EXPECT_EQ(ran.exit_code, 0) << ran;
    EXPECT_THAT(Bad(row.change), Not(Contains(row.finding)));
    RunProgram({"sh", "-c",
                "nft flush ruleset; for t in nat filter mangle; do iptables-legacy -t $t -F; "
                "iptables-legacy -t $t -X; ip6tables-legacy -t $t -F; ip6tables-legacy -t $t -X; "
                "done; echo 0 > /proc/sys/net/ipv4/conf/all/route_localnet; ip rule delete fwmark "
                "0x10000/0x10000"});
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, BeforeChangeTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& mode) { return TestNameOf(mode.param); });

struct ProbeRow {
  const char* name;
  const char* rule;  // of nat POSTROUTING
  bool fails;        // of an iptables since 1.8.8
  const char* family = "ip";
};
void PrintTo(const ProbeRow& row, std::ostream* out) { *out << row.name; }
constexpr ProbeRow kProbes[] = {
    {"Masquerade", "masquerade", true},
    {"Snat", "ip saddr 10.0.0.0/8 snat to 192.0.2.1", true},
    {"CtState", "ct state new counter", true},
    {"Fib", "fib saddr type local counter", true},
    {"Log", "log", true},
    {"Nflog", "limit rate 5/second log group 5 prefix \"x\"", false},
    {"SetsAMark", "meta mark set mark or 0x4000", true},
    {"SetsAPriority", "meta priority set 1:1", true},
    {"SetsATrace", "meta nftrace set 1", false},
    {"SetsATtl", "ip ttl set 5", false},
    {"Quota", "quota 5 mbytes", true},
    {"Counter", "counter", false},
    {"Returns", "ip saddr 10.0.0.0/8 return", false},
    {"AnonymousSet", "tcp dport { 80, 443 } counter", false},
    {"VerdictMap", "ip saddr . tcp dport vmap { 10.0.0.1 . 80 : accept }", false},
    {"Range", "tcp dport 80-90 counter", false},
    {"Limit", "limit rate 5/second counter", false},
    {"LimitOver", "limit rate over 5/second counter", true},
    {"LimitOfBytes", "limit rate 5 kbytes/second counter", true},
    {"TestsAMark", "meta mark 0x4000 counter", false},
    {"Interfaces", "iif lo oifname \"eth*\" meta pkttype host counter", false},
    {"User", "meta skuid 0 counter", true},
    {"Cgroup", "meta cgroup 1 counter", true},
    {"Length", "meta length 20 counter", true},
    {"SourceMac", "ether saddr 02:00:00:00:00:01 counter", true},
    {"Dscp", "ip dscp cs1 counter", true},
    {"HeaderId", "ip id 1 counter", true},
    {"Ttl", "ip ttl < 5 ip frag-off & 0x1fff != 0 counter", false},
    {"TcpFlags", "tcp flags & (syn | ack) == syn tcp window 5 counter", false},
    {"UdpLength", "udp length 20 counter", false},
    {"NotTcp", "ip protocol != tcp th dport 80 counter", false},
    {"SetOfProtocols", "meta l4proto { tcp, udp } th dport 53 counter", true},
    {"Sctp", "sctp dport 80 counter", true},
    {"UnknownProtocol", "th dport 80 counter", true},
    {"IcmpType", "icmp type echo-request icmp code 0 counter", false},
    {"IcmpId", "icmp id 1 counter", true},
    {"V6Masquerade", "masquerade", true, "ip6"},
    {"V6Nflog", "log group 5", false, "ip6"},
    {"V6Dscp", "ip6 dscp cs1 counter", true, "ip6"},
    {"V6HopLimit", "ip6 hoplimit 5 ip6 saddr fd00::/8 counter", false, "ip6"},
    {"V6NextHeader", "ip6 nexthdr tcp th dport 80 counter", false, "ip6"},
    {"V6IcmpType", "icmpv6 type echo-request counter", false, "ip6"},
    {"V6IcmpCode", "icmpv6 code 1 counter", true, "ip6"},
};

class ProbeTest : public RetireTest, public ::testing::WithParamInterface<ProbeRow> {
 protected:
  // As kubelet asks.
  static bool Fails(const std::string& chroot, const ProbeRow& row) {
    const Iptables iptables = {
        .family = row.family == std::string("ip6") ? IpFamily::kIpv6 : IpFamily::kIpv4,
        .chroot_dir = chroot};
    return iptables.Run({"-w", "5", "-S", "POSTROUTING", "-t", "nat"}).exit_code != 0;
  }
};

TEST_P(ProbeTest, IsPredictedAsTheRealIptablesDoIt) {
  const ProbeRow& row = GetParam();
  const ProgramResult loaded =
      RunProgram({"nft", "-f", "-"}, absl::StrCat("table ", row.family,
                                                  " nat {\nchain POSTROUTING {\n"
                                                  "type nat hook postrouting priority 100;\n",
                                                  row.rule, "\n}\n}\n"));
  ASSERT_EQ(loaded.exit_code, 0) << loaded;
  const bool fails = Fails("", row) || Fails(ChrootDir("trixie"), row);
  EXPECT_EQ(fails, row.fails);
  // 1.8.7 refuses nothing else that later ones list.
  EXPECT_TRUE(fails || !Fails(ChrootDir("bullseye"), row) ||
              absl::StrContains(row.rule, "log group"));
  const ProgramResult audit = Agent({"audit", "--cni-conf-dir=" + cni_dir()});
  EXPECT_EQ(audit.exit_code, fails ? kExitDifferences : kExitOk) << audit;
  EXPECT_EQ(absl::StrContains(audit.out, absl::StrCat("error   IptablesProbeFails  nft ",
                                                      row.family, " nat/POSTROUTING")),
            fails)
      << audit;
}

INSTANTIATE_TEST_SUITE_P(Rules, ProbeTest, ::testing::ValuesIn(kProbes),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace kipt::testing
