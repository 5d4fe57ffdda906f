// SPDX-License-Identifier: Apache-2.0
//
// Kubelet's feature gates that decide about iptables, our own, and the releases that we emulate.
#ifndef KIPT_FEATUREGATES_KNOWN_FEATURES_H_
#define KIPT_FEATUREGATES_KNOWN_FEATURES_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "featuregates/feature_gates.h"

namespace kipt::featuregates {

// KEP-3178 "Cleaning up IPTables Chain Ownership": kubelet no longer makes the chains that only
// kube-proxy uses. In kubernetes/kubernetes: beta in #114472, GA and locked in #119374, name
// removed in #122137.
inline constexpr Milestone kIPTablesOwnershipCleanupLife[] = {
    {.since = {1, 25}, .stage = Stage::kAlpha, .enabled = false},
    {.since = {1, 27}, .stage = Stage::kBeta, .enabled = true},
    {.since = {1, 28}, .stage = Stage::kGA, .enabled = true, .locked = true},
};
inline constexpr Feature kIPTablesOwnershipCleanup = {
    .name = "IPTablesOwnershipCleanup",
    .milestones = kIPTablesOwnershipCleanupLife,
    .removed = Version{1, 30},
};

inline constexpr const Feature* kKubeletFeatures[] = {&kIPTablesOwnershipCleanup};

inline constexpr absl::string_view kKubeletComponentName = "kubelet";

// Kubelet's gates as release `emulated` has them.
inline Component KubeletComponent(Version emulated) {
  return {.name = kKubeletComponentName, .version = emulated, .features = kKubeletFeatures};
}

// The field featureGates of a KubeletConfiguration: gates that we do not know are ignored, and
// AllAlpha and AllBeta do not reach the agent's own gates.
inline Overrides FromKubeletConfiguration(GateValues feature_gates) {
  return {.values = std::move(feature_gates),
          .unknown = Overrides::Unknown::kIgnore,
          .component = std::string(kKubeletComponentName)};
}

inline constexpr absl::string_view kAgentComponentName = "kube-iptables-agent";

// Chains of kubelet's own that set and act on connection labels, next to those that use the packet
// mark: the KEP "IPTables Drop and Masquerade Marking" of 2020, which was never implemented.
inline constexpr Milestone kConnLabelMarkingLife[] = {
    {.since = {0, 7}, .stage = Stage::kAlpha, .enabled = false},
};
inline constexpr Feature kConnLabelMarking = {
    .name = "ConnLabelMarking",
    .milestones = kConnLabelMarkingLife,
};

inline constexpr const Feature* kAgentFeatures[] = {&kConnLabelMarking};

// Our gates as our release `own` has them.
inline Component AgentComponent(Version own) {
  return {.name = kAgentComponentName, .version = own, .features = kAgentFeatures};
}

// KUBE-IPTABLES-HINT, the oldest thing we keep, came with 1.24.
inline constexpr Version kOldestEmulatedVersion = {1, 24};
// Where IPTablesOwnershipCleanup is on by default and can still be turned off.
inline constexpr Version kDefaultEmulatedVersion = {1, 27};
// Up to 1.36 kubelet's code was run; 1.37 is known by its release notes, and behaves as 1.36.
inline constexpr Version kNewestKnownRelease = {1, 37};

// Parses "1.27" or "v1.27" and nothing else: "1.27.3" would promise to behave as that patch
// release. InvalidArgument, with a message that says what to write.
absl::StatusOr<Version> ParseVersion(absl::string_view text);

struct EmulatedVersion {
  Version version;
  std::string warning;  // or empty

  bool operator==(const EmulatedVersion&) const = default;
};

// The release that `text`, the value of --emulated-version, means. A minor newer than
// kNewestKnownRelease behaves as that one, with a warning: nodes are upgraded before agents are.
// InvalidArgument, with the accepted range, for anything that is not a version, is older than
// kOldestEmulatedVersion, or has another major.
absl::StatusOr<EmulatedVersion> ResolveEmulatedVersion(absl::string_view text);

}  // namespace kipt::featuregates

#endif  // KIPT_FEATUREGATES_KNOWN_FEATURES_H_
