// SPDX-License-Identifier: Apache-2.0
//
// The facts, held against what was captured of real kube-proxies beside kubelet's commands, and
// against the text of KEP-3178.
#include "tests/skew/matrix/node_facts.h"

#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/skew/matrix/judge.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

using Act = std::function<void(FamilyFacts&)>;

Act Kubelet(int minor, std::optional<bool> gate = {}) {
  return [=](FamilyFacts& facts) { KubeletSyncs({{1, minor}, gate}, facts); };
}
Act Agent(int minor) {
  return [=](FamilyFacts& facts) { AgentSyncs({{1, minor}, {}}, facts); };
}
Act Retire(int minor) {
  return [=](FamilyFacts& facts) { AgentRetires({{1, minor}, {}}, facts); };
}
Act Proxy(int minor) {
  return [=](FamilyFacts& facts) { ProxySyncsFully({{1, minor}}, true, facts); };
}
Act NftablesProxy(int minor) {
  return [=](FamilyFacts& facts) {
    const ProxyVersion proxy = {{1, minor}, ProxyMode::kNftables};
    ProxyStarts(proxy, facts);
    ProxySyncsFully(proxy, true, facts);
  };
}
Act Cleanup(int minor) {
  return [=](FamilyFacts& facts) { ProxyCleansUp({1, minor}, facts); };
}
Act IdleProxy(int minor) {
  return [=](FamilyFacts& facts) { ProxySyncsFully({{1, minor}}, false, facts); };
}
Act Users() {
  return [](FamilyFacts& facts) { UsersAdd(facts); };
}

Act LabelUser() {
  return [](FamilyFacts& facts) { LabelUserAdds(facts); };
}

// The question of that name.
Question Named(const std::string& name, IpFamily family) {
  const std::string full = name + (family == IpFamily::kIpv4 ? "/udp/ipv4" : "/udp/ipv6");
  for (const std::vector<Question>& questions : {ServiceQuestions(family), UserQuestions(family),
                                                 LabelQuestions(family), MartianQuestions()}) {
    for (const Question& question : questions) {
      if (question.probe.name == full) return question;
    }
  }
  ADD_FAILURE() << "no question " << full;
  return {};
}

struct FactRow {
  const char* name;
  IpFamily family;
  std::vector<Act> acts;
  const char* question;
  Outcome expected;
  // Part of the reason; empty: it is what a sound node does.
  const char* because;
};

constexpr IpFamily kV4 = IpFamily::kIpv4;
constexpr IpFamily kV6 = IpFamily::kIpv6;
constexpr char kRefused[] = "load-balancer-refused";
constexpr char kRouted[] = "load-balancer-routed-refused";
constexpr char kLocal[] = "node-port-local-elsewhere";
constexpr char kWeb[] = "cluster-ip-from-client";

FactRow Fact(const char* name, IpFamily family, std::vector<Act> acts, const char* question,
             Outcome expected, const char* because = "") {
  return {name, family, std::move(acts), question, expected, because};
}

