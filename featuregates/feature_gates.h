// SPDX-License-Identifier: Apache-2.0
//
// File: featuregates/feature_gates.h
//
// Which features are on: declarations and overrides in, an immutable value out. The syntax, the
// meaning and the messages are those of k8s.io/component-base/featuregate as of Kubernetes 1.34
// (dependencies between gates: 1.35), so that what works on kubelet's command line works here and
// fails with the words people search for. Where Go walks a map in random order, this goes in the
// order of names: equal input gives equal messages.
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

// What one flag or one configuration file says, gate by gate.
using GateValues = std::map<std::string, bool>;

// Parses the text of one --feature-gates flag, as kubelet's does (MapStringBool of
// k8s.io/component-base/cli/flag): "A=true,B=false". White space around names and values and empty
// entries do not matter; of a gate given twice the later value holds. Values are Go's
// (GoParseBool). InvalidArgument at the first wrong entry: `malformed pair, expect string=bool`, or
// `invalid value of A: x, err: strconv.ParseBool: parsing "x": invalid syntax`. Whether the gates
// exist is Resolve's affair.
absl::StatusOr<GateValues> ParseFeatureGatesFlag(absl::string_view text);

// One source of values, and how far it is trusted.
struct Overrides {
  enum class Unknown : uint8_t {
    kError,   // `unrecognized feature gate: X`
    kIgnore,  // left out, and handed back by FeatureGates::ignored()
  };

  GateValues values = {};
  Unknown unknown = Unknown::kError;
  // The only component this source speaks of: the gates of others are unknown to it, and its
  // AllAlpha and AllBeta do not reach them. Empty: all components.
  std::string component = {};
};

// One line of a list of gates.
struct GateState {
  std::string name;
  // Empty for AllAlpha and AllBeta, which belong to all; where they were set by a source of one
  // component, that component.
  std::string component = {};
  Stage stage = Stage::kAlpha;
  bool enabled_by_default = false;
  bool enabled = false;
  bool locked = false;
  // By its own name; false where AllAlpha or AllBeta decided.
  bool explicitly_set = false;

  bool operator==(const GateState&) const = default;
};

// Immutable; safe to copy and to read from any thread. Holds no reference to the declarations.
class FeatureGates {
 public:
  // Merges `overrides` gate by gate, the later source wins (as kubelet's flag wins over its file,
  // and the later of several flags over the earlier), then applies them to `components`. A gate's
  // own name wins over AllAlpha and AllBeta, whatever the order and the source.
  //
  // InvalidArgument, with one message, or with "[first, second]" for several:
  //   unrecognized feature gate: A
  //   cannot set feature gate A to false, feature is locked to true
  //   cannot set feature gate A to true, feature is PreAlpha at emulated version 1.27
  // (the first unrecognized gate ends the list: what comes after it is not looked at)
  // and, only when there is none of those:
  //   A is enabled, but depends on features that are disabled: [B C]
  // Internal when the declarations are wrong (CheckDeclarations).
  static absl::StatusOr<FeatureGates> Resolve(absl::Span<const Component> components,
                                              absl::Span<const Overrides> overrides);

  // False before the feature's first milestone; what its last milestone says once it is removed.
  // Also false for a feature of no component that was resolved: component-base panics there, and a
  // node agent should not.
  bool Enabled(const Feature& feature) const;

  // Every gate that can be set now, AllAlpha and AllBeta included, in the order of names.
  const std::vector<GateState>& States() const { return states_; }

  // The lines of --help, as component-base prints them: "A=true|false (ALPHA - default=false)". GA
  // and deprecated gates are left out; the defaults are those without overrides.
  std::vector<std::string> KnownFeatures() const;

  // What kubelet logs as warnings: "Setting GA feature gate A=true. It will be removed in a future
  // release." and its like for deprecated gates. In the order of names.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // The names that sources with Unknown::kIgnore gave and nobody knows, in order.
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
