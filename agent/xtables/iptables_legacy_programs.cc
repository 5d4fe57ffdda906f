// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_legacy_programs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace kipt::agent {
namespace {

// Since this version, and until that of the row above: iptables-restore
// takes the lock, and -w, since 1.6.2, as MASQUERADE takes --random-fully; XTABLES_LOCKFILE is read
// since 1.8.7.
struct FeatureRow {
  IptablesVersion since;
  IptablesFeatures features;
};
constexpr std::array kFeatures = {
    FeatureRow{{1, 8, 7}, {.restore_lock = RestoreLock::kMovable, .random_fully = true}},
    FeatureRow{{1, 6, 2}, {.restore_lock = RestoreLock::kOwn, .random_fully = true}},
    FeatureRow{{0, 0, 0}, {.restore_lock = RestoreLock::kNone, .random_fully = false}},
};

// The first version that names its variant.
constexpr IptablesVersion kVariants = {1, 8, 0};

constexpr absl::Duration kVersionDeadline = absl::Seconds(10);
constexpr size_t kVersionLimit = 64 << 10;

absl::string_view BaseName(netlink::Family family) {
  return family == netlink::Family::kIPv4 ? "iptables" : "ip6tables";
}

bool IsExecutable(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// What `program` says of itself. iptables-restore knows --version since 1.6.2 only, and then the
// program beside it, `sibling`, is asked.
absl::StatusOr<IptablesProgram> AskVersion(CommandRunner& runner, const std::string& program,
                                           const std::string& sibling) {
  absl::Status failure;
  for (const std::string& path : {program, sibling}) {
    const absl::StatusOr<CommandResult> result =
        runner.Run({.program = path,
                    .arguments = {"--version"},
                    .environment = IptablesLegacyEnvironment(),
                    .deadline = kVersionDeadline,
                    .output_limit = kVersionLimit});
    if (!result.ok()) {
      failure.Update(result.status());
      continue;
    }
    if (auto version = ParseIptablesVersion(result->output); version && result->exit_code == 0) {
      return *version;
    }
    failure.Update(absl::NotFoundError(
        absl::StrCat(path, " --version: exit code ", result->exit_code, " and no version")));
  }
  return failure;
}

// The programs called STEM-save and STEM-restore, where they are legacy. `seen` is told of what is
// not.
std::optional<IptablesLegacyPrograms> TryStem(CommandRunner& runner, const std::string& stem,
                                              std::vector<std::string>& seen) {
  IptablesLegacyPrograms programs{
      .save = stem + "-save", .restore = stem + "-restore", .version = {}};
  if (!IsExecutable(programs.save) || !IsExecutable(programs.restore)) return std::nullopt;
  const absl::StatusOr<IptablesProgram> found = AskVersion(runner, programs.restore, stem);
  if (!found.ok()) {
    seen.push_back(std::string(found.status().message()));
    return std::nullopt;
  }
  if (!found->legacy()) {
    seen.push_back(absl::StrCat(programs.restore, " is ", ToString(found->version), " (",
                                found->variant.empty() ? "no variant" : found->variant, ")"));
    return std::nullopt;
  }
  programs.version = found->version;
  return programs;
}

}  // namespace

std::string ToString(const IptablesVersion& version) {
  return absl::StrCat(version.major, ".", version.minor, ".", version.patch);
}

bool IptablesProgram::legacy() const {
  return variant == "legacy" || (variant.empty() && version < kVariants);
}

std::optional<IptablesProgram> ParseIptablesVersion(absl::string_view text) {
  const absl::string_view line = text.substr(0, text.find('\n'));
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (words.size() < 2 || words.size() > 3) return std::nullopt;
  absl::string_view number = words[1];
  if (!absl::ConsumePrefix(&number, "v")) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(number, '.');
  IptablesProgram program;
  // "1.8.3.1" has been a release; "1.8" may be one.
  const std::array<int*, 3> fields = {&program.version.major, &program.version.minor,
                                      &program.version.patch};
  if (parts.size() < 2 || parts.size() > 4) return std::nullopt;
  for (size_t i = 0; i < std::min(parts.size(), fields.size()); ++i) {
    if (!absl::SimpleAtoi(parts[i], fields[i]) || *fields[i] < 0) return std::nullopt;
  }
  if (words.size() == 2) return program;
  absl::string_view variant = words[2];
  if (!absl::ConsumePrefix(&variant, "(") || !absl::ConsumeSuffix(&variant, ")")) {
    return std::nullopt;
  }
  program.variant = std::string(variant);
  return program;
}

IptablesFeatures FeaturesOf(const IptablesVersion& version) {
  const auto* row =
      std::find_if(kFeatures.begin(), kFeatures.end(),
                   [&](const FeatureRow& candidate) { return version >= candidate.since; });
  return row != kFeatures.end() ? row->features : kFeatures.back().features;
}

std::vector<std::string> RestoreWaitArguments(const IptablesVersion& version, absl::Duration wait) {
  if (FeaturesOf(version).restore_lock == RestoreLock::kNone) return {};
  // Whole seconds; without a number it would wait for ever.
  const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(wait, absl::Seconds(1)));
  return {"-w", absl::StrCat(std::max<int64_t>(seconds, 1))};
}

absl::StatusOr<IptablesLegacyPrograms> FindIptablesLegacyPrograms(
    CommandRunner& runner, netlink::Family family, const std::vector<std::string>& directories) {
  std::vector<std::string> seen;
  for (const char* suffix : {"-legacy", ""}) {
    for (const std::string& directory : directories) {
      const std::string stem = absl::StrCat(directory, "/", BaseName(family), suffix);
      if (auto programs = TryStem(runner, stem, seen)) return *programs;
    }
  }
  std::string message =
      absl::StrCat("no ", BaseName(family), "-legacy-save and ", BaseName(family),
                   "-legacy-restore in ", absl::StrJoin(directories, ", "),
                   ", and no legacy programs under other names: install iptables");
  if (!seen.empty()) absl::StrAppend(&message, " (found: ", absl::StrJoin(seen, "; "), ")");
  return absl::NotFoundError(message);
}

std::vector<std::string> IptablesLegacyEnvironment() {
  // PATH is for what the programs may run themselves: modprobe.
  return {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"};
}

}  // namespace kipt::agent
