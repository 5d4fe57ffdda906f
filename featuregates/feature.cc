// SPDX-License-Identifier: Apache-2.0
#include "featuregates/feature.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "featuregates/go_text.h"

namespace kipt::featuregates {
namespace {

template <typename... Parts>
absl::Status Misdeclared(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}

absl::Status CheckFirst(const Feature& feature) {
  if (feature.milestones.empty()) {
    return Misdeclared("feature ", GoQuote(feature.name), " has no milestones");
  }
  const Milestone& first = feature.milestones.front();
  if (first.stage == Stage::kDeprecated && first.since.minor != 0) {
    return Misdeclared("feature ", GoQuote(feature.name),
                       " introduced as deprecated must provide a 1.0 entry indicating initial "
                       "state");
  }
  return absl::OkStatus();
}

absl::Status CheckStep(absl::string_view name, const Milestone& last, const Milestone& next) {
  const std::string feature = absl::StrCat("feature ", GoQuote(name));
  const std::string last_since = ToString(last.since);
  const std::string next_since = ToString(next.since);
  if (next.since < last.since) {
    return Misdeclared(feature, " lists version transitions in decreasing order (", next_since,
                       " < ", last_since, ")");
  }
  if (next.since == last.since) {
    return Misdeclared(feature, " lists duplicate entries with the same versions (", next_since,
                       " = ", last_since, ")");
  }
  if (next.stage == last.stage && next.enabled == last.enabled && next.locked == last.locked) {
    return Misdeclared(feature, " lists transition without stability change (", last_since, " -> ",
                       next_since, ")");
  }
  if (last.locked && !next.locked) {
    return Misdeclared(feature, " must not unlock after locking to default");
  }
  if (last.stage == Stage::kDeprecated && next.stage != Stage::kDeprecated) {
    return Misdeclared("deprecated ", feature, " must not resurrect from its terminal state");
  }
  if (next.stage < last.stage) {
    return Misdeclared(feature, " regresses stability from more stable level to ",
                       StageName(next.stage), " in ", next_since);
  }
  return absl::OkStatus();
}

absl::Status CheckLife(const Feature& feature) {
  if (absl::Status status = CheckFirst(feature); !status.ok()) return status;
  for (size_t i = 1; i < feature.milestones.size(); ++i) {
    absl::Status status = CheckStep(feature.name, feature.milestones[i - 1], feature.milestones[i]);
    if (!status.ok()) return status;
  }
  const Milestone& last = feature.milestones.back();
  if (feature.removed.has_value() && *feature.removed <= last.since) {
    return Misdeclared("feature ", GoQuote(feature.name), " is removed in ",
                       ToString(*feature.removed), ", not after its last milestone (",
                       ToString(last.since), ")");
  }
  return absl::OkStatus();
}

// What depends on a feature must not stand higher than it does.
int Stability(Stage stage) {
  switch (stage) {
    case Stage::kDeprecated:
      return 0;
    case Stage::kPreAlpha:
    case Stage::kAlpha:
      return 1;
    case Stage::kBeta:
      return 2;
    case Stage::kGA:
      return 3;
  }
  return -1;
}

absl::Status CheckDependency(const Feature& feature, const Milestone& own,
                             const Feature& dependency) {
  // What is not there yet is off, free and not stable.
  const Milestone absent{.since = own.since, .stage = Stage::kPreAlpha};
  const Milestone* found = MilestoneAt(dependency, own.since);
  const Milestone& needed = found == nullptr ? absent : *found;
  const std::string since = ToString(own.since);
  if (Stability(own.stage) > Stability(needed.stage)) {
    return Misdeclared(StageName(own.stage), " feature ", feature.name, " cannot depend on ",
                       StageName(needed.stage), " feature ", dependency.name, " at version ",
                       since);
  }
  if (own.enabled && !needed.enabled) {
    return Misdeclared("default-enabled feature ", feature.name,
                       " cannot depend on default-disabled feature ", dependency.name,
                       " at version ", since);
  }
  if (own.locked && !needed.locked) {
    return Misdeclared("locked-to-default feature ", feature.name,
                       " cannot depend on unlocked feature ", dependency.name, " at version ",
                       since);
  }
  return absl::OkStatus();
}

absl::Status CheckDependencies(const Component& component, const Feature& feature) {
  for (const Feature* dependency : feature.depends_on) {
    const auto& known = component.features;
    if (std::find(known.begin(), known.end(), dependency) == known.end()) {
      return Misdeclared("cannot add dependency from ", feature.name, " to unknown feature ",
                         dependency->name);
    }
    // The newest milestone first: the message then names the release that people work on.
    for (size_t i = feature.milestones.size(); i > 0; --i) {
      absl::Status status = CheckDependency(feature, feature.milestones[i - 1], *dependency);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

enum class Visit : uint8_t { kNever, kUnderWay, kDone };

absl::Status CheckCycles(const Feature& feature, std::map<const Feature*, Visit>& visits) {
  Visit& visit = visits[&feature];
  if (visit == Visit::kDone) return absl::OkStatus();
  if (visit == Visit::kUnderWay) {
    return Misdeclared("cycle detected with feature ", feature.name);
  }
  visit = Visit::kUnderWay;
  for (const Feature* dependency : feature.depends_on) {
    if (absl::Status status = CheckCycles(*dependency, visits); !status.ok()) return status;
  }
  visit = Visit::kDone;
  return absl::OkStatus();
}

absl::Status CheckComponent(const Component& component) {
  for (const Feature* feature : component.features) {
    if (absl::Status status = CheckLife(*feature); !status.ok()) return status;
  }
  std::map<const Feature*, Visit> visits;
  for (const Feature* feature : component.features) {
    absl::Status status = CheckDependencies(component, *feature);
    if (status.ok()) status = CheckCycles(*feature, visits);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view StageLabel(Stage stage) {
  switch (stage) {
    case Stage::kPreAlpha:
      return "PRE-ALPHA";
    case Stage::kAlpha:
      return "ALPHA";
    case Stage::kBeta:
      return "BETA";
    case Stage::kGA:
      return "";
    case Stage::kDeprecated:
      return "DEPRECATED";
  }
  return "";
}

absl::string_view StageName(Stage stage) { return stage == Stage::kGA ? "GA" : StageLabel(stage); }

const Milestone* MilestoneAt(const Feature& feature, Version version) {
  const Milestone* current = nullptr;
  for (const Milestone& milestone : feature.milestones) {
    if (milestone.since <= version) current = &milestone;
  }
  return current;
}

bool IsNameable(const Feature& feature, Version version) {
  const bool removed = feature.removed.has_value() && *feature.removed <= version;
  return !removed && MilestoneAt(feature, version) != nullptr;
}

absl::Status CheckDeclarations(absl::Span<const Component> components) {
  std::set<absl::string_view> names = {"AllAlpha", "AllBeta"};
  for (const Component& component : components) {
    for (const Feature* feature : component.features) {
      if (!names.insert(feature->name).second) {
        return Misdeclared("feature gate ", GoQuote(feature->name), " is declared twice");
      }
    }
  }
  for (const Component& component : components) {
    if (absl::Status status = CheckComponent(component); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace kipt::featuregates
