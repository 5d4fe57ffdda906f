// SPDX-License-Identifier: Apache-2.0
//
// Everything that reads a text of somebody else's.
#include <benchmark/benchmark.h>

#include <string>

#include "absl/strings/string_view.h"
#include "agent/config/load_config.h"
#include "agent/detect/host_files.h"
#include "agent/xtables/iptables_save.h"
#include "featuregates/feature_gates.h"
#include "tests/bench/micro_rulesets.h"
#include "tests/support/ruleset_text.h"

namespace kipt::testing {
namespace {

// Runs `parse`, which returns a StatusOr, on `text`.
template <typename Parse>
void Read(benchmark::State& state, absl::string_view text, const Parse& parse) {
  for (auto _ : state) {
    const auto result = parse(text);
    if (!result.ok()) return state.SkipWithError(result.status().ToString().c_str());
    benchmark::DoNotOptimize(result);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void ReadSave(benchmark::State& state) {
  netlink::Snapshot standing = StandingRuleset(static_cast<int>(state.range(0)));
  std::erase_if(standing.chains,
                [](const auto& chain) { return chain.first.family == netlink::Family::kIPv6; });
  Read(state, netlink::ToString(standing),
       [](absl::string_view text) { return agent::ParseSave(netlink::Family::kIPv4, text); });
}
BENCHMARK(ReadSave)->Name("read iptables-save")->ArgName("services")->Arg(0)->Arg(100)->Arg(1000);

constexpr absl::string_view kConfig = R"(apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 2m0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
evictionHard: {imagefs.available: 15%, memory.available: 100Mi, nodefs.available: 10%}
featureGates:
  IPTablesOwnershipCleanup: false
  GracefulNodeShutdown: true
iptablesDropBit: 15
iptablesMasqueradeBit: 14
makeIPTablesUtilChains: true
maxPods: 110
rotateCertificates: true
staticPodPath: /etc/kubernetes/manifests
)";

void ReadConfig(benchmark::State& state) {
  Read(state, kConfig,
       [](absl::string_view text) { return agent::ParseConfigFile("config.yaml", text); });
}
BENCHMARK(ReadConfig)->Name("read a KubeletConfiguration");

void ReadGates(benchmark::State& state) {
  Read(state, "AllAlpha=false,IPTablesOwnershipCleanup=true,GracefulNodeShutdown=true",
       featuregates::ParseFeatureGatesFlag);
}
BENCHMARK(ReadGates)->Name("read --feature-gates");

constexpr absl::string_view kConflist = R"({"cniVersion": "0.4.0", "name": "cbr0", "plugins": [
  {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
  {"type": "portmap", "capabilities": {"portMappings": true},
   "externalSetMarkChain": "KUBE-MARK-MASQ"}]})";

void ReadConflist(benchmark::State& state) {
  Read(state, kConflist,
       [](absl::string_view text) { return agent::ParseCniConfig("10-flannel.conflist", text); });
}
BENCHMARK(ReadConflist)->Name("read a CNI conflist");

}  // namespace
}  // namespace kipt::testing
