// SPDX-License-Identifier: Apache-2.0
#include "agent/config/yaml_document.h"

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "featuregates/go_text.h"
#include "yaml-cpp/anchor.h"
#include "yaml-cpp/emitterstyle.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/mark.h"
#include "yaml-cpp/parser.h"

namespace kipt::agent {
namespace {

absl::Status Error(absl::string_view origin, int line, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(origin, ":", line, ": ", message));
}

// The 1-based line `number` of `text`; empty behind the last.
absl::string_view LineOf(absl::string_view text, int number) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (--number == 0) return line;
  }
  return "";
}

// yaml-cpp takes bytes for UTF-16 or UTF-32 by their look and byte 0x04 for the end of the file, so
// it is given nothing but printable UTF-8.
absl::Status CheckText(absl::string_view origin, absl::string_view text) {
  if (text.size() > kMaxYamlBytes) {
    return Error(origin, 1, absl::StrCat("the file is larger than ", kMaxYamlBytes, " bytes"));
  }
  int line = 1;
  while (!text.empty()) {
    const char c = text.front();
    const featuregates::Rune rune = featuregates::FirstRune(text);
    if (!rune.valid) return Error(origin, line, "not a YAML text: the bytes are not UTF-8");
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && !absl::StrContains("\n\r\t", c)) {
      return Error(origin, line,
                   absl::StrCat("not a YAML text: it contains the control character 0x",
                                absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2)));
    }
    if (c == '\n') ++line;
    text.remove_prefix(rune.length);
  }
  return absl::OkStatus();
}

