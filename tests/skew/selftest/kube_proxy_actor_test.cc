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
constexpr char kMartian[] = "block incoming localnet connections";
constexpr char kMarkDropRule[] = "kubernetes firewall for dropping marked packets";

ServicePort Plain(const std::string& service, const std::string& address) {
  return {.service = service,
          .port_name = "p80",
          .cluster_ip = address,
          .port = 80,
          .endpoints = {{.address = "10.180.0.1", .port = 80, .local = true}}};
}

// Up to 1.24 it needs KUBE-MARK-DROP: no endpoint is on this node.
ServicePort Dropping() {
  return {.service = "ns2/svc2",
          .port_name = "p80",
          .cluster_ip = "172.30.0.42",
          .port = 80,
          .node_port = 30001,
          .external_local = true,
          .endpoints = {{.address = "10.180.1.1", .port = 80}}};
}

const ServicePort kFirst = Plain("ns1/svc1", "172.30.0.41");
const ServicePort kAnother = Plain("ns4/svc4", "172.30.0.44");

class KubeProxyActorTest : public ActorTest {
 protected:
  static std::unique_ptr<ServiceProxy> New(int minor) { return NewKubeProxy(As(minor)); }
  static std::unique_ptr<ServiceProxy> Started(int minor,
                                               const std::vector<ServicePort>& services = {
                                                   kFirst}) {
    std::unique_ptr<ServiceProxy> proxy = New(minor);
    EXPECT_TRUE(Went(proxy->Start(services, {})));
    return proxy;
  }

  static bool Stands(const std::string& table, const std::string& chain) {
    return Saved(V4()).HasChain(table, chain);
  }
  static std::vector<std::string> Firewall(const testing::Iptables& iptables) {
    return RulesIn(iptables, "filter", "KUBE-FIREWALL");
  }
  static std::vector<std::string> JumpsFrom(const std::string& table, const std::string& chain) {
    return RulesIn(V4(), table, chain);
  }
  static char RouteLocalnet() {
    std::ifstream file("/proc/sys/net/ipv4/conf/all/route_localnet");
    return static_cast<char>(file.get());
  }
};

TEST_P(KubeProxyActorTest, WritesBothFamiliesAndItsCanaries) {
  const std::unique_ptr<ServiceProxy> proxy = New(28);
  EXPECT_TRUE(Went(proxy->Start({kFirst, Dropping()}, {})));
  for (const testing::Iptables& iptables : {V4(), V6()}) {
    const testing::SavedRules saved = Saved(iptables);
    for (const char* table : {"mangle", "nat", "filter"}) {
      EXPECT_TRUE(saved.HasChain(table, kCanary)) << table;
    }
    EXPECT_TRUE(saved.HasChain("nat", "KUBE-SERVICES"));
  }
  EXPECT_TRUE(Stands("nat", ServiceChain("KUBE-SVC-", kFirst)));
  EXPECT_EQ(RouteLocalnet(), '1');
  EXPECT_TRUE(Went(proxy->Tick()));
}

TEST_P(KubeProxyActorTest, Until1_19WithoutKubeMarkDropOnlyTheFilterTableIsApplied) {
  for (const int minor : {17, 19}) {
    const std::unique_ptr<ServiceProxy> proxy = New(minor);
    const Act started = proxy->Start({kFirst, Dropping()}, {});
    EXPECT_FALSE(started.ok);
    EXPECT_THAT(
        started.error,
        AllOf(HasSubstr("ipv4: failed to execute iptables-restore: exit code 2"),
              HasSubstr(GetParam() == IptablesMode::kNft ? "Chain 'KUBE-MARK-DROP' does not exist"
                                                         : "Couldn't load target `KUBE-MARK-DROP'"),
              Not(HasSubstr("ipv6"))));
    EXPECT_THAT(RulesIn(V4(), "filter", "KUBE-FORWARD"), Not(IsEmpty()));
    EXPECT_FALSE(Stands("nat", ServiceChain("KUBE-SVC-", kFirst)));
    EXPECT_THAT(RulesIn(V4(), "nat", "KUBE-SERVICES"), IsEmpty());
    EXPECT_THAT(JumpsFrom("nat", "PREROUTING"), SizeIs(1));
    EXPECT_FALSE(proxy->Tick().ok) << "it tries again, once per sync period";
    Run(V4(), {"-t", "nat", "-N", "KUBE-MARK-DROP"});
    EXPECT_TRUE(Went(proxy->Tick())) << "the empty chain heals it";
    EXPECT_TRUE(Stands("nat", ServiceChain("KUBE-SVC-", kFirst)));
    EXPECT_THAT(proxy->Tick().done, IsEmpty());
    EXPECT_TRUE(Went(FlushEverything(Choice())));
  }
}

