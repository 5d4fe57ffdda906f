// SPDX-License-Identifier: Apache-2.0
//
// Other people's rules, around our chains and inside them, stay as they are, byte for byte. The one
// thing they may not do is decide before our rules inside our own chains.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/interop/agent_fixture.h"
#include "tests/support/generation_listener.h"
#include "tests/support/matchers.h"
#include "tests/support/raw_rules.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using RawRules = std::map<RawRuleId, std::string>;

// One line per way to match or to act that the project's own model does not know.
constexpr const char* kUnknownRules[] = {
    R"(-m statistic --mode nth --every 3 --packet 0 -j ACCEPT)",
    R"(-p tcp -m multiport --dports 80,443,8000:8080 -j ACCEPT)",
    R"(-m hashlimit --hashlimit-above 10/sec --hashlimit-name kipt --hashlimit-mode srcip -j DROP)",
    R"(-m string --algo bm --string "\"q\\uote" -j DROP)",
    R"(-m limit --limit 5/min -j LOG --log-prefix "a \"quoted\" prefix ")",
    R"(-m addrtype --dst-type LOCAL -j ACCEPT)",
    R"(-p tcp -m tcp --dport 22 --tcp-flags SYN,ACK SYN -j ACCEPT)",
    R"(-m length --length 100:200 -j ACCEPT)",
    R"(-m u32 --u32 "0&0xFFFF=0x100:0xFFFF" -j ACCEPT)",
    R"(-m connmark --mark 0x1/0xff -j ACCEPT)",
    R"(-m conntrack --ctstate NEW -m connlimit --connlimit-above 5 -j REJECT)",
    R"(-m dscp --dscp 0x20 -j ACCEPT)",
    R"(-i eth+ -j ACCEPT)",
    R"(-j NFLOG --nflog-group 1)",
    // Nearly ours: each differs from a rule of ours in one thing.
    R"(-m mark --mark 0x8000/0x8000 -j DROP)",
    R"(-m comment --comment "kubernetes firewall for dropping marked packets " -m mark --mark 0x8000/0x8000 -j DROP)",
    R"(-m comment --comment "block incoming localnet connections" -m conntrack --ctstate NEW -j DROP)",
    R"(-m comment --comment "kubernetes postrouting rules" -j FOREIGN-LEAF)",
    // Comments that break a careless parser or printer.
    R"(-m comment --comment "say \"hi\" \\ b'ack\\\\slash #hash -j DROP" -j ACCEPT)",
    R"(-m comment --comment "-A INPUT -j KUBE-FIREWALL" -j ACCEPT)",
    R"(-m comment --comment "COMMIT" -j ACCEPT)",
    R"(-m comment --comment ":KUBE-FIREWALL - [0:0] $(id) `id` %s%n {}" -j ACCEPT)",
};

std::string RulesFor(const std::string& chain) {
  std::string text;
  for (const char* rule : kUnknownRules) absl::StrAppend(&text, "-A ", chain, " ", rule, "\n");
  return text;
}

std::string Hundreds(const std::string& chain, const std::string& target) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    absl::StrAppend(&text, "-A ", chain, " -p udp -m udp --dport ", 10'000 + i,
                    " -m comment --comment \"rule \\\"", i, "\\\"\" -j ", target, "\n");
  }
  return text;
}

