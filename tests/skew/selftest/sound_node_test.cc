// SPDX-License-Identifier: Apache-2.0
//
// Nodes on which everything works: every generation of kube-proxy with a kubelet that may run next
// to it, in either order. The agent changes nothing that kube-proxy writes, adds only what an older
// kubelet lacks, and reports nothing.

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/skew/selftest/actor_fixture.h"
#include "tests/skew/selftest/captured_fixtures.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

using Json = nlohmann::json;

struct SoundNode {
  KubeletVersion kubelet;
  ProxyVersion proxy;
  bool kubelet_first = false;
};

std::string NameOf(const SoundNode& node) {
  return absl::StrCat("kubelet ", ToString(node.kubelet), ", kube-proxy ", ToString(node.proxy),
                      node.kubelet_first ? ", kubelet first" : ", kube-proxy first");
}

// One for each generation of kube-proxy. With the gate off, the newest kubelet that can run next to
// it, and with the gate on the oldest: the others write the same. IPVS mode of up to 1.19 is left
// out, because it empties KUBE-MARK-DROP at each sync.
std::vector<SoundNode> SoundNodes(bool gate) {
  std::vector<SoundNode> nodes;
  for (const Version version : AllVersions()) {
    for (const ProxyMode mode : {ProxyMode::kIptables, ProxyMode::kIpvs, ProxyMode::kNftables}) {
      const ProxyVersion proxy = {version, mode};
      if (mode == ProxyMode::kNftables && !Does(version, Trait::kNftablesMode)) continue;
      if (mode == ProxyMode::kIpvs && Does(version, Trait::kIpvsEmptiesMarkDrop)) continue;
      if (GenerationOf(proxy) != proxy) continue;
      const int minor = gate ? std::max(version.minor, 25) : std::min(version.minor, 27);
      const bool settable = Does({1, minor}, Trait::kGateSettable);
      const KubeletVersion kubelet =
          KubeletOf(minor, settable ? std::optional<bool>(gate) : std::nullopt);
      if (!IsAllowed(kubelet.version, version)) continue;
      nodes.push_back({kubelet, proxy, true});
      nodes.push_back({kubelet, proxy, false});
    }
  }
  return nodes;
}

// Whether the agent adds this because a kubelet of this version does not write it.
bool KubeletLacks(Version kubelet, const Json& change) {
  const std::string chain = change["chain"];
  const bool six = change["family"] == "ip6";
  const bool jump = chain == "INPUT" || chain == "OUTPUT";
  if (absl::StartsWith(std::string(change["operation"]), "delete")) return false;
  if (chain == "KUBE-IPTABLES-HINT") return !Does(kubelet, Trait::kHint);
  if (change["table"] == "nat" && absl::StrContains(chain, "POSTROUTING")) return false;
  if (six && jump && Does(kubelet, Trait::kJumpsInIpv4Only)) return true;
  if (six) return !Does(kubelet, Trait::kKubeletIpv6);
  return chain == "KUBE-FIREWALL" && !Does(kubelet, Trait::kMartianRule);
}

