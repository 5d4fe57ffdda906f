// SPDX-License-Identifier: Apache-2.0
#include "featuregates/known_features.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kipt::featuregates {

Overrides FromKubeletConfiguration(GateValues feature_gates) {
  return {.values = std::move(feature_gates),
          .unknown = Overrides::Unknown::kIgnore,
          .component = absl::StrCat(kKubeletComponentName)};
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