const FactRow kFacts[] = {
    Fact("1.24 beside 1.24 drops", kV4, {Kubelet(24), Proxy(24)}, kRefused, Outcome::kDropped),
    Fact("1.24 beside 1.24 drops IPv6 too", kV6, {Kubelet(24), Proxy(24)}, kLocal,
         Outcome::kDropped),
    Fact("1.24 does not drop what is forwarded", kV4, {Kubelet(24), Proxy(24)}, kRouted,
         Outcome::kForwarded, "INPUT and OUTPUT"),
    Fact("1.25 does", kV4, {Kubelet(25), Proxy(25)}, kRouted, Outcome::kDropped),
    Fact("A fresh 1.27 beside 1.24 fails open", kV4, {Kubelet(27), Proxy(24)}, kRefused,
         Outcome::kReachedHost, "which only kubelet fills"),
    Fact("Residue hides that", kV4, {Kubelet(24), Proxy(24), Kubelet(27)}, kRefused,
         Outcome::kDropped),
    Fact("Until all is flushed", kV4,
         {Kubelet(24), Proxy(24), Kubelet(27), Flushed, Kubelet(27), Proxy(24)}, kRefused,
         Outcome::kReachedHost, "which only kubelet fills"),
    Fact("1.25 with the gate off forgets the jumps of IPv6", kV6, {Kubelet(25), Proxy(24)}, kLocal,
         Outcome::kReachedHost, "IPv4 alone"),
    Fact("The agent does not", kV6, {Agent(25), Proxy(24)}, kLocal, Outcome::kDropped),
    Fact("kube-proxy 1.27 makes them", kV6, {Kubelet(25), Proxy(27), Users()}, "user-of-mark-drop",
         Outcome::kDropped),
    Fact("kube-proxy 1.27 wipes the drop of a gate-off kubelet", kV4,
         {Kubelet(26), Users(), Proxy(27)}, "user-of-mark-drop", Outcome::kReachedHost,
         "flushes that chain"),
    Fact("The agent puts it back", kV4, {Agent(26), Users(), Proxy(27), Agent(26)},
         "user-of-mark-drop", Outcome::kDropped),
    Fact("kube-proxy 1.19 needs kubelet's chain", kV4, {Kubelet(27), Proxy(19)}, kWeb,
         Outcome::kForwarded, "#80462"),
    Fact("kube-proxy 1.20 makes it", kV4, {Kubelet(27), Proxy(20)}, kWeb,
         Outcome::kServedMasqueraded),
    Fact("Its filter part stands", kV4, {Kubelet(27), Proxy(19)}, "no-endpoints",
         Outcome::kRejected),
    Fact("kubelet 1.19 writes no IPv6", kV6, {Kubelet(19), Proxy(19)}, kWeb, Outcome::kForwarded,
         "#80462"),
    Fact("Martians pass beside kubelet 1.17", kV4, {Kubelet(17), Proxy(17)}, "martian",
         Outcome::kReachedHost, "CVE-2020-8558"),
    Fact("kube-proxy 1.27 drops them by itself", kV4, {Proxy(27)}, "martian", Outcome::kDropped),
    Fact("The kernel does, before kube-proxy has come", kV4, {}, "martian", Outcome::kLost),
    Fact("internalTrafficPolicy before 1.22", kV4, {Kubelet(20), Proxy(20)},
         "internal-local-elsewhere", Outcome::kServed, "from 1.22 on"),
    Fact("The agent keeps what kube-proxy 1.24 uses", kV4,
         {Agent(24), Proxy(24), Agent(27), Retire(27)}, kRefused, Outcome::kDropped),
    Fact("And what a third party uses", kV4, {Agent(24), Proxy(25), Users(), Agent(27), Retire(27)},
         "user-of-mark-drop", Outcome::kDropped),
    Fact("A third party finds no KUBE-MARK-DROP beside 1.27", kV4,
         {Kubelet(27), Proxy(27), Users()}, "user-of-mark-drop", Outcome::kReachedHost, "refuses"),
    Fact("But KUBE-MARK-MASQ, which is kube-proxy's", kV4, {Kubelet(27), Proxy(27), Users()},
         "user-of-mark-masq", Outcome::kServedMasqueraded),
    Fact("What kube-proxy 1.25 left behind still drops", kV4, {Kubelet(27), Proxy(25), Proxy(24)},
         kRouted, Outcome::kDropped),
    Fact("A refused rollback leaves nat as it was", kV6, {Kubelet(27), Proxy(27), Proxy(17)},
         kLocal, Outcome::kReachedHost, "the older nat rules were refused"),
    Fact("Services that appear beside a nat that is refused are not served", kV6,
         {Kubelet(27), IdleProxy(19), Proxy(19)}, kWeb, Outcome::kForwarded, "#80462"),
    Fact("What nobody labels is served", kV4, {Agent(27), Proxy(27), AgentLabels},
         "label-drop-forwarded", Outcome::kServed),
    Fact("What is labelled is dropped, forwarded too", kV4,
         {Agent(27), Proxy(27), AgentLabels, LabelUser()}, "label-drop-forwarded",
         Outcome::kDropped),
    Fact("And to the node, in IPv6", kV6, {Agent(24), Proxy(24), AgentLabels, LabelUser()},
         "label-drop-to-node", Outcome::kDropped),
    Fact("Or masqueraded", kV6, {Agent(27), Proxy(27), AgentLabels, LabelUser()},
         "label-masq-between-pods", Outcome::kServedMasqueraded),
    Fact("Who uses the chains of labels keeps them", kV4,
         {Agent(27), Proxy(27), AgentLabels, LabelUser(), AgentRetiresLabels}, "label-drop-to-node",
         Outcome::kDropped),
    Fact("Who has left finds them gone", kV4,
         {Agent(27), Proxy(27), AgentLabels, LabelUser(), LabelUserLeaves, AgentRetiresLabels,
          LabelUser()},
         "label-drop-to-node", Outcome::kReachedHost),
    Fact("A label is nothing to a mark", kV4, {Agent(27), Proxy(24), AgentLabels, LabelUser()},
         kRefused, Outcome::kReachedHost, "which only kubelet fills"),
    Fact("nftables mode serves", kV4, {Kubelet(31), NftablesProxy(31)}, kWeb,
         Outcome::kServedMasqueraded),
    Fact("and refuses", kV6, {Kubelet(31), NftablesProxy(31)}, kRouted, Outcome::kDropped),
    Fact("not at localhost, which no version says it does", kV4, {Kubelet(31), NftablesProxy(31)},
         "localhost-node-port", Outcome::kReachedHost),
    Fact("after a flush of iptables too", kV4, {Kubelet(31), NftablesProxy(31), Flushed}, kRefused,
         Outcome::kDropped),
    Fact("it replaces iptables mode", kV4, {Kubelet(31), Proxy(31), NftablesProxy(31)}, kLocal,
         Outcome::kDropped),
    Fact("and masquerades what a chain that is used marks", kV4,
         {Kubelet(34), Proxy(34), Users(), NftablesProxy(34)}, "user-of-mark-masq",
         Outcome::kServedMasqueraded),
    Fact(
        "iptables mode replaces it", kV4,
        {Kubelet(31), NftablesProxy(31), [](FamilyFacts& facts) { ProxyStarts({{1, 31}}, facts); }},
        kWeb, Outcome::kForwarded, "kube-proxy's nat rules are missing"),
    Fact("--cleanup ends all services", kV4, {Kubelet(31), Proxy(31), Cleanup(31)}, kWeb,
         Outcome::kForwarded, "--cleanup has removed"),
    Fact("of nftables mode too", kV4, {Kubelet(36), NftablesProxy(36), Cleanup(36)}, kRefused,
         Outcome::kReachedHost, "--cleanup has removed"),
    Fact("and the masquerade that kubelet shares", kV4,
         {Kubelet(26), Proxy(31), Users(), Cleanup(31)}, "user-of-mark-masq", Outcome::kServed,
         "shares with it"),
    Fact("which the agent puts back", kV4, {Agent(26), Proxy(31), Users(), Cleanup(31), Agent(26)},
         "user-of-mark-masq", Outcome::kServedMasqueraded),
    Fact("not the martian rule", kV4, {Kubelet(31), Proxy(31), Cleanup(31)}, "martian",
         Outcome::kDropped),
    Fact("Nothing is left after a flush", kV4, {Kubelet(24), Proxy(24), Flushed}, kRefused,
         Outcome::kReachedHost, "kube-proxy's nat rules are missing"),
};

