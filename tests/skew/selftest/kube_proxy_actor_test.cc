// SPDX-License-Identifier: Apache-2.0
//
// How a kube-proxy behaves in time, against what was captured of real ones.

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/selftest/actor_fixture.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

constexpr char kCanary[] = "KUBE-PROXY-CANARY";

class KubeProxyActorTest : public ActorTest {
 protected:
  static std::unique_ptr<ServiceProxy> Start(int minor, ProxyMode mode) {
    std::unique_ptr<ServiceProxy> proxy = NewKubeProxy(As(minor, mode));
    EXPECT_TRUE(Went(proxy->Start(ServicesOf(Fixture::kA), {})));
    return proxy;
  }
  static std::string Tables() { return testing::RunProgram({kNft, "list", "tables"}).out; }
  static std::string Chain(const std::string& name) {
    return testing::RunProgram({kNft, "list", "chain", "ip", "kube-proxy", name}).out;
  }
  static std::vector<std::string> Lines(const testing::Iptables& iptables) {
    return ComparableLines(iptables.Save().out);
  }
  // Jumps that were put back come before those that stayed.
  static std::vector<std::string> InAnyOrder(const testing::Iptables& iptables) {
    std::vector<std::string> lines = Lines(iptables);
    std::sort(lines.begin(), lines.end());
    return lines;
  }
};

TEST_P(KubeProxyActorTest, PartialSyncsRestoreNeitherJumpsNorUnchangedServiceChains) {
  const std::vector<ServicePort> services = ServicesOf(Fixture::kA);
  const std::vector<ServicePort> first = {services[0]};
  const std::unique_ptr<ServiceProxy> proxy = NewKubeProxy(As(28));
  EXPECT_TRUE(Went(proxy->Start(first, {})));
  const std::string chain = ServiceChain("KUBE-SVC-", services[0]);
  Run(V4(), {"-D", "INPUT", "-j", "KUBE-FIREWALL"});
  Run(V4(), {"-t", "nat", "-F", "POSTROUTING"});
  Run(V4(), {"-t", "nat", "-F", chain});
  EXPECT_TRUE(Went(proxy->Sync(first, {})));
  EXPECT_TRUE(Went(proxy->Sync({services[0], services[2]}, {})));
  EXPECT_THAT(RulesIn(V4(), "filter", "INPUT"), Not(Contains(HasSubstr("KUBE-FIREWALL"))));
  EXPECT_THAT(RulesIn(V4(), "nat", "POSTROUTING"), IsEmpty());
  EXPECT_THAT(RulesIn(V4(), "nat", chain), IsEmpty());
  EXPECT_THAT(RulesIn(V4(), "nat", ServiceChain("KUBE-SVC-", services[2])), Not(IsEmpty()));
}

// The steps `first` of the captures: every chain and jump, before the restore.
TEST_P(KubeProxyActorTest, ItsCallsInAnEmptyNamespaceAreTheRealOnes) {
  const auto without_canaries = [](std::vector<std::string> calls) {
    std::erase_if(calls, [](const std::string& call) { return absl::StrContains(call, kCanary); });
    return calls;
  };
  for (const int minor : {33, 34}) {
    const Act act = NewKubeProxy(As(minor))->Start({}, {});
    const std::vector<std::string> captured = CapturedCalls(
        absl::StrCat("kube_proxy/testdata/kube-proxy-1.", minor, "-A.commands"), "first");
    for (const char* program : {"iptables", "ip6tables"}) {
      const std::vector<std::string> theirs = without_canaries(CallsIn(captured, program));
      EXPECT_THAT(theirs, SizeIs(Gt(40U)));
      EXPECT_EQ(without_canaries(CallsIn(act.calls, program)), theirs) << minor;
    }
    EXPECT_TRUE(Went(Flush(Choice())));
  }
}

TEST_P(KubeProxyActorTest, IpvsModeWritesItsChainsAndAllOfThemAgainInEachPeriod) {
  for (const int minor : {20, 24, 25, 31}) {
    const std::unique_ptr<ServiceProxy> proxy = NewKubeProxy(As(minor, ProxyMode::kIpvs));
    EXPECT_TRUE(Went(proxy->Start({}, {})));
    const testing::SavedRules before = Saved(V4());
    const testing::SavedRules before_v6 = Saved(V6());
    EXPECT_TRUE(before.HasChain("nat", "KUBE-SERVICES"));
    EXPECT_FALSE(before.HasChain("mangle", kCanary));
    EXPECT_EQ(before.HasChain("nat", "KUBE-MARK-DROP"), minor <= 24);
    EXPECT_TRUE(Went(Flush(Choice(), {"filter"})));
    EXPECT_TRUE(Went(proxy->Tick()));
    EXPECT_EQ(Saved(V4()), before) << minor;
    EXPECT_EQ(Saved(V6()), before_v6) << minor;
    EXPECT_TRUE(Went(Flush(Choice())));
  }
}

