// SPDX-License-Identifier: Apache-2.0
#include "featuregates/feature.h"

#include <array>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "featuregates/go_text.h"

namespace kipt::featuregates {
namespace {

// Checking continues after a fault; `status` keeps the first.
template <typename... Parts>
void Refuse(absl::Status& status, bool faulty, const Parts&... parts) {
  if (faulty) status.Update(absl::InternalError(absl::StrCat(parts...)));
}

void CheckStep(absl::string_view feature, const Milestone& last, const Milestone& next,
               absl::Status& status) {
  const std::string last_since = ToString(last.since);
  const std::string next_since = ToString(next.since);
  Refuse(status, next.since < last.since, feature,
         " lists version transitions in decreasing order (", next_since, " < ", last_since, ")");
  Refuse(status, next.since == last.since, feature,
         " lists duplicate entries with the same versions (", next_since, " = ", last_since, ")");
  Refuse(status,
         next.stage == last.stage && next.enabled == last.enabled && next.locked == last.locked,
         feature, " lists transition without stability change (", last_since, " -> ", next_since,
         ")");
  Refuse(status, last.locked && !next.locked, feature, " must not unlock after locking to default");
  Refuse(status, last.stage == Stage::kDeprecated && next.stage != Stage::kDeprecated,
         "deprecated ", feature, " must not resurrect from its terminal state");
  Refuse(status, next.stage < last.stage, feature,
         " regresses stability from more stable level to ", StageName(next.stage), " in ",
         next_since);
}

void CheckLife(const Feature& feature, absl::Status& status) {
  const std::string name = absl::StrCat("feature ", GoQuote(feature.name));
  Refuse(status, feature.milestones.empty(), name, " has no milestones");
  if (feature.milestones.empty()) return;
  const Milestone& first = feature.milestones.front();
  Refuse(status, first.stage == Stage::kDeprecated && first.since.minor != 0, name,
         " introduced as deprecated must provide a 1.0 entry indicating initial state");
  for (size_t i = 1; i < feature.milestones.size(); ++i) {
    CheckStep(name, feature.milestones[i - 1], feature.milestones[i], status);
  }
  const Version last = feature.milestones.back().since;
  if (!feature.removed.has_value()) return;
  Refuse(status, *feature.removed <= last, name, " is removed in ", ToString(*feature.removed),
         ", not after its last milestone (", ToString(last), ")");
}

// A feature must not be more stable than its dependencies.
int Stability(Stage stage) {
  constexpr std::array kInOrderOfStages = {1, 1, 2, 3, 0};
  return kInOrderOfStages.at(static_cast<size_t>(stage));
}

void CheckDependency(const Feature& feature, const Milestone& own, const Feature& dependency,
                     absl::Status& status) {
  const Milestone absent{.since = own.since, .stage = Stage::kPreAlpha};
  const Milestone* found = MilestoneAt(dependency, own.since);
  const Milestone& needed = found == nullptr ? absent : *found;
  const std::string since = ToString(own.since);
  Refuse(status, Stability(own.stage) > Stability(needed.stage), StageName(own.stage), " feature ",
         feature.name, " cannot depend on ", StageName(needed.stage), " feature ", dependency.name,
         " at version ", since);
  Refuse(status, own.enabled && !needed.enabled, "default-enabled feature ", feature.name,
         " cannot depend on default-disabled feature ", dependency.name, " at version ", since);
  Refuse(status, own.locked && !needed.locked, "locked-to-default feature ", feature.name,
         " cannot depend on unlocked feature ", dependency.name, " at version ", since);
}

void CheckDependencies(const Component& component, const Feature& feature, absl::Status& status) {
  for (const Feature* dependency : feature.depends_on) {
    Refuse(status, !absl::c_linear_search(component.features, dependency),
           "cannot add dependency from ", feature.name, " to unknown feature ", dependency->name);
    // The newest milestone first: the message then names the newest release.
    for (size_t i = feature.milestones.size(); i > 0; --i) {
      CheckDependency(feature, feature.milestones[i - 1], *dependency, status);
    }
  }
}

// `path` leads to `feature`.
void CheckCycles(const Feature& feature, std::vector<const Feature*> path, absl::Status& status) {
  const bool cycle = absl::c_linear_search(path, &feature);
  Refuse(status, cycle, "cycle detected with feature ", feature.name);
  if (cycle) return;
  path.push_back(&feature);
  for (const Feature* dependency : feature.depends_on) CheckCycles(*dependency, path, status);
}

}  // namespace

std::string ToString(Version version) { return absl::StrCat(version.major, ".", version.minor); }

absl::string_view StageLabel(Stage stage) {
  constexpr std::array<absl::string_view, 5> kInOrder = {"PRE-ALPHA", "ALPHA", "BETA", "",
                                                         "DEPRECATED"};
  return kInOrder.at(static_cast<size_t>(stage));
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
  absl::Status status;
  std::set<absl::string_view> names = {"AllAlpha", "AllBeta"};
  for (const Component& component : components) {
    for (const Feature* feature : component.features) {
      Refuse(status, !names.insert(feature->name).second, "feature gate ", GoQuote(feature->name),
             " is declared twice");
    }
  }
  for (const Component& component : components) {
    for (const Feature* feature : component.features) CheckLife(*feature, status);
    for (const Feature* feature : component.features) {
      CheckDependencies(component, *feature, status);
      CheckCycles(*feature, {}, status);
    }
  }
  return status;
}

}  // namespace kipt::featuregates
