// SPDX-License-Identifier: Apache-2.0
//
// ParseFlag of settings.h: a Read for each type of setting.
#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/config/go_duration.h"
#include "agent/config/settings.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

// klog's -v. The other numbers are read as pflag reads kubelet's.
absl::StatusOr<int> ParseLevel(absl::string_view text) {
  const absl::string_view digits = absl::StripPrefix(text, "-");
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      (digits[0] == '0' && digits.size() > 1)) {
    return absl::InvalidArgumentError("it must be a decimal integer");
  }
  int number = 0;
  if (!absl::SimpleAtoi(text, &number)) return absl::InvalidArgumentError("value out of range");
  return number;
}

absl::StatusOr<bool> ParseBool(absl::string_view text) {
  absl::StatusOr<bool> value = featuregates::GoParseBool(text);
  if (value.ok()) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(value.status().message(), "; it must be true or false"));
}

template <typename T, typename U>
absl::Status Store(const absl::StatusOr<T>& parsed, U& value) {
  if (parsed.ok()) value = *parsed;
  return parsed.status();
}

absl::Status Read(absl::string_view /*type*/, absl::string_view text, bool& value) {
  return Store(ParseBool(text), value);
}
absl::Status Read(absl::string_view /*type*/, absl::string_view text, std::optional<bool>& value) {
  return Store(ParseBool(text), value);
}
absl::Status Read(absl::string_view type, absl::string_view text, std::optional<int>& value) {
  return Store(type == "Level" ? ParseLevel(text) : featuregates::GoParseInt32(text), value);
}
absl::Status Read(absl::string_view type, absl::string_view text,
                  std::optional<std::string>& value) {
  if (text.empty() && (type == "directory" || type == "file" || type == "path")) {
    return absl::InvalidArgumentError(
        absl::StrCat("it must be a ", type == "directory" ? type : "path"));
  }
  value = std::string(text);
  return absl::OkStatus();
}
absl::Status Read(absl::string_view /*type*/, absl::string_view text,
                  std::optional<absl::Duration>& value) {
  return Store(ParseGoDuration(text), value);
}
absl::Status Read(absl::string_view /*type*/, absl::string_view text,
                  std::vector<std::string>& value) {
  value.emplace_back(text);
  return absl::OkStatus();
}
absl::Status Read(absl::string_view /*type*/, absl::string_view text, OutputFormat& value) {
  if (text != "text" && text != "json" && text != "dot") {
    return absl::InvalidArgumentError("it must be text or json, or dot for audit");
  }
  value = text == "text"   ? OutputFormat::kText
          : text == "json" ? OutputFormat::kJson
                           : OutputFormat::kDot;
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseFlag(const Setting& setting, absl::string_view text, Flags& flags) {
  return std::visit([&](auto member) { return Read(setting.type, text, flags.*member); },
                    setting.member);
}

}  // namespace kipt::agent
