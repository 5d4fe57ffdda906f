// SPDX-License-Identifier: Apache-2.0
//
// What `audit --before=CHANGE` predicts, and what packets and programs then do: on nft and
// iptables-legacy, with rules that kube-proxy wrote, real iptables, and nft of three releases.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_acct.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "netlink/attributes.h"
#include "netlink/socket.h"
#include "tests/interop/retire_fixture.h"
#include "tests/interop/service_world.h"

namespace kipt::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

constexpr absl::Duration kWait = absl::Seconds(5);

std::string Capture(const std::string& name) {
  std::ifstream file(absl::StrCat(KIPT_CAPTURES_DIR, "/", name));
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str(), "") << name;
  return text.str();
}

class BeforeChangeTest : public RetireTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static Iptables Ip4() { return {.mode = GetParam()}; }
  static void Load(const std::string& save) {
    const ProgramResult result = Ip4().Restore(save);
    EXPECT_EQ(result.exit_code, 0) << result;
  }

  // "error ChainUser nat/KUBE-MARK-MASQ": errors and warnings of this audit.
  std::vector<std::string> Bad(const std::string& change,
                               const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"audit", "--before=" + change, "--output=json",
                                          "--cni-conf-dir=" + cni_dir()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult audit = Agent(arguments);
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

// ---- kube-proxy's nftables mode ----

constexpr char kUser[] =
    "*nat\n:OWN-PORT - [0:0]\n-A PREROUTING -p tcp -m tcp --dport 8080 -j OWN-PORT\n"
    "-A OWN-PORT -j KUBE-MARK-MASQ\n"
    "-A OWN-PORT -p tcp -j DNAT --to-destination 10.180.0.3:80\nCOMMIT\n";
constexpr char kOwnMasquerade[] =
    "*nat\n:OWN-PORT - [0:0]\n:OWN-OUT - [0:0]\n"
    "-A PREROUTING -p tcp -m tcp --dport 8080 -j OWN-PORT\n-A POSTROUTING -j OWN-OUT\n"
    "-A OWN-PORT -p tcp -j DNAT --to-destination 10.180.0.3:80\n"
    "-A OWN-OUT -d 10.180.0.3/32 -p tcp -m tcp --dport 80 -m conntrack --ctstate DNAT "
    "-j MASQUERADE\nCOMMIT\n";

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
  Load(KubeProxySave("1.28", Ip4()));
  EXPECT_THAT(Bad("kube-proxy-nftables"), IsEmpty()) << "a sound node";
  Load(kUser);
  EXPECT_EQ(world.Reaches(kHostPort, kWait), kPodMasqueraded);
  const std::vector<std::string> bad = Bad("kube-proxy-nftables");
  EXPECT_THAT(bad, Contains("error ChainUser nat/KUBE-MARK-MASQ"));
  EXPECT_THAT(bad, Contains("warning CleanupBlocked nat/KUBE-MARK-MASQ"));

  // CleanupBlocked: the chains stay, and so the mark, which nftables mode masquerades.
  EXPECT_NE(SwitchToNftables(Ip4()).exit_code, 0);
  EXPECT_EQ(Ip4().Run({"-t", "nat", "-S", "KUBE-MARK-MASQ"}).exit_code, 0);
  EXPECT_EQ(world.Reaches(kHostPort, kWait), kPodMasqueraded);
  EXPECT_EQ(world.Reaches(kNodePort, kWait), kPodMasqueraded) << "the new table serves";

  // ChainUser: after a reboot the rule is refused, and the packet keeps its source.
  Ip4().Run({"-t", "nat", "-F"});
  Ip4().Run({"-t", "nat", "-X"});
  EXPECT_NE(Ip4().Restore(kUser).exit_code, 0);
  std::string without = kUser;
  without.erase(without.find("-A OWN-PORT -j KUBE"), sizeof("-A OWN-PORT -j KUBE-MARK-MASQ"));
  Load(without);
  EXPECT_EQ(world.Reaches(kHostPort, kWait), kPodUnchanged);
}

