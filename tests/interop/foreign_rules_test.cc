// SPDX-License-Identifier: Apache-2.0
//
// Other programs' rules, around our chains and inside them, stay unchanged, byte for byte. Only a
// rule that would decide before ours inside our own chains is removed.
#include <linux/netfilter/nf_tables.h>
#include <sys/socket.h>

#include "netlink/nft_requests.h"
#include "netlink/socket.h"
#include "tests/interop/agent_fixture.h"

namespace kipt::testing {
namespace {

// By their places and handles: "2 filter/INPUT rule 7".
using RawRules = std::map<std::string, std::string>;

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
  // Each rule of all families, with its expressions and user data as the kernel dumps them.
  // NFTA_RULE_POSITION is left out: it names the rule before, which changes with every insertion.
  static RawRules Raw() {
    RawRules rules;
    const auto take = [&rules](netlink::WireBytes message) {
      const auto rule = netlink::Attributes::OfMessage(message);
      std::string& bytes =
          rules[absl::StrCat(netlink::FamilyOf(message), " ", *rule.Text(NFTA_RULE_TABLE), "/",
                             *rule.Text(NFTA_RULE_CHAIN), " rule ", *rule.U64(NFTA_RULE_HANDLE))];
      for (const auto& [type, payload] : rule.all()) {
        if (type == NFTA_RULE_POSITION) continue;
        absl::StrAppend(&bytes, type, ":", std::string(payload.begin(), payload.end()));
      }
      return absl::OkStatus();
    };
    const auto socket = netlink::Socket::Open();
    EXPECT_THAT(socket, IsOk());
    EXPECT_THAT(netlink::AskOne(**socket, NFT_MSG_GETRULE, AF_UNSPEC, NLM_F_DUMP, {}, take),
                IsOkAndHolds(0));
    return rules;
  }
  // Same handle, same bytes.
  static void ExpectAllStillThere(const RawRules& before) {
    const RawRules after = Raw();
    for (const auto& [id, bytes] : before) {
      const auto found = after.find(id);
      ASSERT_NE(found, after.end()) << id;
      EXPECT_EQ(found->second, bytes) << id;
    }
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
  MustRun({"/usr/sbin/nft", "-f", "-"}, R"(table inet theirs {
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

TEST_P(ForeignTextTest, InAChainOfOursThatWasThereBeforeUsComesAfterOurs) {
  for (const auto& [table, chain] : {std::pair("filter", "KUBE-FIREWALL"),
                                     {"nat", "KUBE-MARK-MASQ"},
                                     {"nat", "KUBE-MARK-DROP"},
                                     {"nat", "KUBE-POSTROUTING"}}) {
    for (const IpFamily family : kBothFamilies) {
      Load(Of(family),
           absl::StrCat("*", table, "\n:", chain, " - [0:0]\n-A ", chain, " -j ACCEPT\nCOMMIT\n"));
    }
  }
  const RawRules before = Raw();
  Agent("sync", {.ownership_cleanup = false, .iptables = GetParam()});
  ExpectAllStillThere(before);
  for (const IpFamily family : kBothFamilies) {
    const SavedRules saved = SavedRules::Of(Of(family));
    for (const auto& [table, chain] : saved.Chains()) {
      const std::vector<std::string> rules = saved.Rules(table, chain);
      if (!absl::StartsWith(chain, "KUBE-") || rules.empty()) continue;
      EXPECT_GT(rules.size(), 1U) << chain;
      EXPECT_EQ(rules.back(), absl::StrCat("-A ", chain, " -j ACCEPT"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ForeignTextTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
