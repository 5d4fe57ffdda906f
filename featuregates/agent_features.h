// SPDX-License-Identifier: Apache-2.0
//
// File: featuregates/agent_features.h
//
// The feature gates of this project. They live by its own version: --emulated-version neither hides
// nor changes them, and a KubeletConfiguration cannot reach them.
#ifndef KIPT_FEATUREGATES_AGENT_FEATURES_H_
#define KIPT_FEATUREGATES_AGENT_FEATURES_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "featuregates/feature.h"

namespace kipt::featuregates {

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

}  // namespace kipt::featuregates

#endif  // KIPT_FEATUREGATES_AGENT_FEATURES_H_
