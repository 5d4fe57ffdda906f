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

// None so far. A new one is declared above like those of kubelet_features.h, and listed here.
inline constexpr absl::Span<const Feature* const> kAgentFeatures = {};

// Our gates as our release `own` has them.
inline Component AgentComponent(Version own) {
  return {.name = kAgentComponentName, .version = own, .features = kAgentFeatures};
}

}  // namespace kipt::featuregates

#endif  // KIPT_FEATUREGATES_AGENT_FEATURES_H_
