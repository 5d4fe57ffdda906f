// SPDX-License-Identifier: Apache-2.0
#include "featuregates/feature_gates.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "featuregates/go_text.h"

namespace kipt::featuregates {
namespace {

constexpr absl::string_view kAllAlpha = "AllAlpha";
constexpr absl::string_view kAllBeta = "AllBeta";

absl::string_view BoolText(bool value) { return value ? "true" : "false"; }

// A name that can be set at its component's version.
struct Gate {
  GateState state;
  // Null of AllAlpha and AllBeta.
  const Feature* feature = nullptr;
  const Component* component = nullptr;
};

// A value for a name, and its source.
struct Choice {
  bool value = false;
  const Overrides* source = nullptr;
};

// Whether a source of `component` reaches `gate`; an empty one reaches all.
bool Reaches(absl::string_view component, const Gate& gate) {
  return component.empty() || gate.component == nullptr || component == gate.component->name;
}

}  // namespace

// One run of FeatureGates::Resolve.
class FeatureGates::Resolution {
 public:
  explicit Resolution(absl::Span<const Component> components) {
    gates_[kAllAlpha] = {{.name = std::string(kAllAlpha), .stage = Stage::kAlpha}};
    gates_[kAllBeta] = {{.name = std::string(kAllBeta), .stage = Stage::kBeta}};
    for (const Component& component : components) {
      for (const Feature* feature : component.features) {
        const Milestone* milestone = MilestoneAt(*feature, component.version);
        const bool enabled = milestone != nullptr && milestone->enabled;
        result_.enabled_.emplace(feature->name, enabled);
        if (milestone == nullptr || !IsNameable(*feature, component.version)) continue;
        gates_[feature->name] = {{.name = std::string(feature->name),
                                  .component = std::string(component.name),
                                  .stage = milestone->stage,
                                  .enabled_by_default = enabled,
                                  .enabled = enabled,
                                  .locked = milestone->locked},
                                 feature,
                                 &component};
      }
    }
  }

  absl::StatusOr<FeatureGates> Run(absl::Span<const Overrides> overrides) {
    for (const Overrides& source : overrides) Choose(source);
    SetNamed();
    if (errors_.empty()) {
      SetTheOthers();
      CheckEnabledDependencies();
    }
    if (errors_.size() == 1) return absl::InvalidArgumentError(errors_.front());
    // As utilerrors.NewAggregate prints them.
    if (!errors_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("[", absl::StrJoin(errors_, ", "), "]"));
    }
    for (auto& [name, gate] : gates_) {
      if (gate.state.stage != Stage::kPreAlpha) result_.states_.push_back(std::move(gate.state));
    }
    return std::move(result_);
  }

 private:
  // A value that does not reach its gate replaces none of an earlier source.
  void Choose(const Overrides& source) {
    for (const auto& [name, value] : source.values) {
      const auto gate = gates_.find(name);
      if (gate != gates_.end() && Reaches(source.component, gate->second)) {
        choices_[name].push_back({value, &source});
      } else if (source.unknown == Overrides::Unknown::kIgnore) {
        ignored_.insert(name);
      } else {
        unknown_.insert(name);
      }
    }
  }

  void SetNamed() {
    for (const absl::string_view name : ignored_) result_.ignored_.emplace_back(name);
    for (const auto& [name, choices] : choices_) {
      if (!unknown_.empty() && *unknown_.begin() < name) break;
      SetOne(gates_.find(name)->second, choices.back());
    }
    if (unknown_.empty()) return;
    errors_.push_back(absl::StrCat("unrecognized feature gate: ", *unknown_.begin()));
  }

