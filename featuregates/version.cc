// SPDX-License-Identifier: Apache-2.0
#include "featuregates/version.h"

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

std::string ToString(Version version) { return absl::StrCat(version.major, ".", version.minor); }

}  // namespace kipt::featuregates
