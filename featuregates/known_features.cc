// SPDX-License-Identifier: Apache-2.0
#include "featuregates/known_features.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "featuregates/go_text.h"

namespace kipt::featuregates {

absl::StatusOr<Version> ParseVersion(absl::string_view text) {
  const absl::string_view numbers = absl::StripPrefix(text, "v");
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(numbers, absl::MaxSplits('.', 1));
  Version version;
  // Whatever else SimpleAtoi takes (spaces, signs, leading zeros) reads otherwise when printed.
  if (absl::SimpleAtoi(parts.first, &version.major) && version.major >= 0 &&
      absl::SimpleAtoi(parts.second, &version.minor) && version.minor >= 0 &&
      ToString(version) == numbers) {
    return version;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("invalid version ", GoQuote(text),
                   ": write MAJOR.MINOR without a patch level, such as 1.27"));
}

absl::StatusOr<EmulatedVersion> ResolveEmulatedVersion(absl::string_view text) {
  const std::string newest = ToString(kNewestKnownRelease);
  const std::string range = absl::StrCat("accepted are ", ToString(kOldestEmulatedVersion), " to ",
                                         newest, ", and newer 1.x, which behave as ", newest);
  const absl::StatusOr<Version> version = ParseVersion(text);
  if (!version.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--emulated-version: ", version.status().message(), "; ", range));
  }
  if (version->major != kNewestKnownRelease.major || *version < kOldestEmulatedVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("--emulated-version: cannot emulate ", ToString(*version), "; ", range));
  }
  if (*version > kNewestKnownRelease) {
    return EmulatedVersion{
        .version = kNewestKnownRelease,
        .warning =
            absl::StrCat("--emulated-version ", ToString(*version),
                         " is newer than the newest release known here; behaving as ", newest)};
  }
  return EmulatedVersion{.version = *version, .warning = ""};
}

}  // namespace kipt::featuregates
