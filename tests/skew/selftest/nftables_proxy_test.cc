// SPDX-License-Identifier: Apache-2.0
//
// kube-proxy's switch to nftables mode and back, next to kubelet.

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/selftest/actor_fixture.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

class NftablesProxyTest : public ActorTest {
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

TEST_P(NftablesProxyTest, RemovesWhatIptablesModeLeftAndTheOtherWayRound) {
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
    EXPECT_TRUE(Went(FlushEverything(Choice())));
  }
}

TEST_P(NftablesProxyTest, WritesNothingToIptablesAndOnlyChangesLater) {
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
TEST_P(NftablesProxyTest, TheAuditsRemedyForLeftoversKeepsTheLiveTables) {
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

INSTANTIATE_TEST_SUITE_P(Modes, NftablesProxyTest, ::testing::ValuesIn(testing::kBothModes),
                         ModeName);

}  // namespace
}  // namespace kipt::skew