// Foreign chains of many kinds, foreign rules in the base chains that hold our jumps, and foreign
// rules in chains of our names.
std::string ForeignState(IpFamily family) {
  std::string text = absl::StrCat(
      "*filter\n:FOREIGN-LEAF - [0:0]\n:FOREIGN - [0:0]\n:KUBE-SERVICES-OF-SOMEBODY - [0:0]\n"
      ":KUBE-FIREWALL - [0:0]\n",
      Hundreds("FOREIGN", "FOREIGN-LEAF"), RulesFor("FOREIGN"), RulesFor("INPUT"),
      Hundreds("OUTPUT", "FOREIGN-LEAF"), "-A FORWARD -j FOREIGN\n",
      "-A KUBE-FIREWALL -p tcp -m tcp --dport 7 -j ACCEPT\n",
      "-A KUBE-FIREWALL -m comment --comment \"an admin's \\\"own\\\" \\\\ rule\" -j RETURN\n",
      "COMMIT\n");
  absl::StrAppend(&text,
                  "*nat\n:FOREIGN-NAT - [0:0]\n:KUBE-POSTROUTING - [0:0]\n"
                  ":KUBE-MARK-MASQ - [0:0]\n:KUBE-MARK-DROP - [0:0]\n",
                  Hundreds("FOREIGN-NAT", "KUBE-MARK-MASQ"),
                  "-A POSTROUTING -j FOREIGN-NAT\n"
                  "-A POSTROUTING -p tcp -m tcp --dport 99 -j MASQUERADE --to-ports 1024-31000\n"
                  "-A KUBE-POSTROUTING -p tcp -m tcp --dport 8 -j ACCEPT\n"
                  "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x30/0x30\n"
                  "-A KUBE-MARK-DROP -p tcp -m tcp --dport 9 -j RETURN\nCOMMIT\n");
  absl::StrAppend(&text, "*mangle\n:FOREIGN-MANGLE - [0:0]\n",
                  "-A FOREIGN-MANGLE -j MARK --set-xmark 0x8000/0x8000\n",
                  "-A PREROUTING -j FOREIGN-MANGLE\nCOMMIT\n*raw\n-A PREROUTING -p tcp -m tcp "
                  "--dport 1 -j NOTRACK\nCOMMIT\n");
  if (family == IpFamily::kIpv6) return text;
  return text + "*security\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\nCOMMIT\n";
}

class ForeignRulesTest : public AgentTest {
 protected:
  static void Load(const Iptables& iptables, const std::string& text) {
    const ProgramResult result = iptables.Restore(text);
    ASSERT_EQ(result.exit_code, 0) << result;
  }
  static void Nft(const std::string& commands) {
    const ProgramResult result = RunProgram({"/usr/sbin/nft", "-f", "-"}, commands);
    ASSERT_EQ(result.exit_code, 0) << result;
  }
  static RawRules Raw() {
    const auto rules = ReadRawRules();
    EXPECT_THAT(rules, IsOk());
    return rules.ok() ? *rules : RawRules();
  }
  // Same handle, same bytes.
  static void ExpectAllStillThere(const RawRules& before) {
    const RawRules after = Raw();
    for (const auto& [id, bytes] : before) {
      const auto found = after.find(id);
      ASSERT_NE(found, after.end()) << id.table << "/" << id.chain << " rule " << id.handle;
      EXPECT_EQ(found->second, bytes) << id.table << "/" << id.chain << " rule " << id.handle;
    }
  }
  static void ExpectVoidedMarks(const ProgramResult& result, size_t count) {
    EXPECT_EQ(result.exit_code, kExitDifferences) << result;
    const std::vector<std::string> parts =
        absl::StrSplit(result.out, "! VoidedMark (warning) ip nat KUBE-MARK-DROP: \"-A ");
    EXPECT_THAT(parts, SizeIs(count + 1)) << result;
  }
  static void SyncInEveryMode(IptablesMode iptables = IptablesMode::kNft) {
    // Exit codes are not the point here: a foreign rule may well be a finding.
    Agent("sync", {.ownership_cleanup = true, .iptables = iptables});
    Agent("sync", {.ownership_cleanup = false, .iptables = iptables});
    Agent("sync", {.ownership_cleanup = false, .bits = {3, 4}, .iptables = iptables});
    Agent("sync", {.ownership_cleanup = false, .iptables = iptables});
  }
};

