// SPDX-License-Identifier: Apache-2.0
//
// File: featuregates/feature.h
//
// A feature is a value with a life: the stages it goes through, release by release.
//
//   inline constexpr Milestone kFasterSyncLife[] = {
//       {.since = {1, 25}, .stage = Stage::kAlpha, .enabled = false},
//       {.since = {1, 27}, .stage = Stage::kBeta, .enabled = true},
//       {.since = {1, 28}, .stage = Stage::kGA, .enabled = true, .locked = true},
//   };
//   inline constexpr Feature kFasterSync = {
//       .name = "FasterSync", .milestones = kFasterSyncLife, .removed = Version{1, 30}};
//
// Everything here is constant data; the declarations are checked once, when they are resolved.
#ifndef KIPT_FEATUREGATES_FEATURE_H_
#define KIPT_FEATUREGATES_FEATURE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "featuregates/version.h"

namespace kipt::featuregates {

// The stages of k8s.io/component-base/featuregate.
enum class Stage : uint8_t {
  kPreAlpha,    // declared, cannot be set yet
  kAlpha,       // reached by AllAlpha
  kBeta,        // reached by AllBeta
  kGA,          // setting it warns: the name will go
  kDeprecated,  // likewise; the last stage there is
};

// The text component-base has for the stage, which is also the label `stage` of the metric
// kubernetes_feature_enabled: "PRE-ALPHA", "ALPHA", "BETA", "" (GA), "DEPRECATED".
absl::string_view StageLabel(Stage stage);

// For people: as StageLabel, but "GA".
absl::string_view StageName(Stage stage);

// From `since` on, until the next milestone.
struct Milestone {
  Version since;
  Stage stage = Stage::kAlpha;
  // The default.
  bool enabled = false;
  // The default can no longer be overridden by the feature's own name. AllAlpha and AllBeta change
  // a locked alpha or beta feature all the same, as they do in component-base.
  bool locked = false;
};

struct Feature {
  absl::string_view name;
  // Ascending; at least one.
  absl::Span<const Milestone> milestones;
  // From this release on the name is unknown, as the release's own kubelet does not know it. The
  // behaviour stays what the last milestone says.
  std::optional<Version> removed = std::nullopt;
  // Features of the same component that must be enabled wherever this one is.
  absl::Span<const Feature* const> depends_on = {};
};

// Features that live by one version. Kubernetes' gates live by the release that is emulated; the
// project's own by the project's own version, so no emulation ever hides them.
struct Component {
  // "kubelet". Says in States() where a gate comes from; Overrides::component refers to it.
  absl::string_view name;
  Version version;
  absl::Span<const Feature* const> features;
};

// The milestone that counts at `version`; null before the first. After `removed` it is the last
// one.
const Milestone* MilestoneAt(const Feature& feature, Version version);

// Whether a flag may name the feature at `version`: from its first milestone until it is removed.
//
// This differs from component-base, deliberately. There one binary emulates older releases, and a
// feature younger than the emulated release is "PreAlpha at emulated version ...". We emulate the
// release itself, and its kubelet has never heard the name: "unrecognized feature gate". Only a
// feature that is declared PRE-ALPHA at `version` gets component-base's message.
bool IsNameable(const Feature& feature, Version version);

// Refuses what component-base refuses in AddVersioned and AddDependencies: lives that go backwards,
// resurrect or unlock; dependencies that are unknown, circular, or less stable, less enabled or
// less locked than what depends on them; names declared twice, over all components. Also a feature
// that is removed before its last milestone. Internal, for the mistake is in code:
// FeatureGates::Resolve calls it, and a test of a component fails on it.
absl::Status CheckDeclarations(absl::Span<const Component> components);

}  // namespace kipt::featuregates

#endif  // KIPT_FEATUREGATES_FEATURE_H_
