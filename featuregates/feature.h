// SPDX-License-Identifier: Apache-2.0
//
// A feature gate as a value: its stage in each release.
//
//   inline constexpr Milestone kFasterSyncLife[] = {
//       {.since = {1, 25}, .stage = Stage::kAlpha, .enabled = false},
//       {.since = {1, 27}, .stage = Stage::kBeta, .enabled = true},
//       {.since = {1, 28}, .stage = Stage::kGA, .enabled = true, .locked = true},
//   };
//   inline constexpr Feature kFasterSync = {
//       .name = "FasterSync", .milestones = kFasterSyncLife, .removed = Version{1, 30}};
//
// Everything here is constant data, which CheckDeclarations checks.
#ifndef KIPT_FEATUREGATES_FEATURE_H_
#define KIPT_FEATUREGATES_FEATURE_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kipt::featuregates {

// A release: major and minor, not negative, because gates never change in a patch release. Ordered
// as releases are: 1.9 < 1.10 < 2.0.
struct Version {
  int major = 0;
  int minor = 0;

  // clang-tidy 14 takes the 0 inside the generated comparison for a null pointer.
  constexpr auto operator<=>(const Version&) const = default;  // NOLINT(modernize-use-nullptr)
};

// "1.27".
std::string ToString(Version version);

// The stages of k8s.io/component-base/featuregate.
enum class Stage : uint8_t {
  kPreAlpha,    // declared, cannot be set yet
  kAlpha,       // reached by AllAlpha
  kBeta,        // reached by AllBeta
  kGA,          // setting it warns: the name will go
  kDeprecated,  // likewise; the last stage there is
};

// component-base's text, also the label `stage` of kubernetes_feature_enabled: "PRE-ALPHA",
// "ALPHA", "BETA", "" (GA), "DEPRECATED".
absl::string_view StageLabel(Stage stage);
// For people: as StageLabel, but "GA".
absl::string_view StageName(Stage stage);

// From `since` on, until the next milestone.
struct Milestone {
  Version since;
  Stage stage = Stage::kAlpha;
  // The default.
  bool enabled = false;
  // The feature's own name cannot override the default. AllAlpha and AllBeta can, as in
  // component-base.
  bool locked = false;
};

struct Feature {
  absl::string_view name;
  // Ascending; at least one.
  absl::Span<const Milestone> milestones;
  // From this release on the name is unknown. The last milestone still holds.
  std::optional<Version> removed = std::nullopt;
  // Features of the same component that must be enabled wherever this one is.
  absl::Span<const Feature* const> depends_on = {};
};

// Features that depend on one version: Kubernetes' on the emulated release, the project's own on
// the project's version, so that no emulation hides them.
struct Component {
  // "kubelet": GateState::component and Overrides::component.
  absl::string_view name;
  Version version;
  absl::Span<const Feature* const> features;
};

// The milestone that counts at `version`: null before the first, the last one after `removed`.
const Milestone* MilestoneAt(const Feature& feature, Version version);

// Whether a flag may name the feature at `version`: from its first milestone until it is removed.
//
// Unlike component-base, where a feature younger than the emulated release is "PreAlpha at emulated
// version ...", we emulate that release's kubelet, which does not know the name: "unrecognized
// feature gate". Only a feature declared PRE-ALPHA at `version` gets component-base's message.
bool IsNameable(const Feature& feature, Version version);

// Refuses what component-base refuses in AddVersioned and AddDependencies: milestones that go
// backwards, resurrect or unlock; dependencies that are unknown, circular, or less stable, less
// enabled or less locked than what depends on them; names declared twice, over all components. Also
// a feature that is removed before its last milestone. Internal, because the code is wrong.
absl::Status CheckDeclarations(absl::Span<const Component> components);

}  // namespace kipt::featuregates

#endif  // KIPT_FEATUREGATES_FEATURE_H_