TEST_F(ForeignRulesTest, AreTheSameBytesAfterEverySync) {
  for (const IpFamily family : kBothFamilies) Load({family}, ForeignState(family));
  const RawRules before = Raw();
  ASSERT_GT(before.size(), 1500U);
  SyncInEveryMode();
  ExpectAllStillThere(before);
  EXPECT_GT(Raw().size(), before.size()) << "our own rules should be there by now";
}

class ForeignTextTest : public ForeignRulesTest,
                        public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static AgentSettings Settings() { return {.ownership_cleanup = false, .iptables = GetParam()}; }
  static Iptables Of(IpFamily family) { return {.family = family, .mode = GetParam()}; }
};

TEST_P(ForeignTextTest, AndItsOrderAreTheSameInEveryChainAfterEverySync) {
  // What is ours, to be taken away from what is saved afterwards.
  std::map<IpFamily, SavedRules> ours;
  const Netns fresh = NewNetns();
  {
    const InNetns in(fresh);
    Sync({.ownership_cleanup = false, .iptables = GetParam()});
    for (const IpFamily family : kBothFamilies) ours[family] = SavedRules::Of(Of(family));
  }
  std::map<IpFamily, SavedRules> before;
  for (const IpFamily family : kBothFamilies) {
    Load(Of(family), ForeignState(family));
    before[family] = SavedRules::Of(Of(family));
  }
  SyncInEveryMode(GetParam());
  for (const IpFamily family : kBothFamilies) {
    const SavedRules after = SavedRules::Of(Of(family));
    EXPECT_THAT(before[family].LinesMissingIn(after), IsEmpty());
    EXPECT_THAT(ours[family].LinesMissingIn(after), IsEmpty());
    for (const auto& [table, chain] : before[family].Chains()) {
      std::vector<std::string> foreign = after.Rules(table, chain);
      for (const std::string& rule : ours[family].Rules(table, chain)) std::erase(foreign, rule);
      EXPECT_EQ(foreign, before[family].Rules(table, chain)) << table << "/" << chain;
    }
  }
}

TEST_F(ForeignRulesTest, OfNftInIptablesOwnTablesAndInOthersAreTheSameBytes) {
  Sync({.ownership_cleanup = false});
  const RawRules ours = Raw();
  Nft(R"(table inet theirs {
  set s {
    type ipv4_addr
    elements = { 10.1.1.1 }
  }
  chain input {
    type filter hook input priority 5; policy drop;
    ip saddr @s accept
  }
}
add rule ip filter INPUT ct state established,related accept comment "nft's 'own'"
add rule ip filter KUBE-FIREWALL tcp dport { 22, 80 } accept
add rule ip6 filter KUBE-FIREWALL meta mark 0x8000 log prefix "x" drop
add rule ip nat KUBE-MARK-MASQ meta mark set meta mark or 0x20
add rule ip nat KUBE-POSTROUTING masquerade
)");
  RawRules theirs = Raw();
  for (const auto& [id, bytes] : ours) theirs.erase(id);
  ASSERT_THAT(theirs, SizeIs(6));
  SyncInEveryMode();
  ExpectAllStillThere(theirs);
}

struct OwnChainRow {
  const char* name;
  const char* table;
  const char* chain;
};

class OwnChainTest : public ForeignRulesTest,
                     public ::testing::WithParamInterface<std::tuple<IptablesMode, OwnChainRow>> {
 protected:
  static IptablesMode Mode() { return std::get<0>(GetParam()); }
  static const OwnChainRow& Row() { return std::get<1>(GetParam()); }
  static AgentSettings Settings() { return {.ownership_cleanup = false, .iptables = Mode()}; }
  static Iptables Of(IpFamily family) { return {.family = family, .mode = Mode()}; }
  static constexpr char kForeign[] = "ACCEPT";
  std::string ForeignRule() const { return absl::StrCat("-A ", Row().chain, " -j ", kForeign); }
  std::vector<std::string> Rules(IpFamily family) const {
    return SavedRules::Of(Of(family)).Rules(Row().table, Row().chain);
  }
  std::vector<std::string> OursThenForeign(IpFamily family) const {
    const Netns fresh = NewNetns();
    const InNetns in(fresh);
    Sync(Settings());
    std::vector<std::string> rules = Rules(family);
    rules.push_back(ForeignRule());
    return rules;
  }
};

