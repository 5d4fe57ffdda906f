// SPDX-License-Identifier: Apache-2.0
//
// Configuration files that must be refused, and kubelet's own, which must not.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/agent_fixture.h"
#include "tests/interop/refusal_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

class BadConfigFileTest : public RefusalTest {};

struct FileRow {
  const char* name;
  std::string content;
  std::vector<std::string> said;
};
void PrintTo(const FileRow& row, std::ostream* stream) { *stream << row.name; }

constexpr char kOurs[] =
    "apiVersion: kube-iptables-agent/v1alpha1\nkind: KubeIPTablesAgentConfiguration\n";
constexpr char kKubelets[] =
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

std::string AllBytes() {
  std::string bytes;
  // A multiplicative generator: the same 4096 bytes every time.
  uint32_t state = 2463534242U;
  for (int i = 0; i < 4096; ++i) {
    state = state * 1664525U + 1013904223U;
    bytes.push_back(static_cast<char>(state >> 24));
  }
  return bytes;
}

std::vector<FileRow> BadFiles() {
  return {
      {"Tab", absl::StrCat(kOurs, "featureGates:\n\tIPTablesOwnershipCleanup: false\n"), {":4:"}},
      {"DuplicateKey",
       absl::StrCat(kOurs, "iptablesDropBit: 15\niptablesDropBit: 16\n"),
       {":4:", "iptablesDropBit"}},
      {"UnknownField", absl::StrCat(kOurs, "iptablesDropBits: 15\n"), {":3:", "iptablesDropBits"}},
      {"WrongType", absl::StrCat(kOurs, "iptablesDropBit: fifteen\n"), {":3:", "iptablesDropBit"}},
      {"WrongTypeList", absl::StrCat(kOurs, "iptablesDropBit: [15]\n"), {":3:", "iptablesDropBit"}},
      {"WrongTypeInKubeletsFile",
       absl::StrCat(kKubelets, "featureGates: yes please\n"),
       {":3:", "featureGates"}},
      {"GateOfTheWrongType",
       absl::StrCat(kOurs, "featureGates:\n  IPTablesOwnershipCleanup: 7\n"),
       {":4:", "IPTablesOwnershipCleanup"}},
      {"UnknownGateInOurKind",
       absl::StrCat(kOurs, "featureGates:\n  NodeSwap: true\n"),
       {"NodeSwap"}},
      {"LockedGateInKubeletsFile",
       absl::StrCat(kKubelets, "featureGates:\n  IPTablesOwnershipCleanup: maybe\n"),
       {":4:", "IPTablesOwnershipCleanup"}},
      {"BitOutOfRange", absl::StrCat(kOurs, "iptablesMasqueradeBit: 32\n"), {"32", "0 and 31"}},
      {"AnotherKind", "apiVersion: v1\nkind: Pod\n", {":1:", "KubeletConfiguration"}},
      {"NoKind", "iptablesDropBit: 15\n", {"apiVersion"}},
      {"RandomBytes", AllBytes(), {"config.yaml"}},
      {"Empty", "", {"config.yaml", "apiVersion"}},
      {"OnlyAComment", "# nothing\n", {"config.yaml", "apiVersion"}},
      {"BracketsThatNeverEnd", std::string(100'000, '['), {"config.yaml"}},
      {"AliasThatGrows", absl::StrCat(kOurs, "a: &a [x, x]\nb: [*a, *a]\n"), {"config.yaml"}},
      {"TwoDocuments", absl::StrCat(kOurs, "---\n", kOurs), {"config.yaml"}},
  };
}

class BadFileRowTest : public RefusalTest, public ::testing::WithParamInterface<FileRow> {};

TEST_P(BadFileRowTest, IsRefusedWithItsPathAndWhatIsWrong) {
  const TemporaryFile file(GetParam().content);
  std::vector<std::string> said = GetParam().said;
  said.push_back(file.path());
  ExpectRefused(Agent({"sync", absl::StrCat("--config=", file.path())}), kExitUsage, said);
}

INSTANTIATE_TEST_SUITE_P(Rows, BadFileRowTest, ::testing::ValuesIn(BadFiles()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_F(BadConfigFileTest, AFileThatMayNotBeReadIsRefused) {
  const TemporaryFile file(kOurs);
  ASSERT_EQ(chmod(file.path().c_str(), 0), 0);
  // Root reads everything; root without these two capabilities does not.
  ExpectRefused(RunProgram({"/usr/bin/setpriv", "--bounding-set=-dac_override,-dac_read_search",
                            "--inh-caps=-dac_override,-dac_read_search", AgentProgram(), "sync",
                            absl::StrCat("--config=", file.path())}),
                kExitUsage, {file.path(), "Permission denied"});
}

TEST_F(BadConfigFileTest, TheKubeletConfigurationOfARealNodeIsAccepted) {
  const TemporaryFile file(absl::StrCat(kKubelets, R"(
address: 0.0.0.0
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 2m0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 5m0s, cacheUnauthorizedTTL: 30s}
cgroupDriver: systemd
cgroupsPerQOS: true
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
configMapAndSecretChangeDetectionStrategy: Watch
containerLogMaxFiles: 5
containerLogMaxSize: 10Mi
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
contentType: application/vnd.kubernetes.protobuf
cpuCFSQuota: true
cpuCFSQuotaPeriod: 100ms
cpuManagerPolicy: none
cpuManagerReconcilePeriod: 10s
enableControllerAttachDetach: true
enableDebuggingHandlers: true
enforceNodeAllocatable: [pods]
eventBurst: 100
eventRecordQPS: 50
evictionHard:
  imagefs.available: 15%
  memory.available: 100Mi
  nodefs.available: 10%
evictionPressureTransitionPeriod: 5m0s
failSwapOn: true
featureGates:
  CSIMigration: true
  DynamicResourceAllocation: false
  EventedPLEG: false
  GracefulNodeShutdown: true
  InPlacePodVerticalScaling: true
  IPTablesOwnershipCleanup: false
  KubeletTracing: true
  MemoryQoS: false
  NodeSwap: true
  PodReadyToStartContainersCondition: true
  RotateKubeletServerCertificate: true
fileCheckFrequency: 20s
hairpinMode: hairpin-veth
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 20s
imageGCHighThresholdPercent: 85
imageGCLowThresholdPercent: 80
imageMinimumGCAge: 2m0s
iptablesDropBit: 21
iptablesMasqueradeBit: 20
kubeAPIBurst: 100
kubeAPIQPS: 50
makeIPTablesUtilChains: false
maxOpenFiles: 1000000
maxPods: 110
memoryManagerPolicy: None
memorySwap: {}
nodeLeaseDurationSeconds: 40
nodeStatusReportFrequency: 5m0s
oomScoreAdj: -999
podPidsLimit: -1
port: 10250
registerWithTaints:
  - {effect: NoSchedule, key: "node.kubernetes.io/not-ready", value: ""}
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
serializeImagePulls: true
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 4h0m0s
tlsCipherSuites: [TLS_AES_128_GCM_SHA256]
volumeStatsAggPeriod: 1m0s
)"));
  const std::string config = absl::StrCat("--config=", file.path());
  EXPECT_EQ(Agent({"plan", config}).exit_code, kExitDifferences);
  ExpectKernelUnchanged();
  const ProgramResult sync = Agent({"sync", config});
  EXPECT_EQ(sync.exit_code, kExitOk) << sync;
  // The gate and the bits of the file count; makeIPTablesUtilChains speaks of kubelet only.
  const SavedRules from_file = SavedRules::Of({IpFamily::kIpv6});
  const Netns fresh = NewNetns();
  const InNetns in(fresh);
  Sync({.ownership_cleanup = false, .bits = {20, 21}});
  EXPECT_EQ(from_file, SavedRules::Of({IpFamily::kIpv6}));
}

TEST_F(BadConfigFileTest, WhoElseMayWriteItIsTold) {
  const TemporaryFile file(kOurs);
  struct Row {
    uid_t owner;
    gid_t group;
    mode_t mode;
    std::string says;
  };
  for (const Row& row : std::vector<Row>{{0, 0, 0664, ""},
                                         {0, 1000, 0644, ""},
                                         {0, 1000, 0664, "can be written by group 1000, and so"},
                                         {1000, 0, 0600, "can be written by user 1000, and so"}}) {
    ASSERT_EQ(chown(file.path().c_str(), row.owner, row.group), 0);
    ASSERT_EQ(chmod(file.path().c_str(), row.mode), 0);
    const ProgramResult result = Agent({"plan", "--config=" + file.path()});
    EXPECT_EQ(result.exit_code, kExitDifferences) << result;
    if (row.says.empty()) {
      EXPECT_THAT(result.err, Not(HasSubstr("can be written"))) << result;
    } else {
      EXPECT_THAT(result.err, HasSubstr(row.says)) << result;
    }
  }
}

}  // namespace
}  // namespace kipt::testing