TEST(NodeFactsTest, SayWhatBecomesOfAPacketAndWhy) {
  for (const FactRow& row : kFacts) {
    SCOPED_TRACE(row.name);
    FamilyFacts facts;
    facts.family = row.family;
    for (const Act& act : row.acts) act(facts);
    const Expectation expectation = Expect(facts, Named(row.question, row.family));
    EXPECT_EQ(expectation.expected, row.expected)
        << NameOf(expectation.expected) << ": " << expectation.because;
    EXPECT_EQ(expectation.because.empty(), *row.because == '\0');
    EXPECT_THAT(expectation.because, HasSubstr(row.because));
  }
}

TEST(NodeFactsTest, LeaveNothingToRetireBesideAKubeletThatKeepsItsChains) {
  FamilyFacts facts;
  AgentSyncs({{1, 26}, {}}, facts);
  AgentRetires({{1, 26}, {}}, facts);
  EXPECT_TRUE(facts.mark_drop_sets && facts.drop_rule && facts.firewall_jumps);
  AgentSyncs({{1, 27}, {}}, facts);
  AgentRetires({{1, 27}, {}}, facts);
  EXPECT_FALSE(facts.mark_drop_exists);
  EXPECT_FALSE(facts.drop_rule);
}

// What the table "Version skew" of deploy/upgrades.md has for a pair.
std::string SkewOf(const KubeletVersion& kubelet, int proxy) {
  const auto lets_through = [&](IpFamily family) {
    FamilyFacts facts;
    facts.family = family;
    KubeletSyncs(kubelet, facts);
    ProxySyncsFully({{1, proxy}}, true, facts);
    return Expect(facts, Named(kRefused, family)).expected != Outcome::kDropped;
  };
  if (lets_through(kV4)) return "D";
  if (lets_through(kV6)) return "6";
  return IsAllowed(kubelet.version, {1, proxy}) ? "ok" : "u";
}

