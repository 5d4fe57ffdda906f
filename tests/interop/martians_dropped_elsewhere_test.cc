// SPDX-License-Identifier: Apache-2.0
//
// Where no rule of kubelet's drops packets from neighbours to 127.0.0.0/8, another program's may:
// what the commands report then, and whether such a packet arrives.
#include <ostream>

#include "tests/interop/agent_fixture.h"
#include "tests/interop/packet_world.h"

namespace kipt::testing {
namespace {

constexpr char kDrop[] = "-d 127.0.0.0/8 -j DROP\n";

struct Elsewhere {
  const char* name;
  // What iptables-restore or nft reads.
  std::string iptables;
  std::string nft;
  // "" for a node that is open.
  const char* dropped_by;

  friend void PrintTo(const Elsewhere& row, std::ostream* out) { *out << row.name; }
};

std::string Raw(const std::string& rules) {
  return absl::StrCat("*raw\n:A - [0:0]\n:B - [0:0]\n", rules, "COMMIT\n");
}
std::string Nft(const std::string& family, const std::string& base, const std::string& rules) {
  return absl::StrCat("table ", family,
                      " own {\nset s { type ipv4_addr; }\nchain c { type filter hook ", base, ";\n",
                      rules, "\n}\n}\n");
}
constexpr char kInRaw[] = "chain PREROUTING of table ip raw";
constexpr char kInInet[] = "chain c of table inet own";

const Elsewhere kRows[] = {
    {"nowhere", "", "", ""},
    // ---- iptables ----
    {"raw drops what others send to loopback",
     Raw("-A PREROUTING ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP\n"), "", kInRaw},
    {"raw drops what does not come from lo", Raw(absl::StrCat("-A PREROUTING ! -i lo ", kDrop)), "",
     kInRaw},
    {"raw drops below rules that martians do not match",
     Raw(absl::StrCat("-A PREROUTING -i lo -j ACCEPT\n-A PREROUTING -d 10.0.0.0/8 -j ACCEPT\n"
                      "-A PREROUTING -s 127.0.0.1 -j RETURN\n-A PREROUTING -j MARK --set-mark 1\n"
                      "-A PREROUTING ",
                      kDrop)),
     "", kInRaw},
    {"raw drops in a chain that every packet passes",
     Raw(absl::StrCat("-A PREROUTING -j A\n-A A -p udp -j B\n-A A ", kDrop,
                      "-A B -p tcp -j DROP\n")),
     "", kInRaw},
    {"raw drops the more than /8", Raw("-A PREROUTING -d 96.0.0.0/3 -j DROP\n"), "", kInRaw},
    {"mangle rejects nothing but drops in INPUT",
     absl::StrCat("*mangle\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"
                  "-A INPUT -i lo -j ACCEPT\n-A INPUT ",
                  kDrop, "COMMIT\n"),
     "", "chain INPUT of table ip mangle"},
    {"the policy of mangle drops", "*mangle\n:INPUT DROP [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n",
     "", "chain INPUT of table ip mangle"},
    {"raw drops one protocol", Raw("-A PREROUTING -d 127.0.0.0/8 -p tcp -j DROP\n"), "", ""},
    {"raw drops another address", Raw("-A PREROUTING -d 127.0.0.2 -j DROP\n"), "", ""},
    {"raw drops what comes from elsewhere", Raw(absl::StrCat("-A PREROUTING ! -i outside ", kDrop)),
     "", ""},
    {"raw accepts some before",
     Raw(absl::StrCat("-A PREROUTING -p udp -j ACCEPT\n-A PREROUTING ", kDrop)), "", ""},
    {"raw accepts some in a chain before",
     Raw(absl::StrCat("-A PREROUTING -j A\n-A A -p udp -j ACCEPT\n-A PREROUTING ", kDrop)), "", ""},
    {"some return before",
     Raw(absl::StrCat("-A PREROUTING -j A\n-A A -p udp -j RETURN\n-A A ", kDrop)), "", ""},
    {"some go to another chain before",
     Raw(absl::StrCat("-A PREROUTING -p udp -g A\n-A PREROUTING ", kDrop)), "", ""},
    {"raw drops what leaves", Raw("-A OUTPUT -d 127.0.0.0/8 ! -o lo -j DROP\n"), "", ""},
    {"no rule jumps to the chain that drops", Raw(absl::StrCat("-A A ", kDrop)), "", ""},
    // ---- nft ----
    {"inet drops what does not come from lo", "",
     Nft("inet", "prerouting priority -300", "iifname != \"lo\" ip daddr 127.0.0.0/8 drop"),
     kInInet},
    {"ip drops what others send to loopback", "",
     Nft("ip", "input priority 0", "ip saddr != 127.0.0.0/8 ip daddr 127.0.0.0/8 counter drop"),
     "chain c of table ip own"},
    {"inet rejects below what a firewall begins with", "",
     Nft("inet", "input priority 0",
         "ct state established,related accept\niif lo accept\nip6 daddr ::1 accept\n"
         "ip daddr 127.0.0.0/8 reject"),
     kInInet},
    {"the policy of inet drops", "",
     Nft("inet", "input priority 0; policy drop",
         "ct state established,related accept\niifname lo accept"),
     kInInet},
    {"the policy of inet drops, and some are accepted", "",
     Nft("inet", "input priority 0; policy drop", "iif lo accept\nmeta l4proto udp accept"), ""},
    {"inet accepts new connections", "",
     Nft("inet", "input priority 0", "ct state new accept\nip daddr 127.0.0.0/8 drop"), ""},
    {"inet drops what is not in a set", "",
     Nft("inet", "prerouting priority -300", "ip daddr @s drop"), ""},
    {"inet drops the other family", "",
     Nft("inet", "prerouting priority -300", "meta nfproto ipv6 drop"), ""},
    {"the table is dormant", "",
     absl::StrCat(Nft("ip", "prerouting priority -300", "ip daddr 127.0.0.0/8 drop"),
                  "table ip own { flags dormant; }\n"),
     ""},
};

class MartiansDroppedElsewhereTest : public WithPacketWorld<AgentTest>,
                                     public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static ProgramResult Command(const std::string& command) {
    return Agent({command, absl::StrCat("--iptables-mode=", NameOf(GetParam())),
                  "--make-iptables-util-chains=false"});
  }