TEST_P(OwnChainTest, AForeignRuleThatWasThereBeforeUsComesAfterOurs) {
  for (const IpFamily family : kBothFamilies) {
    Load(Of(family), absl::StrCat("*", Row().table, "\n:", Row().chain, " - [0:0]\n", ForeignRule(),
                                  "\nCOMMIT\n"));
  }
  const RawRules before = Raw();
  Agent("sync", Settings());
  ExpectAllStillThere(before);
  for (const IpFamily family : kBothFamilies) EXPECT_EQ(Rules(family), OursThenForeign(family));
}

TEST_P(OwnChainTest, AForeignRuleInsertedBeforeOursIsOvertaken) {
  Sync(Settings());
  for (const IpFamily family : kBothFamilies) {
    Of(family).Run({"-t", Row().table, "-I", Row().chain, "-j", kForeign});
    EXPECT_EQ(Rules(family).front(), ForeignRule());
  }
  EXPECT_EQ(Agent("plan", Settings()).exit_code, kExitDifferences);
  Agent("sync", Settings());
  for (const IpFamily family : kBothFamilies) EXPECT_EQ(Rules(family), OursThenForeign(family));
}

INSTANTIATE_TEST_SUITE_P(
    ModeChains, OwnChainTest,
    ::testing::Combine(::testing::ValuesIn(kBothModes),
                       ::testing::Values(OwnChainRow{"KubeFirewall", "filter", "KUBE-FIREWALL"},
                                         OwnChainRow{"KubeMarkMasq", "nat", "KUBE-MARK-MASQ"},
                                         OwnChainRow{"KubeMarkDrop", "nat", "KUBE-MARK-DROP"},
                                         OwnChainRow{"KubePostrouting", "nat",
                                                     "KUBE-POSTROUTING"})),
    [](const auto& row) {
      return TestNameOf(std::get<0>(row.param)) + std::get<1>(row.param).name;
    });

// In kube-proxy's IPVS mode, since 1.19, a rule for hairpin packets comes before the others.
TEST_P(ForeignTextTest, KubeProxysRulesOfIpvsModeStayInTheirOrderWithEitherBit) {
  const ProgramResult set = RunProgram({"ipset", "create", "KUBE-LOOP-BACK", "hash:ip,port,ip"});
  ASSERT_EQ(set.exit_code, 0) << set;
  const Iptables ipv4 = Of(IpFamily::kIpv4);
  Load(ipv4, R"(*nat
:KUBE-SERVICES - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m comment --comment "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose" -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
COMMIT
)");
  const SavedRules before = SavedRules::Of(ipv4);
  for (const bool other_bit : {false, true}) {
    AgentSettings settings = Settings();
    if (other_bit) settings.bits = {3, 4};
    const ProgramResult synced = Agent("sync", settings);
    EXPECT_EQ(absl::StrContains(synced.out, "BitConflict"), other_bit) << synced;
    const SavedRules after = SavedRules::Of(ipv4);
    for (const char* chain : {"KUBE-POSTROUTING", "KUBE-MARK-MASQ", "POSTROUTING"}) {
      EXPECT_EQ(after.Rules("nat", chain), before.Rules("nat", chain)) << chain << synced;
    }
  }
}

