// SPDX-License-Identifier: Apache-2.0
//
// The part of config.h that writes a Config down: ToString and WhatNeedsARestart.
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/config/settings.h"

namespace kipt::agent {
namespace {

// Names and values.
std::vector<std::pair<absl::string_view, std::string>> ConfigLines(const Config& config) {
  std::vector<std::pair<absl::string_view, std::string>> lines;
  for (const Setting& setting : kSettings) {
    if (setting.print == nullptr) continue;
    std::string value = setting.print(config);
    if (value.empty()) value = std::string(setting.if_empty);
    if (setting.field == "ipFamilies" && config.families_by_kernel) {
      absl::StrAppend(&value, " (", FamiliesText(config.families), ")");
    }
    lines.emplace_back(setting.field, std::move(value));
    // No setting, but what the ones above choose.
    if (setting.flag == "make-iptables-util-chains") {
      lines.emplace_back("mode", ModeName(config.mode));
    }
  }
  return lines;
}

}  // namespace

absl::string_view WatchModeName(netlink::WatchMode mode) {
  return mode == netlink::WatchMode::kPoll ? "poll" : "events";
}

std::string FamiliesText(absl::Span<const netlink::Family> families) {
  return absl::StrJoin(families, ",", [](std::string* out, netlink::Family family) {
    *out += family == netlink::Family::kIPv4 ? "ipv4" : "ipv6";
  });
}

std::string ToString(const Config& config) {
  return absl::StrCat(absl::StrJoin(ConfigLines(config), "\n", absl::PairFormatter(": ")), "\n");
}

std::vector<ConfigChange> WhatChanges(const Config& from, const Config& to) {
  const auto before = ConfigLines(from);
  const auto after = ConfigLines(to);
  std::vector<ConfigChange> changes;
  for (size_t i = 0; i < after.size(); ++i) {
    if (before[i] == after[i]) continue;
    changes.push_back({std::string(after[i].first), before[i].second, after[i].second});
  }
  return changes;
}

std::vector<std::string> WhatNeedsARestart(const Config& running, const Config& wanted) {
  std::vector<std::string> lines;
  for (const ConfigChange& change : WhatChanges(running, wanted)) {
    const bool fixed = absl::c_any_of(kSettings, [&change](const Setting& setting) {
      return setting.fixed && setting.field == change.name;
    });
    if (!fixed) continue;
    lines.push_back(absl::StrCat(change.name, ": ", change.from, " now, ", change.to, " wanted"));
  }
  return lines;
}

}  // namespace kipt::agent
