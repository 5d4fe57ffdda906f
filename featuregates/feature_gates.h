// SPDX-License-Identifier: Apache-2.0
//
// Which features are on: declarations and overrides in, an immutable value out. Syntax, meaning and
// messages are those of k8s.io/component-base/featuregate as of Kubernetes 1.34 (dependencies
// between gates: 1.35). Where Go walks a map in random order, this uses the order of names.
//
//   absl::StatusOr<FeatureGates> gates = FeatureGates::Resolve(
//       {KubeletComponent(emulated), AgentComponent(own)},
//       {FromKubeletConfiguration(std::move(from_file)), Overrides{.values = *from_flag}});
//   if (gates->Enabled(kIPTablesOwnershipCleanup)) ...
#ifndef KIPT_FEATUREGATES_FEATURE_GATES_H_
#define KIPT_FEATUREGATES_FEATURE_GATES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "featuregates/feature.h"

namespace kipt::featuregates {

// The gates that one flag or configuration file sets.
using GateValues = std::map<std::string, bool>;

// Parses one --feature-gates flag as kubelet does (MapStringBool of
// k8s.io/component-base/cli/flag): "A=true,B=false". White space around names and values and empty
// entries do not matter; the later value of a gate holds. Values are GoParseBool's. InvalidArgument
// at the first wrong entry: `malformed pair, expect string=bool`, or `invalid value of A: x, err:
// strconv.ParseBool: parsing "x": invalid syntax`.
absl::StatusOr<GateValues> ParseFeatureGatesFlag(absl::string_view text);

// One source of values, and how far it is trusted.
struct Overrides {
  enum class Unknown : uint8_t {
    kError,   // `unrecognized feature gate: X`
    kIgnore,  // left out, and handed back by FeatureGates::ignored()
  };

  GateValues values = {};
  Unknown unknown = Unknown::kError;
  // The only component whose gates this source knows, and its AllAlpha and AllBeta reach. Empty:
  // all components.
  std::string component = {};
};

struct GateState {
  std::string name;
  // For AllAlpha and AllBeta that of the source that set them, or empty.
  std::string component = {};
  Stage stage = Stage::kAlpha;
  bool enabled_by_default = false;
  bool enabled = false;
  bool locked = false;
  // By its own name; false where AllAlpha or AllBeta decided.
  bool explicitly_set = false;

  bool operator==(const GateState&) const = default;
};

// Safe to copy and to read from any thread. Holds no reference to the declarations.
class FeatureGates {
 public:
  // Merges `overrides` gate by gate, where the later source that reaches the gate wins, and applies
  // them to `components`.
  // A gate's own name wins over AllAlpha and AllBeta, whatever the order and the source.
  //
  // InvalidArgument, with one message, or with "[first, second]" for several:
  //   unrecognized feature gate: A
  //   cannot set feature gate A to false, feature is locked to true
  //   cannot set feature gate A to true, feature is PreAlpha at emulated version 1.27
  // (the first unrecognized gate ends the list)
  // and, only when there is none of those:
  //   A is enabled, but depends on features that are disabled: [B C]
  // Internal when the declarations are wrong (CheckDeclarations).
  static absl::StatusOr<FeatureGates> Resolve(absl::Span<const Component> components,
                                              absl::Span<const Overrides> overrides);

  // False before the feature's first milestone, and for a feature of no component that was
  // resolved, where component-base panics.
  bool Enabled(const Feature& feature) const;

  // Every gate that can be set now, AllAlpha and AllBeta included, in the order of names.
  const std::vector<GateState>& States() const { return states_; }

  // The lines of --help, as component-base prints them: "A=true|false (ALPHA - default=false)",
  // without GA and deprecated gates and without overrides.
  std::vector<std::string> KnownFeatures() const;

  // As kubelet logs them, in the order of names: "Setting GA feature gate A=true. It will be
  // removed in a future release."
  const std::vector<std::string>& warnings() const { return warnings_; }

  // The unknown names of sources with Unknown::kIgnore, in order.
  const std::vector<std::string>& ignored() const { return ignored_; }

  bool operator==(const FeatureGates&) const = default;

 private:
  class Resolution;
  FeatureGates() = default;

  // All declared features, the unnameable ones included.
  std::map<std::string, bool, std::less<>> enabled_;
  std::vector<GateState> states_;
  std::vector<std::string> warnings_;
  std::vector<std::string> ignored_;
};

// Every gate that can be set now, in the flag's syntax: "AllAlpha=false,AllBeta=false,A=true".
std::string ToString(const FeatureGates& gates);

}  // namespace kipt::featuregates

#endif  // KIPT_FEATUREGATES_FEATURE_GATES_H_