TEST_P(KubeProxyActorTest, Until1_19ItDoesWithoutWhereNoServiceNeedsIt) { Started(17); }

TEST_P(KubeProxyActorTest, From1_20To1_24ItMakesKubeMarkDropAndLeavesItAsItIs) {
  for (const int minor : {20, 24}) {
    const std::unique_ptr<ServiceProxy> proxy = Started(minor, {kFirst, Dropping()});
    EXPECT_TRUE(Stands("nat", "KUBE-MARK-DROP"));
    EXPECT_THAT(RulesIn(V4(), "nat", "KUBE-MARK-DROP"), IsEmpty());
    EXPECT_TRUE(Saved(V6()).HasChain("nat", "KUBE-MARK-DROP"));
    EXPECT_FALSE(Stands("filter", "KUBE-FIREWALL"));
    Run(V4(), {"-t", "nat", "-A", "KUBE-MARK-DROP", "-j", "MARK", "--or-mark", "0x8000"});
    EXPECT_TRUE(Went(proxy->Sync({kFirst, Dropping()}, {})));
    EXPECT_THAT(RulesIn(V4(), "nat", "KUBE-MARK-DROP"), SizeIs(1));
    EXPECT_TRUE(Went(FlushEverything(Choice())));
  }
  Started(25, {kFirst, Dropping()});
  EXPECT_FALSE(Stands("nat", "KUBE-MARK-DROP"));
}

TEST_P(KubeProxyActorTest, From1_27EverySyncWipesTheMarkDropRuleOfIpv4AndLeavesThatOfIpv6) {
  StartKubelet(26);
  EXPECT_THAT(Firewall(V4()), Contains(HasSubstr(kMarkDropRule)));
  EXPECT_THAT(RulesIn(V6(), "filter", "INPUT"), IsEmpty()) << "kubelet 1.25 to 1.27 forgets it";
  const std::unique_ptr<ServiceProxy> proxy = Started(27);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Firewall(V4()), ElementsAre(HasSubstr(kMartian)));
    EXPECT_THAT(Firewall(V6()), Contains(HasSubstr(kMarkDropRule)));
    EXPECT_THAT(RulesIn(V6(), "filter", "INPUT"), Contains(HasSubstr("-j KUBE-FIREWALL")));
    StartKubelet(26);
    EXPECT_THAT(Firewall(V4()), ElementsAre(HasSubstr(kMartian), HasSubstr(kMarkDropRule)));
    EXPECT_TRUE(Went(proxy->Sync({kFirst}, {}))) << "with nothing new";
  }
}

TEST_P(KubeProxyActorTest, From1_27ItRemovesForeignRulesOfKubeFirewall) {
  for (const int minor : {26, 27}) {
    StartKubelet(26);
    Run(V4(), {"-I", "KUBE-FIREWALL", "-s", "192.0.2.1", "-j", "DROP"});
    Started(minor);
    EXPECT_THAT(Firewall(V4()), SizeIs(minor == 27 ? 1 : 3)) << minor;
    EXPECT_TRUE(Went(FlushEverything(Choice())));
  }
}

TEST_P(KubeProxyActorTest, EverySyncRemovesForeignRulesFromTheMasqueradeChains) {
  for (const int minor : {24, 28}) {
    const std::unique_ptr<ServiceProxy> proxy = Started(minor);
    const testing::SavedRules before = Saved(V4());
    for (const char* chain : {"KUBE-MARK-MASQ", "KUBE-POSTROUTING"}) {
      Run(V4(), {"-t", "nat", "-A", chain, "-j", "MARK", "--or-mark", "0x2000"});
    }
    EXPECT_TRUE(Went(proxy->Sync({kFirst}, {})));
    EXPECT_EQ(Saved(V4()), before) << minor;
    EXPECT_TRUE(Went(FlushEverything(Choice())));
  }
}

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