class SoundNodeTest : public testing::AgentTest,
                      public ::testing::WithParamInterface<std::tuple<IptablesMode, bool>> {
 protected:
  static IptablesChoice Choice() { return {.mode = std::get<0>(GetParam())}; }
  static bool Gate() { return std::get<1>(GetParam()); }

  // The lines of the chains that kube-proxy writes too.
  static std::vector<std::string> Shared() {
    std::vector<std::string> lines;
    for (const IpFamily family : testing::kBothFamilies) {
      const testing::SavedRules saved = testing::SavedRules::Of(Choice().Of(family));
      for (const char* chain : {"POSTROUTING", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"}) {
        for (const std::string& rule : saved.Rules("nat", chain)) lines.push_back(rule);
      }
    }
    return lines;
  }
  static testing::ProgramResult Call(const std::string& command) {
    std::vector<std::string> arguments =
        testing::AgentSettings{.ownership_cleanup = Gate(), .iptables = Choice().mode}.Flags();
    arguments.insert(arguments.begin(), {command, "--output=json", "--host-root=/"});
    return Agent(arguments);
  }
  static Json Report(const std::string& command) {
    return Json::parse(Call(command).out, nullptr, /*allow_exceptions=*/false);
  }
  // The kinds of findings above info.
  static std::set<std::string> Problems(const Json& report) {
    std::set<std::string> kinds;
    EXPECT_TRUE(report.contains("findings")) << report;
    for (const Json& finding : report["findings"]) {
      if (finding["severity"] == "info") continue;
      kinds.insert(finding.contains("id") ? finding["id"] : finding["condition"]);
    }
    return kinds;
  }
  // What is wrong with the node itself: the martian rule, which old kubelets lack, and a kube-proxy
  // that drops packets only while the gate is off.
  static std::set<std::string> ProblemsOf(const SoundNode& node) {
    std::set<std::string> kinds;
    const Trait marks =
        node.proxy.mode == ProxyMode::kIpvs ? Trait::kIpvsDropsByMarkDrop : Trait::kDropsByMarkDrop;
    if (Does(node.proxy.version, marks)) kinds.insert("KubeProxyUsesMarkDrop");
    if (!Does(node.kubelet.version, Trait::kMartianRule)) kinds.insert("RouteLocalnetExposed");
    return kinds;
  }
};

TEST_P(SoundNodeTest, NothingOfKubeProxysIsChangedAndNothingIsReported) {
  for (const SoundNode& node : SoundNodes(Gate())) {
    SCOPED_TRACE(NameOf(node));
    const testing::Netns netns = testing::NewNetns();
    const testing::InNetns inside(netns);
    const std::unique_ptr<NodeAgent> kubelet =
        NewKubelet({.version = node.kubelet, .iptables = Choice()});
    const std::unique_ptr<ServiceProxy> proxy = NewKubeProxy({.version = node.proxy,
                                                              .iptables = Choice(),
                                                              .pod_cidr_v4 = "10.180.0.0/16",
                                                              .node_ip_v4 = "192.168.50.2",
                                                              .node_ip_v6 = "fd00:50::2"});
    const std::vector<ServicePort> services = ServicesOf(Fixture::kA);
    if (node.kubelet_first) EXPECT_TRUE(Went(kubelet->Start()));
    // Up to 1.19 kube-proxy fails until kubelet has made KUBE-MARK-DROP. Nftables mode removes
    // chains of kubelet's, which its next start makes again.
    const Act started = proxy->Start(services, {});
    EXPECT_TRUE(Went(kubelet->Start()));
    if (!started.ok) EXPECT_TRUE(Went(proxy->Tick())) << started.error;

    const std::vector<std::string> shared = Shared();
    const Json plan = Report("plan");
    for (const Json& change : plan["changes"]) {
      EXPECT_TRUE(KubeletLacks(node.kubelet.version, change)) << change;
    }
    EXPECT_THAT(Problems(plan), IsEmpty());
    EXPECT_EQ(Problems(Report("audit")), ProblemsOf(node));
    const testing::ProgramResult sync = Call("sync");
    EXPECT_EQ(sync.exit_code, 0) << sync;
    EXPECT_EQ(Shared(), shared);
    EXPECT_TRUE(Went(kubelet->Tick()));
    EXPECT_EQ(Report("plan")["changes"], Json::array());
    // From 1.27 on kube-proxy empties IPv4's KUBE-FIREWALL at each sync.
    EXPECT_TRUE(Went(proxy->Sync(services, {})));
    for (const Json& change : Report("plan")["changes"]) {
      EXPECT_EQ(change["chain"], "KUBE-FIREWALL") << change;
      EXPECT_TRUE(Does(node.proxy.version, Trait::kOwnMartianRule)) << change;
    }
    EXPECT_EQ(Shared(), shared);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, SoundNodeTest,
                         ::testing::Combine(::testing::ValuesIn(testing::kBothModes),
                                            ::testing::Bool()),
                         [](const auto& row) {
                           return absl::StrCat(testing::TestNameOf(std::get<0>(row.param)),
                                               std::get<1>(row.param) ? "GateOn" : "GateOff");
                         });

}  // namespace
}  // namespace kipt::skew
