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

bool IsAllGate(absl::string_view name) { return name == kAllAlpha || name == kAllBeta; }

// As utilerrors.NewAggregate prints a list of errors.
std::string AggregateText(const std::vector<std::string>& errors) {
  if (errors.size() == 1) return errors.front();
  return absl::StrCat("[", absl::StrJoin(errors, ", "), "]");
}

// A feature that can be named at its component's version, and where it stands.
struct Gate {
  const Feature* feature = nullptr;
  const Component* component = nullptr;
  const Milestone* milestone = nullptr;
};

// The value that won for a name, and who said it.
struct Choice {
  bool value = false;
  const Overrides* source = nullptr;

  bool Reaches(const Component& component) const {
    return source->component.empty() || source->component == component.name;
  }
};

}  // namespace

// One run of FeatureGates::Resolve.
class FeatureGates::Resolution {
 public:
  Resolution(absl::Span<const Component> components, absl::Span<const Overrides> overrides)
      : components_(components) {
    for (const Component& component : components) {
      for (const Feature* feature : component.features) {
        if (!IsNameable(*feature, component.version)) continue;
        gates_[feature->name] = {feature, &component, MilestoneAt(*feature, component.version)};
      }
    }
    for (const Overrides& source : overrides) {
      for (const auto& [name, value] : source.values) choices_[name] = {value, &source};
    }
  }

  absl::StatusOr<FeatureGates> Run() {
    SetNamedGates();
    if (errors_.empty()) {
      SetAllFeatures();
      CheckEnabledDependencies();
    }
    if (!errors_.empty()) return absl::InvalidArgumentError(AggregateText(errors_));
    ListStates();
    return std::move(result_);
  }

 private:
  void SetNamedGates() {
    for (const auto& [name, choice] : choices_) {
      if (IsAllGate(name)) continue;
      const auto gate = gates_.find(name);
      if (gate != gates_.end() && choice.Reaches(*gate->second.component)) {
        SetNamedGate(gate->second, choice.value);
      } else if (choice.source->unknown == Overrides::Unknown::kIgnore) {
        result_.ignored_.emplace_back(name);
      } else {
        errors_.push_back(absl::StrCat("unrecognized feature gate: ", name));
        return;
      }
    }
  }

  void SetNamedGate(const Gate& gate, bool value) {
    const absl::string_view name = gate.feature->name;
    const std::string refusal =
        absl::StrCat("cannot set feature gate ", name, " to ", BoolText(value), ", feature is ");
    if (gate.milestone->locked && gate.milestone->enabled != value) {
      errors_.push_back(absl::StrCat(refusal, "locked to ", BoolText(gate.milestone->enabled)));
      return;
    }
    if (gate.milestone->stage == Stage::kPreAlpha) {
      errors_.push_back(absl::StrCat(refusal, "PreAlpha at emulated version ",
                                     ToString(gate.component->version)));
      return;
    }
    named_[name] = value;
    if (gate.milestone->stage == Stage::kDeprecated) Warn("deprecated", name, value);
    if (gate.milestone->stage == Stage::kGA) Warn("GA", name, value);
  }

  void Warn(absl::string_view stage, absl::string_view name, bool value) {
    result_.warnings_.push_back(absl::StrCat("Setting ", stage, " feature gate ", name, "=",
                                             BoolText(value),
                                             ". It will be removed in a future release."));
  }

  // The value of every feature, from the strongest reason to the weakest.
  void SetAllFeatures() {
    for (const Component& component : components_) {
      for (const Feature* feature : component.features) {
        const Milestone* milestone = MilestoneAt(*feature, component.version);
        result_.enabled_.emplace(feature->name, milestone != nullptr && milestone->enabled);
      }
    }
    for (const auto& [name, gate] : gates_) {
      const Choice* all = ChoiceForAll(gate);
      if (all != nullptr) result_.enabled_.find(name)->second = all->value;
    }
    for (const auto& [name, value] : named_) result_.enabled_.find(name)->second = value;
  }

  // What AllAlpha or AllBeta says of `gate`; null where neither reaches it. A lock does not hold
  // them off (component-base: setUnsetAlphaGates).
  const Choice* ChoiceForAll(const Gate& gate) const {
    const Stage stage = gate.milestone->stage;
    if (stage != Stage::kAlpha && stage != Stage::kBeta) return nullptr;
    const auto choice = choices_.find(stage == Stage::kAlpha ? kAllAlpha : kAllBeta);
    const bool reached = choice != choices_.end() && choice->second.Reaches(*gate.component);
    return reached ? &choice->second : nullptr;
  }

  // Only of what can be named: nobody could turn off the others.
  void CheckEnabledDependencies() {
    for (const auto& [name, gate] : gates_) {
      if (!result_.Enabled(*gate.feature)) continue;
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

  void ListStates() {
    for (const auto& [name, gate] : gates_) {
      if (gate.milestone->stage == Stage::kPreAlpha) continue;
      result_.states_.push_back({.name = absl::StrCat(name),
                                 .component = absl::StrCat(gate.component->name),
                                 .stage = gate.milestone->stage,
                                 .enabled_by_default = gate.milestone->enabled,
                                 .enabled = result_.Enabled(*gate.feature),
                                 .locked = gate.milestone->locked,
                                 .explicitly_set = named_.count(name) != 0});
    }
    for (const auto& [name, stage] :
         {std::pair{kAllAlpha, Stage::kAlpha}, std::pair{kAllBeta, Stage::kBeta}}) {
      GateState state{.name = absl::StrCat(name), .component = "", .stage = stage};
      if (const auto choice = choices_.find(name); choice != choices_.end()) {
        state.component = choice->second.source->component;
        state.enabled = choice->second.value;
        state.explicitly_set = true;
      }
      result_.states_.push_back(std::move(state));
    }
    std::sort(result_.states_.begin(), result_.states_.end(),
              [](const GateState& a, const GateState& b) { return a.name < b.name; });
  }

  const absl::Span<const Component> components_;
  std::map<absl::string_view, Gate> gates_;
  std::map<absl::string_view, Choice> choices_;
  // What was set by name.
  std::map<absl::string_view, bool> named_;
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
  return Resolution(components, overrides).Run();
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
