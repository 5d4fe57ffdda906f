// SPDX-License-Identifier: Apache-2.0
#include "tests/interop/damage_rows.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/support/rows.h"
#include "tests/support/run_program.h"

namespace kipt::testing {

const char kForeignRules[] = R"(*mangle
:FOREIGN - [0:0]
-A PREROUTING -p tcp -m tcp --dport 7 -m comment --comment foreign -j FOREIGN
COMMIT
*nat
:FOREIGN - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A FOREIGN -p tcp -m tcp --dport 7 -m comment --comment foreign -j ACCEPT
-A POSTROUTING -p tcp -m tcp --dport 7 -m comment --comment foreign -j FOREIGN
-A KUBE-MARK-MASQ -p tcp -m tcp --dport 7 -m comment --comment foreign -j RETURN
COMMIT
*filter
:FOREIGN - [0:0]
:KUBE-FIREWALL - [0:0]
-A FOREIGN -p tcp -m tcp --dport 7 -m comment --comment foreign -j DROP
-A INPUT -p tcp -m tcp --dport 7 -m comment --comment foreign -j FOREIGN
-A FORWARD -p tcp -m tcp --dport 7 -m comment --comment foreign -j FOREIGN
-A KUBE-FIREWALL -p tcp -m tcp --dport 7 -m comment --comment foreign -j RETURN
COMMIT
)";

namespace {

void LeavesNothing(Content& /*content*/) {}

constexpr char kPostroutingRule[] =
    R"(POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING)";
constexpr char kDropMarkedRule[] =
    R"(KUBE-FIREWALL -m comment --comment "kubernetes firewall for dropping marked packets" )"
    R"(-m mark --mark 0x8000/0x8000 -j DROP)";

bool IsForeign(const std::string& text) {
  return text.find("foreign") != std::string::npos || text.find("FOREIGN") != std::string::npos;
}

// What a flush of `table` takes for good.
void LoseForeignRules(Content& content, const std::string& table) {
  for (auto& [chain, rules] : content) {
    if (chain.starts_with(table + "/")) std::erase_if(rules, IsForeign);
  }
  std::erase_if(content, [](const auto& chain) {
    return chain.second.empty() && chain.first.find("KUBE") == std::string::npos &&
           !IsForeign(chain.first);
  });
}

Strike Both(Strike first, Strike second) {
  return [first = std::move(first), second = std::move(second)](const Iptables& iptables) {
    first(iptables);
    second(iptables);
  };
}

// In one transaction.
Strike Restore(const std::string& table, const std::string& lines) {
  return [text = absl::StrCat("*", table, "\n", lines, "COMMIT\n")](const Iptables& iptables) {
    const ProgramResult result = iptables.Restore(text);
    EXPECT_EQ(result.exit_code, 0) << result;
  };
}

// Without --noflush: the table becomes what the text holds.
Strike RestoreWhole(const std::string& table) {
  return [text = absl::StrCat("*", table, "\nCOMMIT\n")](const Iptables& iptables) {
    const std::string program =
        absl::StrCat(iptables.family == IpFamily::kIpv4 ? "iptables-" : "ip6tables-",
                     NameOf(iptables.mode), "-restore");
    const ProgramResult result = RunProgram({program}, text);
    EXPECT_EQ(result.exit_code, 0) << result;
  };
}

Effect Adds(const std::string& chain, const std::string& rule) {
  return [=](Content& content) { content[chain].push_back(rule); };
}

Effect LosesRulesOf(const std::string& table) {
  return [=](Content& content) { LoseForeignRules(content, table); };
}

Effect LosesAllOf(const std::string& table) {
  return [=](Content& content) { LoseForeignChains(content, table); };
}

const std::vector<std::string> kNatChains = {
    R"(nat chain_missing ":KUBE-MARK-DROP")", R"(nat chain_missing ":KUBE-MARK-MASQ")",
    R"(nat chain_missing ":KUBE-POSTROUTING")", R"(nat chain_missing ":KUBE-KUBELET-CANARY")",
    absl::StrCat("nat jump_missing \"-A ", kPostroutingRule, "\"")};
const std::vector<std::string> kFilterChains = {
    R"(filter chain_missing ":KUBE-FIREWALL")", R"(filter chain_missing ":KUBE-KUBELET-CANARY")",
    R"(filter jump_missing "-A INPUT -j KUBE-FIREWALL")",
    R"(filter jump_missing "-A OUTPUT -j KUBE-FIREWALL")"};

std::vector<Damage> Flushes() {
  return {
      {"FlushOfNat", Runs({"-t", "nat", "-F"}),
       List(absl::StrCat("nat jump_missing \"-A ", kPostroutingRule, "\""),
            R"(nat rule_missing "-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000")",
            R"(nat rule_missing "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000")",
            R"(nat rule_missing "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN")"),
       LosesRulesOf("nat")},
      {"FlushAndDeletionOfNat", Both(Runs({"-t", "nat", "-F"}), Runs({"-t", "nat", "-X"})),
       kNatChains, LosesAllOf("nat"), "", /*asleep=*/true},
      {"FlushAndDeletionOfMangle", Both(Runs({"-t", "mangle", "-F"}), Runs({"-t", "mangle", "-X"})),
       List(R"(mangle chain_missing ":KUBE-IPTABLES-HINT")",
            R"(mangle chain_missing ":KUBE-KUBELET-CANARY")"),
       LosesAllOf("mangle"), "",
       /*asleep=*/true},
      {"FlushOfKubeFirewall", Runs({"-F", "KUBE-FIREWALL"}),
       List(absl::StrCat("filter rule_missing \"-A ", kDropMarkedRule, "\"")),
       [](Content& content) { std::erase_if(content["filter/KUBE-FIREWALL"], IsForeign); }},
      {"RestoreOfFilterWithoutNoflush", RestoreWhole("filter"), kFilterChains, LosesAllOf("filter"),
       "-restore"},
  };
}

std::vector<Damage> SingleItems() {
  return {
      {"DeletionOfTheInputJump", Runs({"-D", "INPUT", "-j", "KUBE-FIREWALL"}),
       List(R"(filter jump_missing "-A INPUT -j KUBE-FIREWALL")")},
      {"DeletionOfTheHint", Runs({"-t", "mangle", "-X", "KUBE-IPTABLES-HINT"}),
       List(R"(mangle chain_missing ":KUBE-IPTABLES-HINT")")},
      {"RuleReplacedByAStrangers",
       Runs({"-t", "nat", "-R", "KUBE-MARK-MASQ", "1", "-j", "MARK", "--set-xmark", "0x30/0x30"}),
       List(R"(nat rule_missing "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000")"),
       // It stays in front, where it can void nothing that ours sets.
       [](Content& content) {
         auto& rules = content["nat/KUBE-MARK-MASQ"];
         rules.insert(rules.begin(), "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x30/0x30");
       }},
      {"RuleMovedBelowAnAccept",
       Restore("filter", absl::StrCat("-D ", kDropMarkedRule, "\n-A KUBE-FIREWALL -j ACCEPT\n-A ",
                                      kDropMarkedRule, "\n")),
       List(absl::StrCat("filter rule_misplaced \"-A ", kDropMarkedRule, "\"")),
       Adds("filter/KUBE-FIREWALL", "-A KUBE-FIREWALL -j ACCEPT"), "-restore"},
      // As iptables 1.8.7 restores what 1.8.8 has saved.
      {"DropThatLostItsMatch",
       Runs({"-A", "KUBE-FIREWALL", "-m", "comment", "--comment",
             "kubernetes firewall for dropping marked packets", "-j", "DROP"}),
       {R"(filter rule_unwanted "-A KUBE-FIREWALL -m comment --comment "kubernetes firewall for )"
        R"(dropping marked packets" -j DROP")"}},
      {"ReturnThatLostItsMatch", Runs({"-t", "nat", "-I", "KUBE-POSTROUTING", "-j", "RETURN"}),
       List(R"(nat rule_unwanted "-A KUBE-POSTROUTING -j RETURN")")},
      {"SecondPostroutingJump", Restore("nat", absl::StrCat("-I ", kPostroutingRule, "\n")),
       List(absl::StrCat("nat rule_unwanted \"-A ", kPostroutingRule, "\"")), LeavesNothing,
       "-restore"},
  };
}

}  // namespace