TEST(UpgradesDocumentTest, SaysOfEachPairWhatTheFactsSay) {
  std::ifstream file(KIPT_TESTS_DIR "/../deploy/upgrades.md");
  // The versions of each column; the first names kubelet's.
  std::vector<std::string> columns;
  int compared = 0;
  for (std::string line; std::getline(file, line);) {
    const bool heads = absl::StartsWith(line, "| kubelet, or ");
    if (!heads && columns.empty()) continue;
    if (line.empty()) break;
    const std::vector<std::string> cells = absl::StrSplit(
        absl::StrReplaceAll(line, {{"*", ""}, {"1.", ""}, {"kube-proxy ", ""}}), " | ");
    if (heads) columns = cells;
    int kubelet = 0;
    if (!absl::SimpleAtoi(cells[0].substr(2, 2), &kubelet)) continue;
    std::optional<bool> gate;
    if (absl::StrContains(cells[0], "gate")) gate = absl::StrContains(cells[0], "gate on");
    for (size_t i = 1; i < cells.size(); ++i) {
      for (const absl::string_view proxy : absl::StrSplit(columns[i], ", ")) {
        int minor = 0;
        ASSERT_TRUE(absl::SimpleAtoi(proxy.substr(0, 2), &minor)) << proxy;
        const std::string written = cells[i].substr(0, cells[i].find(' '));
        EXPECT_EQ(written, SkewOf({{1, kubelet}, gate}, minor)) << line << " " << proxy;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 110);
}

TEST(BadnessTest, HoldsWhatIsLetThroughForWorst) {
  EXPECT_EQ(Badness(Outcome::kDropped, Outcome::kDropped), 0);
  EXPECT_LT(Badness(Outcome::kDropped, Outcome::kRejected),
            Badness(Outcome::kDropped, Outcome::kReachedHost));
  EXPECT_LT(Badness(Outcome::kServed, Outcome::kServedMasqueraded),
            Badness(Outcome::kServed, Outcome::kLost));
  EXPECT_LT(Badness(Outcome::kServed, Outcome::kLost),
            Badness(Outcome::kDropped, Outcome::kForwarded));
}

}  // namespace
}  // namespace kipt::skew