  const Iptables iptables_ = {.mode = GetParam()};
};

TEST_P(MartiansDroppedElsewhereTest, IsReportedWherePacketsAreDroppedAndOnlyThere) {
  for (const Elsewhere& row : kRows) {
    SCOPED_TRACE(row.name);
    if (!row.iptables.empty()) ASSERT_EQ(iptables_.Restore(row.iptables).exit_code, 0);
    if (!row.nft.empty()) {
      const ProgramResult loaded = RunProgram({"/usr/sbin/nft", "-f", "-"}, row.nft);
      ASSERT_EQ(loaded.exit_code, 0) << loaded;
    }
    const bool open = *row.dropped_by == '\0';
    EXPECT_EQ(MartiansArrive(), open) << "the row itself is wrong";
    const ProgramResult status = Command("status");
    EXPECT_THAT(status.out,
                HasSubstr(open ? "martian packets: EXPOSED: no rule; route_localnet is 1"
                               : absl::StrCat("martian packets: no rule of kubelet's; dropped by ",
                                              row.dropped_by, "; route_localnet is 1")));
    // If the node is open, check retries for a second, so one such row is enough.
    if (!open || &row == kRows) {
      EXPECT_EQ(Command("check").exit_code, open ? kExitDifferences : kExitOk);
    }
    EXPECT_EQ(absl::StrContains(Command("audit").out, "RouteLocalnetExposed"), open);
    for (const char* table : {"raw", "mangle"}) {
      iptables_.Run({"-t", table, "-F"});
      iptables_.Run({"-t", table, "-X"});
      iptables_.Run({"-t", table, "-P", "INPUT", "ACCEPT"});
    }
    for (const char* family : {"ip", "inet"})
      RunProgram({"/usr/sbin/nft", "delete", "table", family, "own"});
  }
}

TEST_P(MartiansDroppedElsewhereTest, AnAuditSeesWhichMartiansReachKubeletsRule) {
  struct {
    const char* rules;
    bool open;
  } const rows[] = {
      {"-A INPUT -j KUBE-FIREWALL\n-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP\n",
       false},
      {"-A INPUT -j ACCEPT\n-A INPUT -j KUBE-FIREWALL\n"
       "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP\n",
       true},
      {"-A INPUT -s 203.0.113.7/32 -j KUBE-FIREWALL\n"
       "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP\n",
       true},
      {"-A INPUT -j KUBE-FIREWALL\n"
       "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -p tcp -j DROP\n",
       true},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.rules);
    iptables_.Run({"-F"});
    ASSERT_EQ(
        iptables_.Restore(absl::StrCat("*filter\n:KUBE-FIREWALL - [0:0]\n", row.rules, "COMMIT\n"))
            .exit_code,
        0);
    EXPECT_EQ(MartiansArrive(), row.open);
    EXPECT_EQ(absl::StrContains(Command("audit").out, "RouteLocalnetExposed"), row.open);
  }
}

INSTANTIATE_TEST_SUITE_P(IptablesModes, MartiansDroppedElsewhereTest,
                         ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
