// SPDX-License-Identifier: Apache-2.0
//
// Parts of the agent by themselves, without a kernel.
#include <benchmark/benchmark.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/config/load_config.h"
#include "agent/detect/host_files.h"
#include "agent/policy/diff.h"
#include "agent/xtables/iptables_save.h"
#include "featuregates/feature_gates.h"
#include "netlink/batch.h"
#include "netlink/rule_codec.h"
#include "tests/support/fake_ruleset.h"
#include "tests/support/observed.h"
#include "tests/support/ruleset_text.h"
#include "tests/support/service_rules.h"

namespace kipt::testing {
namespace {

// Everything of kubelet's, in both families.
agent::PolicyInput DesiredInput() {
  return ::kipt::testing::Wanting(agent::Mode::kLegacy, netlink::kFamilies, {});
}

// What makes it where there is nothing.
netlink::Transaction ColdTransaction() {
  const agent::PolicyInput desired = DesiredInput();
  return agent::ToTransaction(agent::ComputeDiff(desired, {}).changes, 1, desired.families);
}

// Both families afterwards, next to kube-proxy's rules for so many services.
netlink::Snapshot ExistingRuleset(int services) {
  FakeRuleset ruleset;
  netlink::Transaction all = ColdTransaction();
  for (const netlink::Family family : netlink::kFamilies) {
    for (netlink::Operation& operation : ServiceOperations(family, services)) {
      all.operations.push_back(std::move(operation));
    }
  }
  if (!ApplyTransaction(all, ruleset).ok()) return {};
  return ruleset.snapshot;
}

void MakeTheRuleset(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(agent::DesiredRuleset(DesiredInput()));
}
BENCHMARK(MakeTheRuleset)->Name("make the desired ruleset");

void CompareWithAll(benchmark::State& state) {
  const agent::PolicyInput desired = DesiredInput();
  const netlink::Snapshot existing = ExistingRuleset(0);
  for (auto _ : state) {
    if (!agent::ComputeDiff(desired, existing).empty()) {
      return state.SkipWithError("something is missing");
    }
  }
}
BENCHMARK(CompareWithAll)->Name("diff, everything in place");

void CompareWithNothing(benchmark::State& state) {
  const agent::PolicyInput desired = DesiredInput();
  const netlink::Snapshot nothing;
  for (auto _ : state) {
    if (agent::ComputeDiff(desired, nothing).empty()) {
      return state.SkipWithError("nothing is missing");
    }
  }
}
BENCHMARK(CompareWithNothing)->Name("diff, nothing in place");

void EncodeAColdSync(benchmark::State& state) {
  const netlink::Transaction cold = ColdTransaction();
  size_t bytes = 0;
  for (auto _ : state) {
    const absl::StatusOr<netlink::Batch> batch = netlink::Batch::Build(cold, 1);
    if (!batch.ok()) return state.SkipWithError(batch.status().ToString().c_str());
    bytes += batch->messages().bytes().size();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(cold.operations.size()));
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}
BENCHMARK(EncodeAColdSync)->Name("encode a cold sync (16 chains, 19 rules)");

// What the kernel tells of a rule and is not told.
void AddHandle(std::vector<uint8_t>& message) {
  struct {
    nlattr header = {.nla_len = sizeof(nlattr) + sizeof(uint64_t), .nla_type = NFTA_RULE_HANDLE};
    std::array<uint8_t, sizeof(uint64_t)> handle = {0, 0, 0, 0, 0, 0, 0, 1};
  } attribute;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&attribute);
  message.insert(message.end(), bytes, bytes + sizeof(attribute));
  const auto length = static_cast<uint32_t>(message.size());
  std::memcpy(message.data(), &length, sizeof(length));
}

// Each rule as in the kernel's answer to NFT_MSG_GETRULE.
std::vector<std::vector<uint8_t>> RuleMessages() {
  const netlink::Transaction cold = ColdTransaction();
  const absl::StatusOr<netlink::Batch> batch = netlink::Batch::Build(cold, 1);
  std::vector<std::vector<uint8_t>> messages;
  if (!batch.ok()) return messages;
  absl::Span<const uint8_t> rest = batch->messages().bytes();
  while (rest.size() >= sizeof(nlmsghdr)) {
    nlmsghdr header = {};
    std::memcpy(&header, rest.data(), sizeof(header));
    if ((header.nlmsg_type & 0xff) == NFT_MSG_NEWRULE) {
      messages.emplace_back(rest.begin(), rest.begin() + NLMSG_ALIGN(header.nlmsg_len));
      AddHandle(messages.back());
    }
    rest.remove_prefix(NLMSG_ALIGN(header.nlmsg_len));
  }
  return messages;
}

void DecodeTheRules(benchmark::State& state) {
  const std::vector<std::vector<uint8_t>> messages = RuleMessages();
  if (messages.empty()) return state.SkipWithError("there are no messages");
  int64_t bytes = 0;
  for (auto _ : state) {
    for (const std::vector<uint8_t>& message : messages) {
      const absl::StatusOr<netlink::ObservedRule> rule = netlink::DecodeRule(message);
      if (!rule.ok()) return state.SkipWithError(rule.status().ToString().c_str());
      bytes += static_cast<int64_t>(message.size());
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(messages.size()));
  state.SetBytesProcessed(bytes);
}
BENCHMARK(DecodeTheRules)->Name("decode the 19 rules");

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
  netlink::Snapshot existing = ExistingRuleset(static_cast<int>(state.range(0)));
  std::erase_if(existing.chains,
                [](const auto& chain) { return chain.first.family == netlink::Family::kIPv6; });
  Read(state, netlink::ToString(existing),
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