// Calico and Cilium insert first too: whoever insists on being first fights for ever.
TEST_P(ForeignTextTest, AJumpThatIsNoLongerFirstIsNotMoved) {
  Sync(Settings());
  const Iptables ipv4 = Of(IpFamily::kIpv4);
  ipv4.Run({"-N", "cali-INPUT"});
  ipv4.Run({"-I", "INPUT", "-j", "cali-INPUT"});
  auto listener = GenerationListener::Create();
  ASSERT_THAT(listener, IsOk());
  Sync(Settings());
  EXPECT_THAT((*listener)->Drain(), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(SavedRules::Of(ipv4).Rules("filter", "INPUT"),
              ElementsAre("-A INPUT -j cali-INPUT", "-A INPUT -j KUBE-FIREWALL"));
}

TEST_P(ForeignTextTest, ADropAllWithoutOurCommentIsAnAdminsAndStays) {
  Sync(Settings());
  const Iptables ipv4 = Of(IpFamily::kIpv4);
  ipv4.Run({"-A", "KUBE-FIREWALL", "-j", "DROP"});
  const RawRules before = Raw();
  const SavedRules saved = SavedRules::Of(ipv4);
  const ProgramResult plan = Agent("plan", Settings());
  EXPECT_EQ(plan.exit_code, kExitDifferences) << plan;
  Agent("sync", Settings());
  ExpectAllStillThere(before);
  EXPECT_EQ(SavedRules::Of(ipv4), saved);
}

// Of every packet, of some packets, by a flipped bit.
TEST_P(ForeignTextTest, RulesThatClearTheMarkBehindOursAreFindingsAndStay) {
  Sync(Settings());
  const Iptables ipv4 = Of(IpFamily::kIpv4);
  for (const std::vector<std::string>& rule :
       std::vector<std::vector<std::string>>{{"-j", "MARK", "--set-mark", "0"},
                                             {"-p", "udp", "-j", "MARK", "--and-mark", "0"},
                                             {"-j", "MARK", "--xor-mark", "0x8000"},
                                             {"-j", "MARK", "--set-xmark", "0x30/0x30"}}) {
    std::vector<std::string> arguments = {"-t", "nat", "-A", "KUBE-MARK-DROP"};
    arguments.insert(arguments.end(), rule.begin(), rule.end());
    const ProgramResult added = ipv4.Run(arguments);
    ASSERT_EQ(added.exit_code, 0) << added;
  }
  const SavedRules saved = SavedRules::Of(ipv4);
  for (const char* command : {"plan", "sync", "plan"})
    ExpectVoidedMarks(Agent(command, Settings()), 3);
  EXPECT_EQ(SavedRules::Of(ipv4), saved);
}

TEST_F(ForeignRulesTest, ThatClearTheMarkInNftsWordsAreFindingsAndStay) {
  Sync({.ownership_cleanup = false});
  Nft("add rule ip nat KUBE-MARK-DROP meta mark set 0\n"
      "add rule ip nat KUBE-MARK-DROP meta mark set meta mark and 0xffff7fff\n"
      "add rule ip nat KUBE-MARK-DROP meta mark set meta mark or 0x30\n");
  const RawRules before = Raw();
  ExpectVoidedMarks(Agent("sync", {.ownership_cleanup = false}), 2);
  ExpectAllStillThere(before);
}

// Repair must not make such a rule effective.
TEST_P(ForeignTextTest, OursIsNotMovedBeforeARuleThatClearsTheMark) {
  Sync(Settings());
  const Iptables ipv4 = Of(IpFamily::kIpv4);
  ipv4.Run({"-t", "nat", "-I", "KUBE-MARK-DROP", "-j", "MARK", "--set-mark", "0"});
  const SavedRules saved = SavedRules::Of(ipv4);
  ExpectNothingPlanned(Settings());
  Sync(Settings());
  EXPECT_EQ(SavedRules::Of(ipv4), saved);
  ipv4.Run({"-t", "nat", "-D", "KUBE-MARK-DROP", "2"});
  Sync(Settings());
  EXPECT_EQ(SavedRules::Of(ipv4), saved);
}

INSTANTIATE_TEST_SUITE_P(Modes, ForeignTextTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
