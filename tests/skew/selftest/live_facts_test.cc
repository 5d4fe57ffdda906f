// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/advise/live_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/xtables/saved_survey.h"

namespace kipt::skew {
namespace {

using ::testing::IsEmpty;

// What kubelet 1.24 leaves in IPv4, and what of kube-proxy 1.21 to 1.24's table filter tells which
// one it is.
constexpr char kKubelet[] =
    "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
    "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n"
    ":KUBE-FIREWALL - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-EXTERNAL-SERVICES - [0:0]\n"
    "-A FORWARD -j KUBE-EXTERNAL-SERVICES\n-A INPUT -j KUBE-FIREWALL\n-A OUTPUT -j KUBE-FIREWALL\n"
    "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming "
    "localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n"
    "-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked packets\" -m "
    "mark --mark 0x8000/0x8000 -j DROP\nCOMMIT\n"
    "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:KUBE-MARK-DROP - [0:0]\n"
    ":KUBE-MARK-MASQ - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:USER - [0:0]\n"
    "-A PREROUTING -j USER\n"
    "-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING\n"
    "-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000\n"
    "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n"
    "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n"
    "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0\n"
    "-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j "
    "MASQUERADE --random-fully\n";

// That kube-proxy's table nat, with a service whose source ranges refuse somebody.
constexpr char kOldProxy[] =
    ":KUBE-SERVICES - [0:0]\n:KUBE-FW-AAAAAAAAAAAAAAAA - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n"
    "-A KUBE-SERVICES -d 1.2.3.4/32 -p tcp -m tcp --dport 80 -j KUBE-FW-AAAAAAAAAAAAAAAA\n"
    "-A KUBE-FW-AAAAAAAAAAAAAAAA -j KUBE-MARK-DROP\n";

UpgradePlan Plan(int from, int to) { return {{{1, from}, {}}, {{1, to}, {}}}; }

agent::NodeView View(const std::string& nat_rules) {
  agent::NodeView view;
  // The heads of all chains come first.
  const size_t rules = nat_rules.empty() || nat_rules[0] != ':' ? 0 : nat_rules.find("\n-A") + 1;
  std::string text = kKubelet;
  text.insert(text.find(":USER"), nat_rules.substr(0, rules));
  absl::StrAppend(&text, nat_rules.substr(rules), "COMMIT\n");
  absl::StatusOr<netlink::Survey> survey = agent::ParseSavedFile(text);
  EXPECT_TRUE(survey.ok()) << survey.status();
  survey->mode = "nft";
  view.surveys.push_back(*std::move(survey));
  return view;
}

struct FactRow {
  std::string name;
  // After kubelet's, in table nat.
  std::string rules;
  UpgradePlan plan;
  // Parts of one fact; `what` empty: no fact has `means`.
  std::string what;
  std::string means;
  bool blocking = false;
};
void PrintTo(const FactRow& row, std::ostream* stream) { *stream << row.name; }

UpgradePlan ToNftables() {
  UpgradePlan plan = Plan(30, 31);
  plan.proxy_to = ProxyVersion{{1, 31}, ProxyMode::kNftables};
  return plan;
}
UpgradePlan BesideProxy(int from, int to, int proxy) {
  UpgradePlan plan = Plan(from, to);
  plan.proxy_from = plan.proxy_to = ProxyVersion{{1, proxy}};
  return plan;
}

const FactRow kRows[] = {
    {"AUserOfMarkDropLosesItWithTheGate", "-A USER -j KUBE-MARK-DROP\n", Plan(26, 27),
     "jump to nat/KUBE-MARK-DROP (-A USER -j KUBE-MARK-DROP)",
     "kubelet 1.27 does not keep KUBE-MARK-DROP: it works until you reboot", true},
    {"AUserOfMarkDropKeepsItWithoutTheGate", "-A USER -j KUBE-MARK-DROP\n", Plan(24, 25),
     "jump to nat/KUBE-MARK-DROP", "kubelet 1.25 keeps the chain", false},
    {"AUserOfMarkDropLosesItToKubeProxy1_27", "-A USER -j KUBE-MARK-DROP\n",
     BesideProxy(25, 26, 27), "jump to nat/KUBE-MARK-DROP",
     "empties IPv4's filter/KUBE-FIREWALL at every sync", true},
    {"AUserOfMarkMasqKeepsItBesideKubeProxy", "-A USER -j KUBE-MARK-MASQ\n", Plan(26, 27),
     "jump to nat/KUBE-MARK-MASQ", "kube-proxy 1.27 also makes the chain", false},
    {"AUserOfMarkMasqLosesItToNftables", "-A USER -j KUBE-MARK-MASQ\n", ToNftables(),
     "jump to nat/KUBE-MARK-MASQ", "Neither kubelet 1.31 nor kube-proxy 1.31 nftables makes", true},
    {"AnotherMasqueradeBit", "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x100000/0x100000\n",
     Plan(24, 25), "nat/KUBE-MARK-MASQ sets mark 0x104000, not 0x4000 alone",
     "kubelet and kube-proxy have different masquerade bits", false},
    {"AnotherDropBitBefore1_31", "-A KUBE-MARK-DROP -j MARK --set-xmark 0x10000/0x10000\n",
     Plan(30, 31), "nat/KUBE-MARK-DROP sets mark 0x18000", "kubelet 1.31 does not start with it",
     true},
    {"ResidueOfAnOlderKubelet", "", Plan(28, 29), "kubelet 1.28 does not make it",
     "programs that use it work until you reboot", false},
    {"ResidueThatKubeProxyDropsBy", kOldProxy, BesideProxy(27, 28, 24),
     "nat/KUBE-MARK-DROP exists, but kubelet 1.27 does not make it",
     "works until you reboot; then these packets are let through", false},
    {"NoResidueBeforeTheGate", "", Plan(24, 25), "", "left it", false},
    {"KubeProxyThatMarksAndStays", kOldProxy, BesideProxy(26, 27, 24),
     "drops packets by nat/KUBE-MARK-DROP",
     "kubelet 1.27 does not fill it, and kube-proxy 1.24 needs it filled", true},
    {"KubeProxyThatMarksAndGoes", kOldProxy, Plan(24, 27), "drops packets by nat/KUBE-MARK-DROP",
     "It must be kube-proxy 1.27 before kubelet is 1.27", false},
    {"KubeProxyThatMarksAndKubeletThatStays", kOldProxy, Plan(23, 24),
     "drops packets by nat/KUBE-MARK-DROP", "kubelet 1.24 keeps filling it", false},
    {"KubeProxyIsNotThePlans", kOldProxy, Plan(28, 29), "but the plan assumes 1.28",
     "Run advise again", true},
    {"KubeProxyIsThePlans", kOldProxy, Plan(23, 24), "", "Run advise again", false},
};

class LiveFactsTest : public ::testing::TestWithParam<FactRow> {};

TEST_P(LiveFactsTest, SaysWhatTheNodeHas) {
  const FactRow& row = GetParam();
  const LiveNode node = LiveFacts(View(row.rules), row.plan);
  bool found = false;
  std::string all;
  for (const LiveNode::Fact& fact : node.facts) {
    absl::StrAppend(&all, fact.blocking ? "! " : "- ", fact.what, ": ", fact.means, "\n");
    if (!absl::StrContains(fact.what, row.what) || !absl::StrContains(fact.means, row.means)) {
      continue;
    }
    found = true;
    EXPECT_EQ(fact.blocking, row.blocking) << fact.what;
  }
  EXPECT_EQ(found, !row.what.empty()) << all;
}

INSTANTIATE_TEST_SUITE_P(Of, LiveFactsTest, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return row.param.name; });

TEST(LiveFactsOnceTest, ACniConfigurationIsAUserToo) {
  agent::NodeView view = View("");
  view.cni.references = {
      {.file = "/etc/cni/net.d/10.conflist", .plugin = "portmap", .chain = "KUBE-MARK-MASQ"}};
  const LiveNode node = LiveFacts(view, ToNftables());
  ASSERT_FALSE(node.facts.empty());
  EXPECT_TRUE(node.facts.front().blocking);
  EXPECT_EQ(node.facts.front().what,
            "the CNI plugin portmap uses nat/KUBE-MARK-MASQ (/etc/cni/net.d/10.conflist)");
}

TEST(LiveFactsOnceTest, AnEmptyMarkDropThatIsUsedIsSaid) {
  agent::NodeView view = View(kOldProxy);
  view.surveys[0].tables[{"ip", "nat"}]["KUBE-MARK-DROP"].rules.clear();
  bool found = false;
  for (const LiveNode::Fact& fact : LiveFacts(view, Plan(24, 25)).facts) {
    found |=
        fact.what == "nat/KUBE-MARK-DROP is empty" && absl::StrContains(fact.means, "fails open");
  }
  EXPECT_TRUE(found);
}

TEST(LiveFactsOnceTest, RouteLocalnetWithoutTheMartianRuleIsSaid) {
  agent::NodeView view = View("");
  view.route_localnet.interfaces = {"all"};
  const size_t safe = LiveFacts(view, Plan(24, 25)).facts.size();
  view.surveys[0].tables[{"ip", "filter"}]["KUBE-FIREWALL"].rules.clear();
  EXPECT_GT(LiveFacts(view, Plan(24, 25)).facts.size(), safe);
}

TEST(LiveFactsOnceTest, RulesInBothModesAreSaid) {
  agent::NodeView view = View(kOldProxy);
  view.surveys.push_back(view.surveys[0]);
  view.surveys[1].mode = "legacy";
  bool found = false;
  for (const LiveNode::Fact& fact : LiveFacts(view, Plan(24, 25)).facts) {
    found |= absl::StrContains(fact.what, "both modes");
  }
  EXPECT_TRUE(found);
}

TEST(LiveFactsOnceTest, ABareNodeHasNothing) {
  const LiveNode node = LiveFacts(agent::NodeView(), Plan(24, 25));
  EXPECT_THAT(node.facts, IsEmpty());
  EXPECT_FALSE(node.proxy_generation.has_value());
}

}  // namespace
}  // namespace kipt::skew
