// SPDX-License-Identifier: Apache-2.0
#include "agent/config/yaml_document.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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
    // The library takes `word` on a line of its own for a key with no value.
    if (!frames_.empty() && frames_.back().key_position == mark.pos) {
      const std::string& key = frames_.back().node.entries.back().key;
      return Fail(mark, absl::StrCat("the key ", featuregates::QuoteForMessage(key),
                                     " is not followed by a colon"));
    }
    Attach(MakeNode(YamlNode::Kind::kNull, mark, "", anchor), mark);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (Accept(mark)) Attach(MakeNode(YamlNode::Kind::kScalar, mark, "", anchor), mark);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (!Accept(mark)) return;
    YamlNode node = MakeNode(YamlNode::Kind::kScalar, mark, tag, anchor);
    node.text = value;
    node.plain = tag == "?";
    Attach(std::move(node), mark);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(YamlNode::Kind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  // A sequence or map that is not closed yet.
  struct Frame {
    YamlNode node;
    std::optional<int> key_position;       // of a map whose last entry has no value yet
    std::map<std::string, int> key_lines;  // of a map
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

  static YamlNode MakeNode(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
                           YAML::anchor_t anchor) {
    YamlNode node;
    node.kind = kind;
    // "?" is the library's "no tag, plain", "!" its "no tag, quoted".
    if (tag != "?" && tag != "!") node.tag = tag;
    node.line = mark.line + 1;
    node.shared = anchor != YAML::NullAnchor;
    return node;
  }

  bool ExpectsKey() const {
    return !frames_.empty() && frames_.back().node.kind == YamlNode::Kind::kMap &&
           !frames_.back().key_position;
  }

  void Open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    if (!Accept(mark)) return;
    if (ExpectsKey()) return Fail(mark, "a key must be a word or a string");
    if (frames_.size() == kMaxYamlDepth) {
      return Fail(mark, absl::StrCat("nested more than ", kMaxYamlDepth, " levels deep"));
    }
    frames_.emplace_back().node = MakeNode(kind, mark, tag, anchor);
  }

  void Close() {
    if (!status_.ok()) return;
    YamlNode node = std::move(frames_.back().node);
    frames_.pop_back();
    Attach(std::move(node), YAML::Mark());
  }

  // `mark` matters where the node is a key.
  void Attach(YamlNode node, const YAML::Mark& mark) {
    if (frames_.empty()) {
      root_ = std::move(node);
    } else if (ExpectsKey()) {
      AddKey(node, mark);
    } else if (Frame& frame = frames_.back(); frame.key_position) {
      YamlNode& value = frame.node.entries.back().value;
      // A null value has the place of its key, which is there already.
      if (node.kind == YamlNode::Kind::kNull) node.line = value.line;
      value = std::move(node);
      frame.key_position.reset();
    } else {
      frame.node.items.push_back(std::move(node));
    }
  }

  void AddKey(const YamlNode& node, const YAML::Mark& mark) {
    if (node.kind != YamlNode::Kind::kScalar) return Fail(mark, "a value without a key");
    Frame& frame = frames_.back();
    const bool alias = node.shared && node.text.empty();
    if (!alias) {
      const auto [first, added] = frame.key_lines.try_emplace(node.text, node.line);
      if (!added) {
        return Fail(mark, absl::StrCat("duplicate key ", featuregates::QuoteForMessage(node.text),
                                       ", already set in line ", first->second));
      }
    }
    frame.key_position = mark.pos;
    frame.node.entries.push_back({.key = node.text,
                                  .key_line = node.line,
                                  .key_shared = node.shared,
                                  .merge = node.plain && node.text == "<<",
                                  .value = node});
  }

  absl::string_view origin_;
  absl::string_view text_;
  YamlNode root_;
  std::vector<Frame> frames_;
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

}  // namespace kipt::agent