TEST_P(BeforeChangeTest, TheRemedyKeepsItMasquerading) {
  ServiceWorld world;
  Load(KubeProxySave("1.28", Ip4()));
  Load(kOwnMasquerade);
  EXPECT_THAT(Bad("kube-proxy-nftables"), IsEmpty());
  EXPECT_EQ(world.Reaches(kHostPort, kWait), kPodMasqueraded);
  const ProgramResult cleaned = SwitchToNftables(Ip4());
  EXPECT_EQ(cleaned.exit_code, 0) << cleaned;
  EXPECT_EQ(world.Reaches(kHostPort, kWait), kPodMasqueraded);
  Ip4().Run({"-t", "nat", "-F"});
  Ip4().Run({"-t", "nat", "-X"});
  Load(kOwnMasquerade);
  EXPECT_EQ(world.Reaches(kHostPort, kWait), kPodMasqueraded);
}

TEST_P(BeforeChangeTest, AFirewallThatDropsIsFoundAndDropsAfterTheChange) {
  ServiceWorld world;
  Load(KubeProxySave("1.28", Ip4()));
  ASSERT_EQ(Ip4().Run({"-P", "FORWARD", "DROP"}).exit_code, 0);
  EXPECT_EQ(world.Reaches(kNodePort, kWait), kPodMasqueraded);
  EXPECT_THAT(Bad("kube-proxy-nftables"), Contains("warning FirewallBypassed filter/KUBE-FORWARD"));
  SwitchToNftables(Ip4());
  Ip4().Run({"-D", "FORWARD", "-m", "comment", "--comment", "kubernetes forwarding rules", "-j",
             "KUBE-FORWARD"});
  EXPECT_EQ(world.Reaches(kNodePort, absl::Milliseconds(300)), kNobody);
}

// As kube-proxy does, over netlink.
bool MakeCounter(const char* name) {
  const auto socket = netlink::Socket::Open();
  if (!socket.ok()) return false;
  netlink::Messages request((*socket)->ReserveSequences(1));
  request.Begin(NFNL_SUBSYS_ACCT << 8 | NFNL_MSG_ACCT_NEW, AF_UNSPEC, NLM_F_ACK | NLM_F_CREATE,
                {{NFACCT_NAME, name}});
  int error = 0;
  const absl::Status asked =
      (*socket)->Ask(request, [&](const netlink::Reply& reply) { error = reply.error_number; });
  return asked.ok() && error == 0;
}

void KnockAtLocalhost(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  close(fd);
}

TEST_P(BeforeChangeTest, OneConnectionOverLocalhostIsEnough) {
  ServiceWorld world;
  ASSERT_TRUE(MakeCounter("ct_state_invalid_dropped_pkts"));
  ASSERT_TRUE(MakeCounter("localhost_nps_accepted_pkts"));
  Load(Capture("kube-proxy-1.31-A-v4.save"));
  SetSysctl("ipv4/conf/all/route_localnet", "1");
  const std::string found = "error LocalhostNodePorts nat/KUBE-NODEPORTS";
  EXPECT_THAT(Bad("kube-proxy-nftables"), Not(Contains(found)));
  KnockAtLocalhost(30002);
  EXPECT_THAT(Bad("kube-proxy-nftables"), Contains(found));
}

// ---- iptables-legacy to nft ----

TEST_P(BeforeChangeTest, OnlyRulesInLegacyStayThere) {
  Load("*filter\n-A INPUT -s 192.0.2.0/24 -j DROP\nCOMMIT\n");
  const std::string found = "warning LegacyRulesStay ";
  if (GetParam() == IptablesMode::kLegacy) {
    EXPECT_THAT(Bad("iptables-nft"), Contains(found));
  } else {
    EXPECT_THAT(Bad("iptables-nft"), Not(Contains(found)));
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, BeforeChangeTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& mode) { return TestNameOf(mode.param); });

// ---- kubelet's probe: real iptables are the oracle ----

struct ProbeRow {
  const char* name;
  const char* rule;  // of ip nat POSTROUTING
  bool fails;        // of one iptables at least
};
void PrintTo(const ProbeRow& row, std::ostream* out) { *out << row.name; }
constexpr ProbeRow kProbes[] = {
    {"Masquerade", "masquerade", true},
    {"Snat", "ip saddr 10.0.0.0/8 snat to 192.0.2.1", true},
    {"CtState", "ct state new counter", true},
    {"Fib", "fib saddr type local counter", true},
    {"Log", "log", true},
    {"SetsAMark", "meta mark set mark or 0x4000", true},
    {"Quota", "quota 5 mbytes", true},
    {"Counter", "counter", false},
    {"Returns", "ip saddr 10.0.0.0/8 return", false},
    {"AnonymousSet", "tcp dport { 80, 443 } counter", false},
    {"Range", "tcp dport 80-90 counter", false},
    {"Limit", "limit rate 5/second counter", false},
    {"TestsAMark", "meta mark 0x4000 counter", false},
};

