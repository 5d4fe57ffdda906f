// SPDX-License-Identifier: Apache-2.0
//
// The map of marks on a real node: packets that show why a mark is an error, what retirement keeps
// for marks that no rule sets, and names and numbers made to break it. WireGuard and tc filters
// need another kernel: tests/other-kernel/guests/marks.sh.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/interop/retire_fixture.h"
#include "tests/interop/service_world.h"

namespace kipt::testing {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kWait = absl::Seconds(5);

// What wg-quick gives an interface with a default route.
constexpr uint32_t kWgQuick = 51820;

// Sends one UDP packet with this mark (SO_MARK, as a WireGuard that is a program does) to a socket
// of this namespace: whether it arrives.
bool Arrives(uint32_t mark) {
  const int to = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(to, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(to, reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(setsockopt(from, SOL_SOCKET, SO_MARK, &mark, sizeof mark), 0);
  // What OUTPUT drops is refused to the sender.
  const bool sent = sendto(from, "x", 1, 0, reinterpret_cast<sockaddr*>(&address), size) == 1;
  pollfd readable = {.fd = to, .events = POLLIN, .revents = 0};
  const bool arrived = poll(&readable, 1, sent ? 1000 : 0) == 1;
  close(from);
  close(to);
  return arrived;
}

class MarksTest : public RetireTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static std::string Mode() { return absl::StrCat("--iptables-mode=", NameOf(GetParam())); }
  static void Ip(const std::string& arguments) {
    Output(absl::StrSplit(absl::StrCat("ip ", arguments), ' '));
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, MarksTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

// A program that clears bits on the way, and what then becomes of packets that kubelet's chains
// mark.
struct Clearing {
  const char* name;
  // Of iptables, or what nft reads.
  const char* rule;
  const char* nft;
  bool masquerades = true;
  bool drops = true;

  // "ip mangle": what clears them is in it.
  std::string Table() const {
    const std::vector<std::string> words = absl::StrSplit(*nft != '\0' ? nft : rule, ' ');
    return *nft != '\0' ? words[2] + " own" : "ip " + words[1];
  }
};
constexpr Clearing kClearings[] = {
    {"no rule", "", ""},
    {"set-mark where packets leave", "-t mangle -A POSTROUTING -o pods -j MARK --set-mark 0x1", "",
     false},
    {"and-mark of other bits", "-t mangle -A FORWARD -j MARK --and-mark 0xffff", ""},
    {"and-mark that clears ours", "-t mangle -A FORWARD -j MARK --and-mark 0x3fff", "", false},
    {"restore-mark", "-t mangle -A POSTROUTING -j CONNMARK --restore-mark", "", false},
    {"restore-mark in the chain that marks", "-t nat -A KUBE-MARK-MASQ -j CONNMARK --restore-mark",
     "", false},
    {"set-mark where packets come in", "-t mangle -A INPUT -j MARK --set-mark 0x1", "", true,
     false},
    {"set-mark before packets are marked", "-t mangle -A PREROUTING -j MARK --set-mark 0x1", ""},
    {"set-mark of other bits", "-t mangle -A POSTROUTING -j MARK --set-xmark 0x1/0xff", ""},
    {"nft where packets leave", "",
     "add table ip own\nadd chain ip own c { type filter hook postrouting priority -150; }\n"
     "add rule ip own c meta mark set 1",
     false},
    {"nft restores some bits", "",
     "add table inet own\nadd chain inet own c { type filter hook forward priority 0; }\n"
     "add rule inet own c meta mark set ct mark and 0x80",
     false},
    {"nft where packets come in", "",
     "add table inet own\nadd chain inet own c { type filter hook input priority -10; }\n"
     "add rule inet own c meta mark set 1",
     true, false},
    {"nft after packets are masqueraded", "",
     "add table ip own\nadd chain ip own c { type filter hook postrouting priority 150; }\n"
     "add rule ip own c meta mark set 1"},
};

TEST_P(MarksTest, RulesThatClearOurBitsOnTheWayAreErrorsAsPacketsShow) {
  ServiceWorld world;
  Sync({.ownership_cleanup = false, .iptables = GetParam()});
  const auto iptables = [](absl::string_view rule) {
    if (rule.empty()) return;
    Output(absl::StrSplit(absl::StrCat("iptables-", NameOf(GetParam()), " ", rule), ' '));
  };
  for (const char* const rule :
       {"-t nat -A PREROUTING -p tcp --dport 8080 -j KUBE-MARK-MASQ",
        "-t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 10.180.0.3:80",
        "-t nat -A PREROUTING -p tcp --dport 30001 -j KUBE-MARK-DROP"}) {
    iptables(rule);
  }
  for (const Clearing& row : kClearings) {
    SCOPED_TRACE(row.name);
    iptables(row.rule);
    if (*row.nft != '\0') ASSERT_EQ(RunProgram({"nft", "-f", "-"}, row.nft).exit_code, 0);
    EXPECT_EQ(world.Reaches(kHostPort, kWait), row.masquerades ? kMasqueraded : kUnchanged);
    EXPECT_EQ(world.Reaches(kDroppedPort, row.drops ? absl::Milliseconds(100) : kWait),
              row.drops ? "" : kUnchanged);
    const Json verdicts = Json::parse(Agent({"marks", Mode(), "--output=json"}).out)["verdicts"];
    EXPECT_EQ(verdicts[0]["severity"], row.masquerades ? "info" : "error") << verdicts;
    EXPECT_EQ(verdicts[1]["severity"], row.drops ? "info" : "error") << verdicts;
    // Also by a program that does no harm there.
    const Json& by = verdicts[0]["clearedBy"];
    if (absl::StrContains(row.name, "no rule") || absl::StrContains(row.name, "other bits")) {
      EXPECT_TRUE(by.empty()) << by;
    } else {
      EXPECT_THAT(by.dump(), HasSubstr(absl::StrCat(" ", row.Table(), ": "))) << row.name;
    }
    const std::string audit =
        Agent({"audit", Mode(), "--feature-gates=IPTablesOwnershipCleanup=false"}).out;
    EXPECT_EQ(absl::StrContains(audit, "error   MarkBitCleared"), !row.masquerades || !row.drops)
        << audit;
    iptables(absl::StrReplaceAll(row.rule, {{"-A", "-D"}}));
    for (const char* family : {"ip", "inet"}) RunProgram({"nft", "delete", "table", family, "own"});
  }
}

// It writes the whole mark, from a table with base chains only.
TEST_P(MarksTest, AnAuditNamesWgQuickAsTheProgramThatMaySetOurBits) {
  LeaveResidue(GetParam());
  Output({"/usr/sbin/nft", "-f", KIPT_OWNERS_DIR "/wg-quick-1.0.20210914.nft"});
  EXPECT_THAT(Agent({"audit", Mode()}).out,
              HasSubstr("rules of wg-quick in table wg-quick-wg0 may set any mark"));
}

// A routing rule for a mark shows that something marks so, though no rule does: what drops and
// masquerades such packets stays.
TEST_P(MarksTest, RetirementKeepsWhatActsOnMarksThatRoutingRulesSelect) {
  LeaveResidue(GetParam());
  Ip("rule add not fwmark 51820 table 51820");
  SyncAndKeep(GetParam());
  ASSERT_FALSE(Arrives(kWgQuick));
  const Retired kept = RunRetire(GetParam(), {"--yes"});
  EXPECT_THAT(kept.result.out, HasSubstr("a routing rule selects may set: 32765: not from all "
                                         "fwmark 0xca6c lookup 51820"))
      << kept.result;
  EXPECT_TRUE(kept.kept.contains("ip nat KUBE-POSTROUTING")) << kept.result;
  EXPECT_TRUE(kept.kept.contains("ip6 nat KUBE-POSTROUTING")) << "a tunnel keeps the mark";
  EXPECT_FALSE(Arrives(kWgQuick));
  Ip("rule del not fwmark 51820 table 51820");
  const Retired gone = RunRetire(GetParam(), {"--yes"});
  EXPECT_FALSE(gone.kept.contains("ip nat KUBE-POSTROUTING")) << gone.result;
  EXPECT_TRUE(Arrives(kWgQuick));
}

// Its system call filter has no sockets for what sets marks without a rule, unless it was started
// to retire: what cannot be read counts as claiming every mark.
TEST_P(MarksTest, ADaemonThatAReloadSwitchesToRetireKeepsWhatActsOnMarks) {
  const auto marks_are_kept = [] {
    const Iptables iptables = {.mode = GetParam()};
    return !LinesOf(iptables).contains("nat: :KUBE-MARK-MASQ -") &&
           LinesOf(iptables).contains("nat: :KUBE-POSTROUTING -");
  };
  LeaveResidue(GetParam());
  TemporaryFile file(absl::StrCat(kConfigHead, "staleChains: keep\n"));
  // Audits would read what sets marks, too.
  const std::vector<std::string> flags = {"--config=" + file.path(), Mode(),
                                          "--cni-conf-dir=" + cni_dir(), "--audit-period=0s"};
  StartOnly(flags);
  ASSERT_TRUE(BecomesReady());
  std::ofstream(file.path()) << kConfigHead << "staleChains: retire\n";
  EXPECT_TRUE(WaitUntil(marks_are_kept)) << daemon().Output();
  EXPECT_TRUE(WaitUntil([&] {
    return absl::StrContains(daemon().Output(), "what cannot be read may set: packet marks of");
  })) << daemon().Output();
  EXPECT_EQ(Stop(SIGTERM), 0);
  // From its start it may read them.
  StartOnly(flags);
  ASSERT_TRUE(BecomesReady());
  EXPECT_TRUE(WaitUntil([] {
    return !LinesOf({.mode = GetParam()}).contains("nat: :KUBE-POSTROUTING -");
  })) << daemon().Output();
}

}  // namespace
}  // namespace kipt::testing
