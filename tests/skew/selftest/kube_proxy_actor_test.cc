// SPDX-License-Identifier: Apache-2.0
//
// How a kube-proxy behaves in time, against what was captured of real ones.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/selftest/actor_fixture.h"
#include "tests/support/lock_holder.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

using ::testing::Gt;

constexpr char kCanary[] = "KUBE-PROXY-CANARY";
ServicePort Plain(const std::string& service, const std::string& address) {
  return {.service = service,
          .port_name = "p80",
          .cluster_ip = address,
          .port = 80,
          .endpoints = {{.address = "10.180.0.1", .port = 80, .local = true}}};
}

const ServicePort kFirst = Plain("ns1/svc1", "172.30.0.41");
const ServicePort kAnother = Plain("ns4/svc4", "172.30.0.44");

class KubeProxyActorTest : public ActorTest {
 protected:
  static std::unique_ptr<ServiceProxy> Started(int minor) {
    std::unique_ptr<ServiceProxy> proxy = NewKubeProxy(As(minor));
    EXPECT_TRUE(Went(proxy->Start({kFirst}, {})));
    return proxy;
  }

  static bool Stands(const std::string& table, const std::string& chain) {
    return Saved(V4()).HasChain(table, chain);
  }
  static std::vector<std::string> JumpsFrom(const std::string& table, const std::string& chain) {
    return RulesIn(V4(), table, chain);
  }
};

TEST_P(KubeProxyActorTest, PartialSyncsRestoreNeitherJumpsNorUnchangedServiceChains) {
  const std::unique_ptr<ServiceProxy> proxy = Started(28);
  const std::string chain = ServiceChain("KUBE-SVC-", kFirst);
  const testing::SavedRules before = Saved(V4());
  Run(V4(), {"-D", "INPUT", "-j", "KUBE-FIREWALL"});
  Run(V4(), {"-t", "nat", "-F", "POSTROUTING"});
  Run(V4(), {"-t", "nat", "-F", chain});
  EXPECT_TRUE(Went(proxy->Sync({kFirst}, {})));
  EXPECT_TRUE(Went(proxy->Sync({kFirst, kAnother}, {})));
  EXPECT_THAT(JumpsFrom("filter", "INPUT"), Not(Contains(HasSubstr("KUBE-FIREWALL"))));
  EXPECT_THAT(JumpsFrom("nat", "POSTROUTING"), IsEmpty());
  EXPECT_THAT(RulesIn(V4(), "nat", chain), IsEmpty());
  EXPECT_THAT(RulesIn(V4(), "nat", ServiceChain("KUBE-SVC-", kAnother)), Not(IsEmpty()));
}

TEST_P(KubeProxyActorTest, From1_27LosingNatMakesTheNextSyncFailAndTheOneAfterThatAFullOne) {
  const std::unique_ptr<ServiceProxy> proxy = Started(28);
  Run(V4(), {"-D", "INPUT", "-j", "KUBE-FIREWALL"});
  EXPECT_TRUE(Went(FlushTable(Choice(), "nat")));
  EXPECT_THAT(proxy->Tick().done, IsEmpty());
  const Act synced = proxy->Sync({kFirst}, {});
  EXPECT_FALSE(synced.ok);
  EXPECT_THAT(synced.error, AllOf(HasSubstr("exit code"), HasSubstr("KUBE-SVC-")));
  EXPECT_FALSE(Stands("nat", ServiceChain("KUBE-SVC-", kFirst)));
  EXPECT_TRUE(Went(proxy->Tick()));
  EXPECT_TRUE(Stands("nat", ServiceChain("KUBE-SVC-", kFirst)));
  EXPECT_THAT(JumpsFrom("filter", "INPUT"), Contains(HasSubstr("KUBE-FIREWALL")));
  EXPECT_THAT(proxy->Tick().done, IsEmpty());
}

// The steps `first` of the captures: every chain and jump, before the restore.
TEST_P(KubeProxyActorTest, ItsCallsInAnEmptyNamespaceAreTheRealOnes) {
  for (const int minor : {33, 34}) {
    const Act act = NewKubeProxy(As(minor))->Start({}, {});
    std::ifstream file(absl::StrCat(KIPT_TESTS_DIR "/skew/kube_proxy/testdata/kube-proxy-1.", minor,
                                    "-A.commands"));
    std::vector<std::string> captured;
    for (std::string line; std::getline(file, line);) {
      absl::string_view call = line;
      if (absl::ConsumePrefix(&call, "first\t") && !absl::StrContains(call, "tables-save") &&
          !absl::StrContains(call, "tables-restore")) {
        captured.emplace_back(call);
      }
    }
    for (const char* program : {"\tiptables ", "\tip6tables "}) {
      std::vector<std::string> ours;
      std::vector<std::string> theirs;
      const auto of = [program](const std::string& call) {
        return absl::StrContains(call, program) && !absl::StrContains(call, kCanary);
      };
      std::copy_if(act.calls.begin(), act.calls.end(), std::back_inserter(ours), of);
      std::copy_if(captured.begin(), captured.end(), std::back_inserter(theirs), of);
      EXPECT_THAT(theirs, SizeIs(Gt(40U)));
      EXPECT_EQ(ours, theirs) << minor;
    }
    EXPECT_TRUE(Went(FlushEverything(Choice())));
  }
}

// legacy alone: iptables-nft takes no lock.
TEST_P(KubeProxyActorTest, From1_34ALockThatIsNotToBeHadIsALostCanary) {
  for (const int minor : {33, 34}) {
    const std::unique_ptr<ServiceProxy> proxy = Started(minor);
    Run(V4(), {"-t", "nat", "-F", "PREROUTING"});
    const testing::LockHolder holder("/run/xtables.lock", absl::Seconds(6));
    EXPECT_TRUE(Went(proxy->Tick()));
    const bool repairs = minor >= 34 && GetParam() == IptablesMode::kLegacy;
    EXPECT_THAT(JumpsFrom("nat", "PREROUTING"), SizeIs(repairs ? 1 : 0)) << minor;
    EXPECT_TRUE(Went(FlushEverything(Choice())));
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
    EXPECT_TRUE(Went(FlushTable(Choice(), "filter")));
    EXPECT_TRUE(Went(proxy->Tick()));
    EXPECT_EQ(Saved(V4()), before) << minor;
    EXPECT_EQ(Saved(V6()), before_v6) << minor;
    EXPECT_TRUE(Went(FlushEverything(Choice())));
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, KubeProxyActorTest, ::testing::ValuesIn(testing::kBothModes),
                         ModeName);

}  // namespace
}  // namespace kipt::skew