class ProbeTest : public RetireTest, public ::testing::WithParamInterface<ProbeRow> {};

TEST_P(ProbeTest, IsPredictedAsTheRealIptablesDoIt) {
  const ProgramResult loaded =
      RunProgram({"nft", "-f", "-"}, absl::StrCat("table ip nat {\nchain POSTROUTING {\n"
                                                  "type nat hook postrouting priority 100;\n",
                                                  GetParam().rule, "\n}\n}\n"));
  ASSERT_EQ(loaded.exit_code, 0) << loaded;
  bool fails = false;
  for (const std::string& chroot : {std::string(), ChrootDir("bullseye"), ChrootDir("trixie")}) {
    const Iptables iptables = {.chroot_dir = chroot};
    fails |= iptables.Run({"-w", "5", "-S", "POSTROUTING", "-t", "nat"}).exit_code != 0;
  }
  EXPECT_EQ(fails, GetParam().fails);
  const ProgramResult audit = Agent({"audit", "--cni-conf-dir=" + cni_dir()});
  EXPECT_EQ(audit.exit_code, fails ? kExitDifferences : kExitOk) << audit;
  EXPECT_EQ(
      audit.out.find("error   IptablesProbeFails  nft ip nat/POSTROUTING") != std::string::npos,
      fails)
      << audit;
}

INSTANTIATE_TEST_SUITE_P(Rules, ProbeTest, ::testing::ValuesIn(kProbes),
                         [](const auto& row) { return row.param.name; });

class HostTest : public RetireTest {};

TEST_F(HostTest, AFamilyThatKubeletGaveUpIsFound) {
  const Iptables ip6 = {.family = IpFamily::kIpv6};
  for (const char* const table : {"mangle", "nat", "filter"}) {
    ASSERT_EQ(ip6.Run({"-t", table, "-N", "KUBE-KUBELET-CANARY"}).exit_code, 0);
  }
  ProgramResult audit = Agent({"audit", "--cni-conf-dir=" + cni_dir()});
  EXPECT_THAT(audit.out, HasSubstr("error   FamilySkipped  ip\n"));
  audit = Agent({"audit", "--cni-conf-dir=" + cni_dir(), "--ip-families=ipv6"});
  EXPECT_THAT(audit.out, Not(HasSubstr("FamilySkipped")));
}

TEST_F(HostTest, ALockThatIsHeldForLongIsFound) {
  ASSERT_EQ(RunProgram({"iptables-legacy", "-N", "OWN"}).exit_code, 0);
  const int lock = open("/run/xtables.lock", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  EXPECT_THAT(Agent({"audit", "--cni-conf-dir=" + cni_dir()}).out,
              HasSubstr("warning IptablesProbeFails"));
  close(lock);
  EXPECT_THAT(Agent({"audit", "--cni-conf-dir=" + cni_dir()}).out,
              Not(HasSubstr("IptablesProbeFails")));
}

TEST_F(HostTest, AnOldKernelIsFound) {
  const ProgramResult audit =
      RunProgram({"setarch", "--uname-2.6", AgentProgram(), "audit", "--before=kube-proxy-nftables",
                  "--cni-conf-dir=" + cni_dir()});
  EXPECT_EQ(audit.exit_code, kExitDifferences) << audit;
  EXPECT_THAT(audit.out, HasSubstr("error   KernelTooOld\n"));
}

TEST_F(HostTest, AnOldNftOfTheHostIsFoundWithoutRunningIt) {
  const auto audit = [&](const std::string& root) {
    return Agent({"audit", "--before=kube-proxy-nftables", "--cni-conf-dir=" + cni_dir(),
                  "--host-root=" + root})
        .out;
  };
  EXPECT_THAT(audit(ChrootDir("bullseye")), HasSubstr("error   NftTooOld"));
  EXPECT_THAT(audit(ChrootDir("trixie")), Not(HasSubstr("NftTooOld")));
  // It crashes on kube-proxy's rules, in another table than it is asked for, too.
  ASSERT_EQ(
      RunProgram({"nft", "-f", "-"}, Capture("kube-proxy-1.31-A-v4.nftables.input")).exit_code, 0);
  EXPECT_NE(
      RunProgram({"chroot", ChrootDir("bullseye"), "/usr/sbin/nft", "list", "ruleset"}).exit_code,
      0);
}

}  // namespace
}  // namespace kipt::testing
