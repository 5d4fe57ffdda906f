// SPDX-License-Identifier: Apache-2.0
//
// File: featuregates/version.h
//
// A release as far as feature gates care: major and minor. Gates never change in a patch release.
#ifndef KIPT_FEATUREGATES_VERSION_H_
#define KIPT_FEATUREGATES_VERSION_H_

#include <compare>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::featuregates {

// Not negative. Ordered as releases are: 1.9 < 1.10 < 2.0.
struct Version {
  int major = 0;
  int minor = 0;

  // clang-tidy 14 takes the 0 inside the generated comparison for a null pointer.
  constexpr auto operator<=>(const Version&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Parses "1.27" or "v1.27" and nothing else: no patch level (a "1.27.3" that silently meant 1.27
// would read as a promise to behave as that patch), no spaces, no leading zeros.
// InvalidArgument, with a message that says what to write.
absl::StatusOr<Version> ParseVersion(absl::string_view text);

// "1.27".
std::string ToString(Version version);

}  // namespace kipt::featuregates

#endif  // KIPT_FEATUREGATES_VERSION_H_
