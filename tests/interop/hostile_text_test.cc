// SPDX-License-Identifier: Apache-2.0
//
// Chains, comments, files and namespaces with names that are made to deceive a reader: terminal
// escapes, forged log lines, text that runs backwards. Real programs make them, in both iptables
// modes; nothing that the agent prints may hold one.
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "absl/strings/str_join.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/unescaped.h"

namespace kipt::testing {
namespace {

// For comments: any bytes except NUL. The forged line would pass for one of the daemon's.
constexpr char kForged[] = "E0101 00:00:00.000000     1 agent.cc:1] forged";
std::string HostileComment() {
  return absl::StrCat("a\n", kForged,
                      "\r\x1b[2J\x1b]0;title\x07 \x7f \xc2\x9b"
                      "31m \xe2\x80\xae gnp \xe2\x81\xa6 \xd8\x9c \xff\xfe \xed\xa0\x80");
}
// For chains: iptables takes 28 bytes without white space.
constexpr char kChain[] =
    "E\x1b[2J\xc2\x9b"
    "2J\xe2\x80\xae\xff";
// The kernel of nf_tables also takes the end of a line.
std::string NftChain() { return absl::StrCat("N\n", kForged, "\x1b]0;t\x07"); }

class HostileTextTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    cni_.Directory("net.d");
    // A file of the administrator's, and one whose name is hostile, too.
    cni_.Write(absl::StrCat("net.d/10", kChain, ".conflist"),
               absl::StrCat(R"({"name": "n", "plugins": [{"type": "\u001b[2J\u009b\u202e",)",
                            R"("externalSetMarkChain": "KUBE-MARK-MASQ"}]})"));
    cni_.Write(absl::StrCat("net.d/20", kChain, ".conf"), "{");
    for (const IpFamily family : kBothFamilies) {
      Kubelet(KubeletForm::k1_24, {.family = family, .mode = GetParam()});
    }
    MakeHostileRules();
  }

  void Run(const Words& arguments) const { Change(iptables_, arguments); }

  // In the calling thread's namespace.
  void MakeHostileRules() const {
    const std::vector<std::string> comment = {"-m", "comment", "--comment", HostileComment()};
    const auto rule = [&](const Words& where, const Words& then) { Run(where + comment + then); };
    Run({"-t", "nat", "-N", kChain});
    rule({"-t", "nat", "-A", kChain}, {"-j", "KUBE-MARK-MASQ"});
    rule({"-t", "nat", "-A", "PREROUTING"}, {"-j", kChain});
    // In kubelet's own chains: a claim, and findings.
    rule({"-t", "nat", "-I", "KUBE-MARK-DROP"}, {"-p", "udp", "-j", "RETURN"});
    rule({"-t", "filter", "-A", "KUBE-FIREWALL"}, {"-j", "DROP"});
    // It leads nowhere that a packet comes to, and its loss is reported.
    Run({"-t", "filter", "-N", kChain});
    rule({"-t", "filter", "-A", "INPUT"}, {"-j", kChain});
    for (const char* chain : {"INPUT", "OUTPUT"}) {
      rule({"-t", "filter", "-I", chain}, {"-j", "ACCEPT"});
    }
    rule({"-t", "mangle", "-A", "PREROUTING"}, {"-j", "MARK", "--set-xmark", "0x4000/0x4000"});
    if (GetParam() != IptablesMode::kNft) return;
    const auto jump = [](const std::string& to) {
      return nlohmann::json{{"jump", {{"target", to}}}};
    };
    LoadNft({Adding("chain", {{"table", "nat"}, {"name", NftChain()}}),
             Adding("rule",
                    {{"table", "nat"}, {"chain", NftChain()}, {"expr", {jump("KUBE-MARK-DROP")}}}),
             Adding("rule",
                    {{"table", "nat"}, {"chain", "PREROUTING"}, {"expr", {jump(NftChain())}}})});
  }
  static nlohmann::json Adding(const char* what, nlohmann::json object) {
    object["family"] = "ip";
    return {{"add", {{what, std::move(object)}}}};
  }
  static void LoadNft(nlohmann::json commands) {
    const ProgramResult loaded = RunProgram(
        {"nft", "-j", "-f", "-"}, nlohmann::json{{"nftables", std::move(commands)}}.dump());
    EXPECT_EQ(loaded.exit_code, 0) << loaded;
  }
  // What rules of iptables cannot show: tables and rules of nft, routing rules and interfaces,
  // files of the host.
  void MakeHostileSurroundings() const {
    constexpr char kName[] = "T\x1b[2J\xe2\x80\xae";
    const nlohmann::json set_mark = {
        {"mangle", {{"key", {{"meta", {{"key", "mark"}}}}}, {"value", 0x4000}}}};
    nlohmann::json commands = {Adding("table", {{"name", kName}}),
                               Adding("chain", {{"table", kName}, {"name", kName}}),
                               Adding("rule", {{"table", kName},
                                               {"chain", kName},
                                               {"expr", {set_mark}},
                                               {"comment", absl::StrCat("\x1b[2J\n", kForged)}})};
    if (GetParam() == IptablesMode::kNft) {
      // kubelet's probe fails of it.
      commands.push_back(Adding("rule", {{"table", "nat"},
                                         {"chain", "POSTROUTING"},
                                         {"expr", {{{"masquerade", nullptr}}}},
                                         {"comment", "\x1b[2J"}}));
    }
    LoadNft(std::move(commands));
    MustRun({"ip", "link", "add", kName, "type", "veth", "peer", "name", "peer0"});
    MustRun({"ip", "rule", "add", "fwmark", "0x4000/0x4000", "iif", kName, "table", "5"});
    std::ofstream(absl::StrCat("/proc/sys/net/ipv4/conf/", kName, "/route_localnet")) << 1;
    host_.Write(
        absl::StrCat(kName, "/etc/iptables/rules.v4"),
        absl::StrCat("-A X -m comment --comment \"\x1b[2J\r", kForged, "\" -j KUBE-MARK-MASQ\n"));
    utsname kernel = {};
    ASSERT_EQ(uname(&kernel), 0);
    host_.Write(absl::StrCat(kName, "/lib/modules/", kernel.release, "/modules.dep"),
                "kernel/\x1b[2J/nf_tables.ko:\n");
  }
  std::string HostRoot() const {
    return absl::StrCat("--host-root=", host_.Path("T\x1b[2J\xe2\x80\xae"));
  }

