// SPDX-License-Identifier: Apache-2.0
//
// The plan of every step from one Kubernetes release to the next, per gate setting and family, as
// files that are meant to be read: tests/golden/FAMILY/STEP.gate-SETTING.plan. Steps with the same
// plan are in the file of the first. After a deliberate change, run this test with
// KIPT_UPDATE_GOLDEN=1 and read the difference.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/config/config.h"
#include "agent/report/report.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

using featuregates::Version;

struct Step {
  std::optional<Version> from;  // none: an empty node
  Version to;
};

const Step kSteps[] = {
    {{}, {1, 24}},        {{{1, 24}}, {1, 25}}, {{{1, 25}}, {1, 26}}, {{{1, 26}}, {1, 27}},
    {{{1, 27}}, {1, 28}}, {{{1, 28}}, {1, 29}}, {{{1, 29}}, {1, 30}}, {{{1, 30}}, {1, 31}},
    {{}, {1, 27}},        {{}, {1, 31}},
};

enum class Setting { kDefault, kOff, kOn };
constexpr Setting kSettings[] = {Setting::kDefault, Setting::kOff, Setting::kOn};

std::string Name(Setting setting) {
  return setting == Setting::kDefault ? "default" : setting == Setting::kOn ? "on" : "off";
}

// The mode at `version` with the gate set so; none where that release refuses the setting.
std::optional<Mode> ModeAt(Version version, Setting setting) {
  featuregates::Overrides overrides;
  if (setting != Setting::kDefault) {
    overrides.values["IPTablesOwnershipCleanup"] = setting == Setting::kOn;
  }
  const auto gates = ResolveFeatureGates(version, {overrides});
  if (!gates.ok()) return std::nullopt;
  return ModeFor(*gates, true);
}

struct Golden {
  std::string file;
  std::string steps;  // a line for each
  std::string plan;
};

// What `plan` prints in the step; none where the release refuses the setting.
std::optional<Golden> MakeGolden(const Step& step, Setting setting, Family family) {
  const std::optional<Mode> mode = ModeAt(step.to, setting);
  if (!mode.has_value()) return std::nullopt;
  netlink::Snapshot before;
  std::string start = "an empty node";
  if (step.from.has_value()) {
    // The same setting before the step, or the default where that release refuses it.
    const Mode mode_before =
        ModeAt(*step.from, setting).value_or(*ModeAt(*step.from, Setting::kDefault));
    before = Made(Wanting(mode_before, {&family, 1}, {})).snapshot();
    start = absl::StrCat("what ", featuregates::ToString(*step.from), " left in ",
                         std::string(ModeName(mode_before)), " mode");
  }
  const Subject subject{.emulated_version = step.to,
                        .iptables_mode = "nft",
                        .input = Wanting(*mode, {&family, 1}, {}),
                        .show_all = true};
  const std::string name =
      absl::StrCat(step.from.has_value() ? featuregates::ToString(*step.from) : "empty", "-to-",
                   featuregates::ToString(step.to), ".gate-", Name(setting), ".plan");
  return Golden{.file = absl::StrCat(netlink::FamilyName(family), "/", name),
                .steps = absl::StrCat("# from ", start, " to ", featuregates::ToString(step.to),
                                      ", gate ", Name(setting), "\n"),
                .plan = PlanText(subject, {.generation = before.generation,
                                           .diff = ComputeDiff(subject.input, before)})};
}

std::vector<Golden> AllGolden() {
  std::vector<Golden> all;
  for (const Step& step : kSteps) {
    for (const Setting setting : kSettings) {
      for (const Family family : netlink::kFamilies) {
        std::optional<Golden> golden = MakeGolden(step, setting, family);
        if (!golden.has_value()) continue;
        const auto same = absl::c_find_if(
            all, [&golden](const Golden& other) { return other.plan == golden->plan; });
        if (same == all.end()) {
          all.push_back(*std::move(golden));
        } else {
          same->steps += golden->steps;
        }
      }
    }
  }
  return all;
}

TEST(GoldenTest, EveryStepPlansWhatItsFileLists) {
  const std::filesystem::path root = KIPT_GOLDEN_DIR;
  const bool update = std::getenv("KIPT_UPDATE_GOLDEN") != nullptr;
  for (const Golden& golden : AllGolden()) {
    const std::filesystem::path path = root / golden.file;
    if (update) {
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << golden.steps << golden.plan;
    }
    EXPECT_EQ(golden.steps + golden.plan, FileText(path)) << path;
  }
}

TEST(GoldenTest, NoFileIsLeftThatNoStepMakes) {
  std::set<std::string> made;
  for (const Golden& golden : AllGolden()) made.insert(golden.file);
  std::set<std::string> found;
  const std::filesystem::path root = KIPT_GOLDEN_DIR;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() == ".plan") {
      found.insert(std::filesystem::relative(entry.path(), root).string());
    }
  }
  EXPECT_EQ(found, made);
}

}  // namespace
}  // namespace kipt::agent