  void SetOne(Gate& gate, const Choice& choice) {
    GateState& state = gate.state;
    std::string refusal;
    if (state.locked && state.enabled_by_default != choice.value) {
      refusal = absl::StrCat("locked to ", BoolText(state.enabled_by_default));
    } else if (state.stage == Stage::kPreAlpha) {
      refusal = absl::StrCat("PreAlpha at emulated version ", ToString(gate.component->version));
    }
    if (!refusal.empty()) {
      errors_.push_back(absl::StrCat("cannot set feature gate ", state.name, " to ",
                                     BoolText(choice.value), ", feature is ", refusal));
      return;
    }
    if (gate.feature == nullptr) state.component = choice.source->component;
    state.enabled = choice.value;
    state.explicitly_set = true;
    if (state.stage != Stage::kDeprecated && state.stage != Stage::kGA) return;
    result_.warnings_.push_back(absl::StrCat(
        "Setting ", state.stage == Stage::kGA ? "GA" : "deprecated", " feature gate ", state.name,
        "=", BoolText(choice.value), ". It will be removed in a future release."));
  }

  // By AllAlpha or AllBeta, even where locked (component-base: setUnsetAlphaGates).
  void SetTheOthers() {
    for (auto& [name, gate] : gates_) {
      if (gate.feature == nullptr) continue;
      const Stage stage = gate.state.stage;
      if (!gate.state.explicitly_set && (stage == Stage::kAlpha || stage == Stage::kBeta)) {
        // The last source that reaches the gate.
        for (const Choice& all : choices_[stage == Stage::kAlpha ? kAllAlpha : kAllBeta]) {
          if (Reaches(all.source->component, gate)) gate.state.enabled = all.value;
        }
      }
      result_.enabled_.find(name)->second = gate.state.enabled;
    }
  }

  // Only of what can be named: no source can turn off the others.
  void CheckEnabledDependencies() {
    for (const auto& [name, gate] : gates_) {
      if (gate.feature == nullptr || !gate.state.enabled) continue;
      std::set<absl::string_view> disabled;
      for (const Feature* dependency : gate.feature->depends_on) {
        if (!result_.Enabled(*dependency)) disabled.insert(dependency->name);
      }
      if (disabled.empty()) continue;
      errors_.push_back(absl::StrCat(name,
                                     " is enabled, but depends on features that are disabled: [",
                                     absl::StrJoin(disabled, " "), "]"));
    }
  }

  std::map<absl::string_view, Gate> gates_;
  // In the order of the sources: the last wins.
  std::map<absl::string_view, std::vector<Choice>> choices_;
  std::set<absl::string_view> ignored_;
  std::set<absl::string_view> unknown_;
  std::vector<std::string> errors_;
  FeatureGates result_;
};

absl::StatusOr<GateValues> ParseFeatureGatesFlag(absl::string_view text) {
  GateValues values;
  for (const absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const size_t equals = entry.find('=');
    const absl::string_view name = GoTrimSpace(entry.substr(0, equals));
    if (equals == absl::string_view::npos) {
      return absl::InvalidArgumentError("malformed pair, expect string=bool");
    }
    const absl::string_view value_text = GoTrimSpace(entry.substr(equals + 1));
    const absl::StatusOr<bool> value = GoParseBool(value_text);
    if (!value.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("invalid value of ", name, ": ", value_text,
                                                     ", err: ", value.status().message()));
    }
    values[absl::StrCat(name)] = *value;
  }
  return values;
}

absl::StatusOr<FeatureGates> FeatureGates::Resolve(absl::Span<const Component> components,
                                                   absl::Span<const Overrides> overrides) {
  if (absl::Status status = CheckDeclarations(components); !status.ok()) return status;
  return Resolution(components).Run(overrides);
}

bool FeatureGates::Enabled(const Feature& feature) const {
  const auto found = enabled_.find(feature.name);
  return found != enabled_.end() && found->second;
}

std::vector<std::string> FeatureGates::KnownFeatures() const {
  std::vector<std::string> lines;
  for (const GateState& state : states_) {
    if (state.stage != Stage::kAlpha && state.stage != Stage::kBeta) continue;
    lines.push_back(absl::StrCat(state.name, "=true|false (", StageLabel(state.stage),
                                 " - default=", BoolText(state.enabled_by_default), ")"));
  }
  // Whole lines are sorted, not names: "A1=" comes before "A=".
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string ToString(const FeatureGates& gates) {
  return absl::StrJoin(gates.States(), ",", [](std::string* out, const GateState& state) {
    absl::StrAppend(out, state.name, "=", BoolText(state.enabled));
  });
}

}  // namespace kipt::featuregates