  std::vector<std::string> Flags() const {
    return {absl::StrCat("--iptables-mode=", NameOf(GetParam())),
            "--cni-conf-dir=" + cni_.Path("net.d")};
  }

  // What the program printed is fit to be shown, and begins no line of a stranger's.
  static void ExpectShown(const std::string& text) {
    EXPECT_EQ(FindUnescaped(text), "") << text;
    EXPECT_THAT(absl::StrCat("\n", text), Not(HasSubstr(absl::StrCat("\n", kForged))));
  }

  // `shown`: part of what must be there, escaped.
  ProgramResult Call(const Words& arguments, const std::string& shown,
                     bool all_netns = false) const {
    SCOPED_TRACE(absl::StrJoin(arguments, " "));
    // Of this test's processes only.
    const Words apart = {"unshare",      "--pid", "--fork", "--propagation=unchanged",
                         "--mount-proc", "--"};
    ProgramResult result =
        RunProgram((all_netns ? apart : Words{}) + Words{AgentProgram()} + arguments);
    ExpectShown(result.out);
    ExpectShown(result.err);
    EXPECT_THAT(result.out + result.err, HasSubstr(shown));
    return result;
  }

  // Of the same command.
  void CallBoth(const Words& arguments, const std::string& shown) const {
    Call(arguments, shown);
    const ProgramResult json = Call(arguments + Words{"--output=json"}, "\\u001b");
    EXPECT_TRUE(nlohmann::json::accept(json.out)) << json;
  }