TEST_P(KubeProxyActorTest, NftablesModeRemovesWhatIptablesModeLeftAndTheOtherWayRound) {
  for (const int minor : {31, 36}) {
    SCOPED_TRACE(minor);
    StartKubelet(minor);
    const std::unique_ptr<ServiceProxy> first = Start(minor, ProxyMode::kIptables);
    const std::vector<std::string> v4 = InAnyOrder(V4());
    const std::vector<std::string> v6 = InAnyOrder(V6());
    EXPECT_THAT(Tables(), Not(HasSubstr("kube-proxy")));

    const std::unique_ptr<ServiceProxy> second = Start(minor, ProxyMode::kNftables);
    EXPECT_THAT(Tables(), HasSubstr("table ip kube-proxy\n"));
    EXPECT_THAT(Tables(), HasSubstr("table ip6 kube-proxy\n"));
    if (GetParam() == IptablesMode::kNft) {
      const std::string label = minor >= 34 ? "1.34-A-" : "1.31-A-";
      EXPECT_EQ(Lines(V4()), ComparableLines(ReadOwnCapture(label + "v4.cleanup.save")));
      EXPECT_EQ(Lines(V6()), ComparableLines(ReadOwnCapture(label + "v6.cleanup.save")));
    }
    const std::unique_ptr<ServiceProxy> third = Start(minor, ProxyMode::kIptables);
    EXPECT_THAT(Tables(), Not(HasSubstr("kube-proxy")));
    EXPECT_EQ(InAnyOrder(V4()), v4);
    EXPECT_EQ(InAnyOrder(V6()), v6);
    EXPECT_TRUE(Went(Flush(Choice())));
  }
}

TEST_P(KubeProxyActorTest, NftablesModeWritesNothingToIptablesAndOnlyChangesLater) {
  for (const int minor : {31, 36}) {
    const std::unique_ptr<ServiceProxy> proxy = Start(minor, ProxyMode::kNftables);
    std::vector<ServicePort> services = ServicesOf(Fixture::kA);
    const Act same = proxy->Sync(services, {});
    EXPECT_THAT(same.done.front(), HasSubstr("partial sync: nft -f with 0 lines"));
    services[0].endpoints.pop_back();
    EXPECT_TRUE(Went(proxy->Sync(services, {})));
    EXPECT_THAT(Chain("service-ULMVA6XW-ns1/svc1/tcp/p80"), HasSubstr("mod 1 "));
    EXPECT_THAT(V4().Save().out, Not(HasSubstr("KUBE-")));
    std::ifstream route_localnet("/proc/sys/net/ipv4/conf/all/route_localnet");
    EXPECT_EQ(static_cast<char>(route_localnet.get()), '0');
    RemoveNftablesTables();
    const Act failed = proxy->Sync(ServicesOf(Fixture::kA), {});
    EXPECT_FALSE(failed.ok);
    EXPECT_THAT(failed.error, HasSubstr("nft -f: exit code 1"));
    EXPECT_TRUE(Went(proxy->Tick())) << "the retry is a full sync";
    EXPECT_THAT(Chain("service-ULMVA6XW-ns1/svc1/tcp/p80"), HasSubstr("mod 2 "));
    RemoveNftablesTables();
  }
}

// KubeProxyLeftOver: each remedy, and the one that the audit warns of, next to a running
// kube-proxy.
TEST_P(KubeProxyActorTest, TheAuditsRemedyForLeftoversKeepsTheLiveTables) {
  const auto audit = [] {
    return testing::RunProgram({AgentProgram(), "audit", "--before=kube-proxy-ipvs-removal"}).out +
           testing::RunProgram({AgentProgram(), "audit"}).out;
  };
  const std::unique_ptr<ServiceProxy> first = Start(36, ProxyMode::kIptables);
  ASSERT_TRUE(Went(AddUserOfMarkMasq(Choice(), 9101)));
  const std::unique_ptr<ServiceProxy> live = NewKubeProxy(As(36, ProxyMode::kNftables));
  EXPECT_FALSE(live->Start(ServicesOf(Fixture::kA), {}).ok) << "the foreign jump keeps table nat";
  EXPECT_THAT(audit(),
              AllOf(HasSubstr("KubeProxyLeftOver"), HasSubstr("the table ip kube-proxy\n"),
                    HasSubstr("the table ip6 kube-proxy\n"), HasSubstr("restart kube-proxy"),
                    HasSubstr("Do not run kube-proxy --cleanup")));

  EXPECT_FALSE(CleanUpKubeProxy(As(36, ProxyMode::kNftables)).ok);
  EXPECT_TRUE(Saved(V4()).HasChain("nat", "KUBE-SERVICES")) << "it leaves what it was run for,";
  EXPECT_THAT(Tables(), Not(HasSubstr("kube-proxy"))) << "and deletes what is in use";

  ASSERT_EQ(V4().Run({"-t", "nat", "-F", "USER-MASQ"}).exit_code, 0);
  V6().Run({"-t", "nat", "-F", "USER-MASQ"});
  const std::unique_ptr<ServiceProxy> restarted = Start(36, ProxyMode::kNftables);
  EXPECT_FALSE(Saved(V4()).HasChain("nat", "KUBE-SERVICES"));
  EXPECT_THAT(Tables(), HasSubstr("table ip kube-proxy\n"));
  EXPECT_THAT(audit(), Not(HasSubstr("KubeProxyLeftOver")));
}

INSTANTIATE_TEST_SUITE_P(Modes, KubeProxyActorTest, ::testing::ValuesIn(testing::kBothModes),
                         ModeName);

}  // namespace
}  // namespace kipt::skew
