// SPDX-License-Identifier: Apache-2.0
//
// The typed readers of YamlDocument: which type YAML gives a value, and what is accepted as what.
#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/config/yaml_document.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

// YAML 1.1, as go-yaml v2 resolves plain scalars.
std::optional<bool> ResolveBool(absl::string_view text) {
  static constexpr std::array<absl::string_view, 4> kTrue = {"y", "yes", "true", "on"};
  static constexpr std::array<absl::string_view, 4> kFalse = {"n", "no", "false", "off"};
  const std::string lower = absl::AsciiStrToLower(text);
  std::string capitalised = lower;
  if (!lower.empty()) capitalised[0] = absl::ascii_toupper(static_cast<unsigned char>(lower[0]));
  if (text != lower && text != capitalised && text != absl::AsciiStrToUpper(text)) {
    return std::nullopt;
  }
  if (std::find(kTrue.begin(), kTrue.end(), lower) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), lower) != kFalse.end()) return false;
  return std::nullopt;
}

bool LooksLikeNumber(absl::string_view text) {
  double number = 0;
  if (text.empty() || absl::ascii_isalpha(static_cast<unsigned char>(text[0]))) return false;
  uint64_t bits = 0;
  return absl::SimpleAtod(text, &number) ||
         (absl::StartsWithIgnoreCase(text, "0x") && absl::SimpleHexAtoi(text, &bits));
}

// What YAML makes of a node, in words.
std::string TypeOf(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "no value";
    case YamlNode::Kind::kSequence:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a map";
    case YamlNode::Kind::kScalar:
      break;
  }
  const std::string text = featuregates::QuoteForMessage(node.text);
  if (!node.tag.empty())
    return absl::StrCat(text, " with the tag ", featuregates::QuoteForMessage(node.tag));
  // What YAML reads as a boolean or a number has nothing to escape.
  if (node.plain && ResolveBool(node.text)) return absl::StrCat("the boolean ", node.text);
  if (node.plain && LooksLikeNumber(node.text)) {
    return absl::StrCat("the number ", node.text.substr(0, 60));
  }
  return absl::StrCat("the string ", text);
}

}  // namespace

absl::Status YamlDocument::WrongType(const YamlNode& node, absl::string_view path,
                                     absl::string_view accepted) const {
  return ErrorAt(node.line,
                 absl::StrCat(path, ": found ", TypeOf(node), ", but it must be ", accepted));
}

absl::StatusOr<bool> YamlDocument::Bool(const YamlNode& node, absl::string_view path) const {
  if (absl::Status status = CheckWrittenOut(node); !status.ok()) return status;
  const std::optional<bool> value = node.plain ? ResolveBool(node.text) : std::nullopt;
  if (!value) return WrongType(node, path, "true or false, without quotes");
  return *value;
}

absl::StatusOr<int32_t> YamlDocument::Int32(const YamlNode& node, absl::string_view path) const {
  if (absl::Status status = CheckWrittenOut(node); !status.ok()) return status;
  static constexpr absl::string_view kAccepted =
      "a decimal integer, without quotes, leading zeros or a fraction";
  const absl::string_view digits = absl::StripPrefix(node.text, "-");
  const bool decimal = node.plain && !digits.empty() &&
                       std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
                       (digits[0] != '0' || node.text == "0");
  if (!decimal) return WrongType(node, path, kAccepted);
  int32_t value = 0;
  if (!absl::SimpleAtoi(node.text, &value)) {
    return WrongType(node, path, "between -2147483648 and 2147483647");
  }
  return value;
}

absl::StatusOr<std::string> YamlDocument::String(const YamlNode& node,
                                                 absl::string_view path) const {
  if (absl::Status status = CheckWrittenOut(node); !status.ok()) return status;
  const bool typed = node.plain && (ResolveBool(node.text) || LooksLikeNumber(node.text));
  if (node.kind != YamlNode::Kind::kScalar || typed || !node.tag.empty()) {
    std::string accepted = "a string";
    if (typed)
      absl::StrAppend(&accepted, ", in quotes: ", featuregates::QuoteForMessage(node.text));
    return WrongType(node, path, accepted);
  }
  return node.text;
}

}  // namespace kipt::agent