TEST_P(KubeProxyActorTest, Until1_26EverySyncRestoresEverything) {
  const std::unique_ptr<ServiceProxy> proxy = Started(26);
  const testing::SavedRules before = Saved(V4());
  for (const char* table : {"filter", "nat"}) {
    EXPECT_TRUE(Went(FlushTable(Choice(), table)));
    EXPECT_THAT(proxy->Tick().done, IsEmpty()) << "the canary in mangle stands";
  }
  EXPECT_TRUE(Went(proxy->Sync({kFirst}, {})));
  const testing::SavedRules after = Saved(V4());
  EXPECT_THAT(before.LinesMissingIn(after), ElementsAre(HasSubstr(kCanary), HasSubstr(kCanary)));
  EXPECT_THAT(after.LinesMissingIn(before), IsEmpty());
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

TEST_P(KubeProxyActorTest, From1_27LosingFilterLosesItsJumps) {
  const std::unique_ptr<ServiceProxy> proxy = Started(28);
  EXPECT_TRUE(Went(FlushTable(Choice(), "filter")));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Went(proxy->Sync({kFirst}, {})));
  EXPECT_THAT(RulesIn(V4(), "filter", "KUBE-FORWARD"), Not(IsEmpty()));
  for (const char* chain : {"INPUT", "FORWARD", "OUTPUT"}) {
    EXPECT_THAT(JumpsFrom("filter", chain), IsEmpty()) << chain;
  }
}

TEST_P(KubeProxyActorTest, From1_31ItMakesTheCountersAndCountsByThem) {
  const std::unique_ptr<ServiceProxy> proxy = Started(36, {kFirst, Dropping()});
  const testing::SavedRules full = Saved(V4());
  EXPECT_THAT(full.Rules("filter", "KUBE-FORWARD"),
              Contains(HasSubstr("ct_state_invalid_dropped_pkts")));
  EXPECT_TRUE(Went(proxy->Sync({kFirst, Dropping()}, {})));
  EXPECT_EQ(Saved(V4()), full) << "a partial sync names them too";
}

TEST_P(KubeProxyActorTest, ItsCallsHaveTheWaitFlagsOfTheirVersion) {
  for (const int minor : {17, 31, 33, 34, 36}) {
    const Act act = New(minor)->Start({kFirst}, {});
    EXPECT_THAT(act.calls, Not(IsEmpty()));
    for (const std::string& call : act.calls) {
      EXPECT_THAT(call, HasSubstr(" -w 5 "));
      EXPECT_EQ(absl::StrContains(call, " -W 100000 "), minor > 17 && minor < 34) << call;
    }
  }
}

// The steps `first` of the captures: every chain and jump, before the restore.
TEST_P(KubeProxyActorTest, ItsCallsInAnEmptyNamespaceAreTheRealOnes) {
  for (const int minor : {33, 34}) {
    const Act act = New(minor)->Start({}, {});
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

TEST_P(KubeProxyActorTest, AFailedJumpEndsTheSync) {
  ProxyActorSettings settings = As(28);
  settings.iptables.chroot_dir = "/nonexistent";
  const std::unique_ptr<ServiceProxy> proxy = NewKubeProxy(settings);
  const Act started = proxy->Start({kFirst}, {});
  EXPECT_FALSE(started.ok);
  EXPECT_THAT(started.error, AllOf(HasSubstr("failed to ensure chain or jump"),
                                   Not(HasSubstr("iptables-restore"))));
  EXPECT_FALSE(proxy->Tick().ok);
}

TEST_P(KubeProxyActorTest, IpvsModeWritesItsChainsAndAllOfThemAgainInEachPeriod) {
  for (const int minor : {20, 24, 25, 31}) {
    const std::unique_ptr<ServiceProxy> proxy = NewKubeProxy(As(minor, ProxyMode::kIpvs));
    EXPECT_TRUE(Went(proxy->Start({}, {})));
    EXPECT_EQ(RouteLocalnet(), '1') << "from 1.20 on";
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
