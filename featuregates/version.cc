// SPDX-License-Identifier: Apache-2.0
#include "featuregates/version.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "featuregates/go_text.h"

namespace kipt::featuregates {
namespace {

// SimpleAtoi alone would take signs and spaces.
std::optional<int> ParseComponent(absl::string_view text) {
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  if (!digits || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  int value = 0;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

}  // namespace

absl::StatusOr<Version> ParseVersion(absl::string_view text) {
  const absl::string_view numbers = absl::StripPrefix(text, "v");
  const size_t dot = numbers.find('.');
  if (dot != absl::string_view::npos) {
    const std::optional<int> major = ParseComponent(numbers.substr(0, dot));
    const std::optional<int> minor = ParseComponent(numbers.substr(dot + 1));
    if (major.has_value() && minor.has_value()) return Version{.major = *major, .minor = *minor};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("invalid version ", GoQuote(text),
                   ": write MAJOR.MINOR without a patch level, such as 1.27"));
}

std::string ToString(Version version) { return absl::StrCat(version.major, ".", version.minor); }

}  // namespace kipt::featuregates
