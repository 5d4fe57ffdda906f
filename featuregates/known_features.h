// SPDX-License-Identifier: Apache-2.0
//
// File: featuregates/known_features.h
//
// The feature gates that we know: those of kubelet's that decide about iptables, and our own. And
// the releases we emulate.
#ifndef KIPT_FEATUREGATES_KNOWN_FEATURES_H_
#define KIPT_FEATUREGATES_KNOWN_FEATURES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "featuregates/feature_gates.h"

namespace kipt::featuregates {

// KEP-3178 "Cleaning up IPTables Chain Ownership": kubelet no longer makes the chains that only
// kube-proxy uses. Releases as in the KEP's graduation criteria and in kubernetes/kubernetes: beta
// in #114472, GA and locked in #119374, name removed in #122137.
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

// All of kubelet's gates that we know.
inline constexpr const Feature* kKubeletFeatures[] = {&kIPTablesOwnershipCleanup};

inline constexpr absl::string_view kKubeletComponentName = "kubelet";

// Kubelet's gates as release `emulated` has them.
inline Component KubeletComponent(Version emulated) {
  return {.name = kKubeletComponentName, .version = emulated, .features = kKubeletFeatures};
}

// What the field featureGates of a KubeletConfiguration says. The file is kubelet's: most of its
// gates are none of ours and are ignored, and AllAlpha or AllBeta in it are meant for Kubernetes'
// gates, not for the agent's own.
Overrides FromKubeletConfiguration(GateValues feature_gates);

// The gates of this project live by its own version: --emulated-version neither hides nor changes
// them, and a KubeletConfiguration cannot reach them.
inline constexpr absl::string_view kAgentComponentName = "kube-iptables-agent";

// Chains of kubelet's own that set and act on labels of the connection, beside those that use the
// packet mark: the KEP "IPTables Drop and Masquerade Marking" of 2020, which nobody implemented.
inline constexpr Milestone kConnLabelMarkingLife[] = {
    {.since = {0, 7}, .stage = Stage::kAlpha, .enabled = false},
};
inline constexpr Feature kConnLabelMarking = {
    .name = "ConnLabelMarking",
    .milestones = kConnLabelMarkingLife,
};

// All of ours.
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

struct EmulatedVersion {
  Version version;
  // Empty where there is nothing to say.
  std::string warning;

  bool operator==(const EmulatedVersion&) const = default;
};

// The release that `text`, the value of --emulated-version, stands for. A minor newer than
// kNewestKnownRelease behaves as that one, with a warning that says so: nodes are upgraded before
// agents are. InvalidArgument, with the accepted range in the message, for anything that is not a
// version, is older than kOldestEmulatedVersion, or has another major: 2.x would be a Kubernetes
// nobody can emulate yet.
absl::StatusOr<EmulatedVersion> ResolveEmulatedVersion(absl::string_view text);

}  // namespace kipt::featuregates

#endif  // KIPT_FEATUREGATES_KNOWN_FEATURES_H_