Content ContentOf(const Iptables& iptables) {
  const SavedRules saved = SavedRules::Of(iptables);
  Content content;
  for (const auto& [table, chain] : saved.Chains()) {
    std::vector<std::string> rules = saved.Rules(table, chain);
    const bool base = chain == "INPUT" || chain == "OUTPUT" || chain == "FORWARD" ||
                      chain == "PREROUTING" || chain == "POSTROUTING";
    if (!base || !rules.empty()) content[absl::StrCat(table, "/", chain)] = std::move(rules);
  }
  return content;
}

void LoseForeignChains(Content& content, const std::string& table) {
  LoseForeignRules(content, table);
  content.erase(table + "/FOREIGN");
}

Strike Runs(std::vector<std::string> arguments) {
  return [arguments = std::move(arguments)](const Iptables& iptables) {
    const ProgramResult result = iptables.Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result;
  };
}

std::vector<Damage> EveryDamageToLabels() {
  const std::string mark_masq = R"("-A KUBELET-MARK-MASQ -m connlabel --label "114" --set")";
  const std::string mark_drop = R"("-A KUBELET-MARK-DROP -m connlabel --label "115" --set")";
  const std::string masquerade =
      R"("-A KUBELET-POSTROUTING -m connlabel --label "114" -j MASQUERADE --random-fully")";
  return {
      {"FlushOfNatWithLabels",
       Runs({"-t", "nat", "-F"}),
       {"nat rule_missing " + mark_drop, "nat rule_missing " + mark_masq,
        "nat rule_missing " + masquerade,
        R"(nat jump_missing "-A POSTROUTING -m comment --comment "kubelet postrouting rules" )"
        R"(-j KUBELET-POSTROUTING")"},
       LosesRulesOf("nat")},
  };
}

std::vector<Damage> EveryDamage() {
  std::vector<Damage> all = Flushes();
  for (Damage& row : SingleItems()) all.push_back(std::move(row));
  return all;
}

}  // namespace kipt::testing