// Builds the tree from the parser's events. After the first problem it ignores what follows: the
// parser itself ends with the document, at depth 500 (its own limit) at the latest.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(absl::string_view origin, absl::string_view text) : origin_(origin), text_(text) {}

  const absl::Status& status() const { return status_; }
  // The last line an event came from.
  int last_line() const { return last_line_; }
  YamlNode TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ < 2) return;
    const bool marked = absl::StartsWith(LineOf(text_, mark.line + 1), "---");
    Fail(mark, marked ? "a second document begins here; a configuration file holds one"
                      : "unexpected text behind the end of the document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (!Accept(mark)) return;
    if (ExpectsKey()) return Fail(mark, "a value without a key");
    int line = mark.line + 1;
    if (!open_.empty() && open_.back().key_position) {
      const YamlEntry& entry = open_.back().node->entries.back();
      // The library takes `word` on a line of its own for a key with no value.
      if (open_.back().key_position == mark.pos) {
        return Fail(mark, absl::StrCat("the key ", featuregates::QuoteForMessage(entry.key),
                                       " is not followed by a colon"));
      }
      line = entry.key_line;
    }
    Place() = MakeNode(YamlNode::Kind::kNull, line, "", anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    AddScalar(mark, MakeNode(YamlNode::Kind::kScalar, mark.line + 1, "", anchor));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = MakeNode(YamlNode::Kind::kScalar, mark.line + 1, tag, anchor);
    node.text = value;
    node.plain = tag == "?";
    AddScalar(mark, std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(mark, MakeNode(YamlNode::Kind::kSequence, mark.line + 1, tag, anchor));
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(mark, MakeNode(YamlNode::Kind::kMap, mark.line + 1, tag, anchor));
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapEnd() override { Close(); }

 private:
  // A sequence or map that is not closed yet: in its place in the tree, which does not move before
  // it is closed.
  struct OpenNode {
    YamlNode* node;
    std::optional<int> key_position = {};       // of a map whose last entry has no value yet
    std::map<std::string, int> key_lines = {};  // of a map
  };

  void Fail(const YAML::Mark& mark, absl::string_view message) {
    status_.Update(Error(origin_, mark.line + 1, message));
  }

  bool Accept(const YAML::Mark& mark) {
    last_line_ = std::max(last_line_, mark.line + 1);
    if (status_.ok() && ++nodes_ > kMaxYamlNodes) {
      Fail(mark, absl::StrCat("the file holds more than ", kMaxYamlNodes, " values"));
    }
    return status_.ok();
  }

  static YamlNode MakeNode(YamlNode::Kind kind, int line, const std::string& tag,
                           YAML::anchor_t anchor) {
    YamlNode node;
    node.kind = kind;
    // "?" is the library's "no tag, plain", "!" its "no tag, quoted".
    if (tag != "?" && tag != "!") node.tag = tag;
    node.line = line;
    node.shared = anchor != YAML::NullAnchor;
    return node;
  }

  bool ExpectsKey() const {
    return !open_.empty() && open_.back().node->kind == YamlNode::Kind::kMap &&
           !open_.back().key_position;
  }

  // Where a value belongs that is no key.
  YamlNode& Place() {
    if (open_.empty()) return root_;
    OpenNode& parent = open_.back();
    if (!parent.key_position) return parent.node->items.emplace_back();
    parent.key_position.reset();
    return parent.node->entries.back().value;
  }

  void Open(const YAML::Mark& mark, YamlNode node) {
    if (!Accept(mark)) return;
    if (ExpectsKey()) return Fail(mark, "a key must be a word or a string");
    if (open_.size() == kMaxYamlDepth) {
      return Fail(mark, absl::StrCat("nested more than ", kMaxYamlDepth, " levels deep"));
    }
    YamlNode& place = Place();
    place = std::move(node);
    open_.push_back({&place});
  }

  void Close() {
    if (status_.ok()) open_.pop_back();
  }

  void AddScalar(const YAML::Mark& mark, YamlNode node) {
    if (!Accept(mark)) return;
    if (!ExpectsKey()) {
      Place() = std::move(node);
      return;
    }
    OpenNode& map = open_.back();
    const bool alias = node.shared && node.text.empty();
    if (!alias) {
      const auto [first, added] = map.key_lines.try_emplace(node.text, node.line);
      if (!added) {
        return Fail(mark, absl::StrCat("duplicate key ", featuregates::QuoteForMessage(node.text),
                                       ", already set in line ", first->second));
      }
    }
    map.key_position = mark.pos;
    map.node->entries.push_back({.key = node.text,
                                 .key_line = node.line,
                                 .key_shared = node.shared,
                                 .merge = node.plain && node.text == "<<",
                                 .value = node});
  }

  absl::string_view origin_;
  absl::string_view text_;
  YamlNode root_;
  std::vector<OpenNode> open_;
  absl::Status status_;
  int documents_ = 0;
  size_t nodes_ = 0;
  int last_line_ = 1;
};

constexpr absl::string_view kShared =
    "anchors (&name) and aliases (*name) are not accepted; write the value out";
constexpr absl::string_view kMerge = "merge keys (<<) are not accepted; write the fields out";

// Runs the parser: the one place its exceptions can come from.
absl::Status Build(absl::string_view origin, absl::string_view text, TreeBuilder& builder) {
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    // The library makes endless empty documents of a text like ",[ull,": ask for no more than two.
    if (parser.HandleNextDocument(builder) && builder.status().ok()) {
      parser.HandleNextDocument(builder);
    }
  } catch (const YAML::Exception& error) {
    if (!builder.status().ok()) return builder.status();
    // At the end of the file the library forgets the line.
    const int line = std::max(builder.last_line(), error.mark.line + 1);
    const absl::string_view content = LineOf(text, line);
    const bool tab = absl::StrContains(content.substr(0, content.find_first_not_of(" \t")), '\t');
    return Error(origin, line,
                 absl::StrCat("not well-formed YAML: ", error.msg,
                              tab ? "; the line is indented with a tab, use spaces" : ""));
  } catch (const std::exception& error) {
    return Error(origin, builder.last_line(), absl::StrCat("cannot be parsed: ", error.what()));
  }
  return builder.status();
}

// ---- the type that YAML gives a value ----

// YAML 1.1, as go-yaml v2 resolves plain scalars.
std::optional<bool> ResolveBool(absl::string_view text) {
  static constexpr std::array<absl::string_view, 4> kTrue = {"y", "yes", "true", "on"};
  static constexpr std::array<absl::string_view, 4> kFalse = {"n", "no", "false", "off"};
  const std::string lower = absl::AsciiStrToLower(text);
  const bool capitalised = !text.empty() && absl::EndsWith(lower, text.substr(1));
  if (!capitalised && text != absl::AsciiStrToUpper(text)) return std::nullopt;
  if (absl::c_linear_search(kTrue, lower)) return true;
  if (absl::c_linear_search(kFalse, lower)) return false;
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
  if (node.kind == YamlNode::Kind::kNull) return "no value";
  if (node.kind == YamlNode::Kind::kSequence) return "a list";
  if (node.kind == YamlNode::Kind::kMap) return "a map";
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

const YamlNode* YamlNode::Find(absl::string_view key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

absl::StatusOr<YamlDocument> YamlDocument::Parse(absl::string_view origin, absl::string_view text) {
  TreeBuilder builder(origin, text);
  absl::Status status = CheckText(origin, text);
  if (status.ok()) status = Build(origin, text, builder);
  if (!status.ok()) return status;
  return YamlDocument(origin, builder.TakeRoot());
}

absl::Status YamlDocument::CheckKeyWrittenOut(const YamlEntry& entry) const {
  if (entry.key_shared) return ErrorAt(entry.key_line, kShared);
  return entry.merge ? ErrorAt(entry.key_line, kMerge) : absl::OkStatus();
}

absl::Status YamlDocument::CheckWrittenOut(const YamlNode& node) const {
  if (node.shared) return ErrorAt(node.line, kShared);
  absl::Status status;
  for (auto item = node.items.begin(); status.ok() && item != node.items.end(); ++item) {
    status = CheckWrittenOut(*item);
  }
  for (auto entry = node.entries.begin(); status.ok() && entry != node.entries.end(); ++entry) {
    status = CheckKeyWrittenOut(*entry);
    if (status.ok()) status = CheckWrittenOut(entry->value);
  }
  return status;
}

absl::Status YamlDocument::ErrorAt(int line, absl::string_view message) const {
  return Error(origin_, line, message);
}

absl::StatusOr<std::string> YamlDocument::Text(const YamlNode& node, absl::string_view path,
                                               YamlType type) const {
  if (absl::Status status = CheckWrittenOut(node); !status.ok()) return status;
  const std::optional<bool> truth = node.plain ? ResolveBool(node.text) : std::nullopt;
  std::string accepted;
  if (type == YamlType::kBool) {
    if (truth) return std::string(*truth ? "true" : "false");
    accepted = "true or false, without quotes";
  } else if (type == YamlType::kInt32) {
    const absl::string_view digits = absl::StripPrefix(node.text, "-");
    const bool decimal = node.plain && !digits.empty() &&
                         std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
                         (digits[0] != '0' || node.text == "0");
    int32_t value = 0;
    if (decimal && absl::SimpleAtoi(node.text, &value)) return node.text;
    accepted = decimal ? "between -2147483648 and 2147483647"
                       : "a decimal integer, without quotes, leading zeros or a fraction";
  } else {
    const bool typed = truth || (node.plain && LooksLikeNumber(node.text));
    if (node.kind == YamlNode::Kind::kScalar && !typed && node.tag.empty()) return node.text;
    accepted = "a string";
    if (typed)
      absl::StrAppend(&accepted, ", in quotes: ", featuregates::QuoteForMessage(node.text));
  }
  return ErrorAt(node.line,
                 absl::StrCat(path, ": found ", TypeOf(node), ", but it must be ", accepted));
}

}  // namespace kipt::agent