  const Iptables iptables_ = {.mode = GetParam()};
  const TemporaryTree cni_;
  const TemporaryTree host_;
};

TEST_P(HostileTextTest, NoCommandPrintsItUnescaped) {
  const std::string comment = "a\\n" + std::string(kForged) + "\\r\\x1b[2J";
  const std::vector<std::string> retire = Flags() + Words{"--stale-chains=retire"};
  CallBoth(Words{"plan"} + Flags(), comment);
  CallBoth(Words{"plan"} + retire, comment);
  CallBoth(Words{"status"} + Flags(), comment);
  CallBoth(Words{"status"} + retire, comment);
  CallBoth(Words{"audit"} + Flags(), comment);
  Call(Words{"audit", "--output=dot"} + Flags(), "E\\\\x1b[2J\\\\u009b");
  CallBoth(Words{"explain", "nat/KUBE-MARK-MASQ"} + Flags(), "E\\x1b[2J");
  CallBoth(Words{"explain", absl::StrCat("nat/", kChain)} + Flags(), "E\\x1b[2J");
  CallBoth(Words{"sync"} + retire, comment);
  CallBoth(Words{"retire"} + Flags(), comment);
  CallBoth(Words{"retire", "--yes"} + Flags(), comment);
  Call({"detect"}, NameOf(GetParam()));
}

TEST_P(HostileTextTest, NothingThatAChangeDependsOnIsPrintedUnescaped) {
  MakeHostileSurroundings();
  const std::string mode = Flags()[0];
  const std::string table = "ip T\\x1b[2J\\u202e: rules of";
  CallBoth({"marks", mode}, table);
  const ProgramResult svg = Call({"marks", mode, "--output=svg"}, table);
  EXPECT_EQ(RunProgram({"python3", "-c",
                        "import sys, xml.dom.minidom as dom; dom.parse(sys.stdin.buffer)"},
                       svg.out)
                .exit_code,
            0)
      << svg;
  for (const char* change :
       {"ownership-cleanup", "kube-proxy-nftables", "kube-proxy-ipvs-removal", "iptables-nft"}) {
    const std::vector<std::string> audit =
        Words{"audit", absl::StrCat("--before=", change)} + Flags();
    CallBoth(audit, "\\x1b[2J");
    Call(audit + Words{"--output=dot"}, "\\\\x1b[2J");
  }
  CallBoth({"audit", "--before=kube-proxy-nftables", mode, HostRoot()},
           "rules.v4:1: -A X -m comment --comment \"\\x1b[2J");
  Call({"detect", "--capabilities", mode, HostRoot()}, "kernel ");
  Call({"detect", "--capabilities", mode, HostRoot(), "--output=json"}, "\"kernel\"");
}

// A namespace that any user can make, and that root's `audit --all-netns` reads.
TEST_P(HostileTextTest, AuditOfAllNamespacesPrintsNoOtherNamespacesTextUnescaped) {
  const Netns other = NewNetns();
  {
    const InNetns inside(other);
    Run({"-t", "nat", "-N", "KUBE-MARK-MASQ"});
    Run({"-t", "nat", "-N", "KUBE-MARK-DROP"});
    Run({"-t", "filter", "-N", "KUBE-FIREWALL"});
    MakeHostileRules();
  }
  ASSERT_EQ(mkdir("/run/netns", 0755), 0);
  const std::string name = absl::StrCat("/run/netns/", kChain);
  std::ofstream(name).close();
  ASSERT_EQ(mount(other.Path().c_str(), name.c_str(), "none", MS_BIND, nullptr), 0);
  const std::vector<std::string> all = {"audit", "--all-netns", "--cni-conf-dir=" + cni_.root()};
  Call(all, "[/run/netns/E\\x1b[2J\\u009b2J\\u202e\\xff]", /*all_netns=*/true);
  const ProgramResult json = Call(all + Words{"--output=json"}, "\\u202e", /*all_netns=*/true);
  EXPECT_TRUE(nlohmann::json::accept(json.out)) << json;
}

TEST_P(HostileTextTest, TheDaemonsLogAndPagesHoldItEscaped) {
  StartOnly(Flags() + Words{"--stale-chains=retire", "-v=2", "--iptables-sync-period=1s"});
  ASSERT_TRUE(daemon().Prints("Watching: ")) << daemon().Output();
  const std::string flushed =
      "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n*mangle\n"
      ":PREROUTING ACCEPT [0:0]\nCOMMIT\n*filter\n:INPUT ACCEPT [0:0]\n"
      "COMMIT\n";
  // What was claimed is in the pages; what was lost in the log.
  HttpAnswer statusz;
  EXPECT_TRUE(WaitUntil([&statusz] {
    statusz = HttpGet(kMetricsPort, "/statusz");
    return absl::StrContains(statusz.body, "\\x1b[2J");
  })) << statusz.body;
  const ProgramResult replaced = iptables_.Replace(flushed);
  ASSERT_EQ(replaced.exit_code, 0) << replaced;
  ASSERT_TRUE(daemon().Prints("Repaired in")) << daemon().Output();
  for (const auto& [port, path] :
       std::vector<std::pair<int, std::string>>{{kMetricsPort, "/statusz"},
                                                {kMetricsPort, "/flagz"},
                                                {kMetricsPort, "/configz"},
                                                {kMetricsPort, "/metrics"},
                                                {kHealthPort, "/readyz?verbose"}}) {
    SCOPED_TRACE(path);
    ExpectShown(HttpGet(port, path).body);
  }
  ExpectShown(statusz.body);
  EXPECT_EQ(Stop(SIGTERM), kExitOk);
  const std::string log = daemon().Output();
  ExpectShown(log);
  EXPECT_THAT(log, HasSubstr("removed with it, and missing until their owners restore them: ip"));
  EXPECT_THAT(log, HasSubstr("ip filter INPUT -> E\\x1b[2J\\u009b2J\\u202e\\xff"));
  // Every line is the daemon's own.
  static const std::regex kLine(R"([IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [a-z_]+\.cc:\d+\] .*)");
  for (const absl::string_view part : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    const std::string line(part);
    EXPECT_TRUE(std::regex_match(line, kLine)) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, HostileTextTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
