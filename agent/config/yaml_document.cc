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
#include "agent/text/printable.h"
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

// The 1-based line `number` of `text`; empty after the last.
absl::string_view LineOf(absl::string_view text, int number) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (--number == 0) return line;
  }
  return "";
}

// yaml-cpp guesses UTF-16 and UTF-32, and ends the file at byte 0x04: it gets printable UTF-8 only.
absl::Status CheckText(absl::string_view origin, absl::string_view text) {
  if (text.size() > kMaxYamlBytes) {
    return Error(origin, 1, absl::StrCat("the file is larger than ", kMaxYamlBytes, " bytes"));
  }
  int line = 1;
  while (!text.empty()) {
    const char c = text.front();
    const Rune rune = FirstRune(text);
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

constexpr absl::string_view kShared =
    "anchors (&name) and aliases (*name) are not accepted; write the value out";
constexpr absl::string_view kMerge = "merge keys (<<) are not accepted; write the fields out";

bool IsMergeKey(const YamlNode& key) { return key.plain && key.text == "<<"; }
bool IsMerge(const YamlEntry& entry) { return IsMergeKey(entry.key); }

struct Size {
  size_t nodes = 1;
  size_t depth = 0;  // of sequences and maps
};
Size SizeOf(const YamlNode& node) {
  Size size;
  const auto add = [&size](const YamlNode& part) {
    const Size one = SizeOf(part);
    size.nodes += one.nodes;
    size.depth = std::max(size.depth, one.depth);
  };
  for (const YamlNode& item : node.items) add(item);
  for (const YamlEntry& entry : node.entries) {
    add(entry.key);
    add(entry.value);
  }
  if (node.kind == YamlNode::Kind::kSequence || node.kind == YamlNode::Kind::kMap) ++size.depth;
  return size;
}

constexpr absl::string_view kSecondDocument =
    "a second document begins here; a configuration file holds one";

// Builds the tree from the parser's events. After the first problem it ignores what follows: the
// parser itself ends with the document, at depth 500 (its own limit) at the latest.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(absl::string_view origin, absl::string_view text) : origin_(origin), text_(text) {}

  std::vector<YamlLapse> TakeLapses() { return std::move(lapses_); }

  // The library's exceptions end here.
  absl::StatusOr<YamlNode> Build() {
    try {
      std::istringstream stream{std::string(text_)};
      YAML::Parser parser(stream);
      // Two at most: the library makes endless empty documents of a text like ",[ull,".
      if (parser.HandleNextDocument(*this) && status_.ok()) parser.HandleNextDocument(*this);
    } catch (const YAML::Exception& error) {
      // kubelet's decoder reads no further than the first document.
      if (first_ended_ && EndMarker() != 0) {
        if (documents_ == 1) AddLapse(YamlLapse::Kind::kDocument, EndMarker(), kSecondDocument);
        return Finished();
      }
      // At the end of the file the library forgets the line.
      const int line = std::max(last_line_, error.mark.line + 1);
      const absl::string_view content = LineOf(text_, line);
      const bool tab = absl::StrContains(content.substr(0, content.find_first_not_of(" \t")), '\t');
      Fail(line, absl::StrCat("not well-formed YAML: ", error.msg,
                              tab ? "; the line is indented with a tab, use spaces" : ""));
    } catch (const std::exception& error) {
      return Error(origin_, last_line_, absl::StrCat("cannot be parsed: ", error.what()));
    }
    return Finished();
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ < 2) return;
    if (EndMarker() != 0)
      return AddLapse(YamlLapse::Kind::kDocument, mark.line + 1, kSecondDocument);
    Fail(mark.line + 1, "unexpected text after the end of the document");
  }
  void OnDocumentEnd() override { first_ended_ = true; }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(YamlNode(), mark, anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(NodeOf(YamlNode::Kind::kScalar, ""), mark, anchor, /*alias=*/true);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Add(NodeOf(YamlNode::Kind::kScalar, tag, value), mark, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Add(NodeOf(YamlNode::Kind::kSequence, tag), mark, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Add(NodeOf(YamlNode::Kind::kMap, tag), mark, anchor);
  }
  void OnSequenceEnd() override {
    if (!status_.ok() || first_ended_) return;
    const OpenNode& closed = open_.back();
    WriteOutMerges(*closed.node);
    if (closed.anchor != YAML::NullAnchor) Remember(closed.anchor, *closed.node);
    open_.pop_back();
  }
  void OnMapEnd() override { OnSequenceEnd(); }

 private:
  // A sequence or map that is not closed yet. It does not move before it is closed.
  struct OpenNode {
    YamlNode* node;
    YAML::anchor_t anchor;
    std::optional<int> key_position = {};       // of a map whose last entry has no value yet
    std::map<std::string, int> key_lines = {};  // of a map
  };

  absl::StatusOr<YamlNode> Finished() {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

  // The line of the "---" or "..." after the document's last value; 0: there is none.
  int EndMarker() const {
    int number = 0;
    for (const absl::string_view line : absl::StrSplit(text_, '\n')) {
      const absl::string_view marker = line.substr(0, 3);
      if (++number > last_line_ && (marker == "---" || marker == "...") &&
          (line.size() == 3 || absl::ascii_isspace(static_cast<unsigned char>(line[3])))) {
        return number;
      }
    }
    return 0;
  }

  static YamlNode NodeOf(YamlNode::Kind kind, const std::string& tag,
                         const std::string& text = "") {
    YamlNode node;
    node.kind = kind;
    node.text = text;
    // "?" is the library's "no tag, plain", "!" its "no tag, quoted".
    node.plain = kind == YamlNode::Kind::kScalar && tag == "?";
    if (tag != "?" && tag != "!") node.tag = tag;
    return node;
  }

  void AddLapse(YamlLapse::Kind kind, int line, absl::string_view message) {
    lapses_.push_back({kind, line, std::string(message)});
  }
  void AddDuplicate(const YamlNode& map, const YamlNode& key, int first) {
    AddLapse(
        YamlLapse::Kind::kDuplicate, key.line,
        absl::StrCat("duplicate key ", QuoteForMessage(key.text), ", already set in line ", first));
    const bool deep = &map != &root_ && !root_.entries.empty();
    lapses_.back().field = deep ? root_.entries.back().key.text : key.text;
  }
  void Fail(int line, absl::string_view message) { status_.Update(Error(origin_, line, message)); }

  // Copies count, so that aliases of aliases end.
  void Count(size_t nodes, int line) {
    nodes_ += nodes;
    if (nodes_ <= kMaxYamlNodes) return;
    Fail(line, absl::StrCat("the file holds more than ", kMaxYamlNodes, " values"));
  }
  void CheckDepth(size_t depth, int line) {
    if (depth <= kMaxYamlDepth) return;
    Fail(line, absl::StrCat("nested more than ", kMaxYamlDepth, " levels deep"));
  }

  void Remember(YAML::anchor_t anchor, const YamlNode& node) {
    Count(SizeOf(node).nodes, node.line);
    if (status_.ok()) anchored_[anchor] = node;
  }
  YamlNode Remembered(YAML::anchor_t anchor, int line) {
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) {
      Fail(line, "an alias inside the value of its own anchor");
      return {};
    }
    const Size size = SizeOf(found->second);
    Count(size.nodes, line);
    CheckDepth(open_.size() + size.depth, line);
    return status_.ok() ? found->second : YamlNode();
  }

  // In order, as kubelet's decoder does it: what follows a merge key overrides it.
  void WriteOutMerges(YamlNode& map) {
    if (absl::c_none_of(map.entries, IsMerge)) return;
    std::vector<YamlEntry> entries;
    std::map<std::string, std::pair<size_t, bool>> known;  // the place, and whether it was merged
    const auto add = [&](YamlEntry& entry, bool merged) {
      const auto [place, fresh] =
          known.try_emplace(entry.key.text, std::pair(entries.size(), merged));
      if (fresh || (!merged && !place->second.second)) {
        entries.push_back(std::move(entry));
      } else if (place->second.second) {
        entries[place->second.first] = std::move(entry);
        place->second.second = merged;
      } else {
        AddDuplicate(map, entry.key, entries[place->second.first].key.line);
      }
    };
    for (YamlEntry& entry : map.entries) {
      if (!IsMerge(entry)) {
        add(entry, /*merged=*/false);
        continue;
      }
      std::vector<YamlNode> sources = std::move(entry.value.items);
      if (entry.value.kind == YamlNode::Kind::kMap) sources = {std::move(entry.value)};
      const auto is_map = [](const YamlNode& one) { return one.kind == YamlNode::Kind::kMap; };
      if (sources.empty() || !absl::c_all_of(sources, is_map)) {
        return Fail(entry.key.line, "a merge key (<<) needs a map or a list of maps");
      }
      // The first of a list comes last, and so counts.
      for (auto source = sources.rbegin(); source != sources.rend(); ++source) {
        for (YamlEntry& each : source->entries) add(each, /*merged=*/true);
      }
    }
    map.entries = std::move(entries);
  }

  void Add(YamlNode node, const YAML::Mark& mark, YAML::anchor_t anchor, bool alias = false) {
    if (first_ended_) return;
    const int line = mark.line + 1;
    // A null has the place of what comes next, which may be a marker.
    if (node.kind != YamlNode::Kind::kNull) last_line_ = std::max(last_line_, line);
    if (!status_.ok()) return;
    if (anchor != YAML::NullAnchor) AddLapse(YamlLapse::Kind::kShared, line, kShared);
    if (alias) node = Remembered(anchor, line);
    node.line = line;
    Count(1, line);
    if (!status_.ok()) return;
    const YamlNode::Kind kind = node.kind;
    const bool opens =
        !alias && (kind == YamlNode::Kind::kSequence || kind == YamlNode::Kind::kMap);
    if (!alias && !opens && anchor != YAML::NullAnchor) Remember(anchor, node);
    OpenNode* const parent = open_.empty() ? nullptr : &open_.back();
    if (parent != nullptr && parent->node->kind == YamlNode::Kind::kMap && !parent->key_position) {
      return AddKey(*parent, mark.pos, std::move(node));
    }
    YamlNode* place = &root_;
    if (parent != nullptr && parent->key_position) {
      YamlEntry& entry = parent->node->entries.back();
      place = &entry.value;
      // The library takes `word` on a line of its own for a key with no value.
      if (kind == YamlNode::Kind::kNull && !alias && parent->key_position == mark.pos) {
        return Fail(line, absl::StrCat("the key ", QuoteForMessage(entry.key.text),
                                       " is not followed by a colon"));
      }
      if (kind == YamlNode::Kind::kNull && !alias) node.line = entry.key.line;
      parent->key_position.reset();
    } else if (parent != nullptr) {
      place = &parent->node->items.emplace_back();
    }
    *place = std::move(node);
    if (!opens) return;
    CheckDepth(open_.size() + 1, line);
    if (status_.ok()) open_.push_back({place, anchor});
  }

  void AddKey(OpenNode& map, int position, YamlNode key) {
    if (key.kind == YamlNode::Kind::kNull) return Fail(key.line, "a value without a key");
    if (key.kind != YamlNode::Kind::kScalar) {
      return Fail(key.line, "a key must be a word or a string");
    }
    if (IsMergeKey(key)) {
      AddLapse(YamlLapse::Kind::kShared, key.line, kMerge);
    } else if (const auto [first, fresh] = map.key_lines.try_emplace(key.text, key.line); !fresh) {
      AddDuplicate(*map.node, key, first->second);
    }
    map.key_position = position;
    map.node->entries.push_back({std::move(key), YamlNode()});
  }

  absl::string_view origin_;
  absl::string_view text_;
  YamlNode root_;
  std::vector<OpenNode> open_;
  // The values of anchors that are complete.
  std::map<YAML::anchor_t, YamlNode> anchored_;
  absl::Status status_;
  std::vector<YamlLapse> lapses_;
  int documents_ = 0;
  bool first_ended_ = false;
  size_t nodes_ = 0;
  int last_line_ = 1;
};

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
  const std::string text = QuoteForMessage(node.text);
  if (!node.tag.empty()) return absl::StrCat(text, " with the tag ", QuoteForMessage(node.tag));
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
    if (entry.key.text == key) return &entry.value;
  }
  return nullptr;
}

absl::StatusOr<YamlDocument> YamlDocument::ParseLeniently(absl::string_view origin,
                                                          absl::string_view text) {
  if (absl::Status status = CheckText(origin, text); !status.ok()) return status;
  TreeBuilder builder(origin, text);
  absl::StatusOr<YamlNode> root = builder.Build();
  if (!root.ok()) return root.status();
  return YamlDocument(origin, *std::move(root), builder.TakeLapses());
}

absl::StatusOr<YamlDocument> YamlDocument::Parse(absl::string_view origin, absl::string_view text) {
  absl::StatusOr<YamlDocument> document = ParseLeniently(origin, text);
  if (document.ok() && !document->lapses().empty()) {
    const YamlLapse& first = document->lapses()[0];
    return document->ErrorAt(first.line, first.message);
  }
  return document;
}

absl::Status YamlDocument::ErrorAt(int line, absl::string_view message) const {
  return Error(origin_, line, message);
}

absl::StatusOr<std::string> YamlDocument::Text(const YamlNode& node, absl::string_view path,
                                               YamlType type) const {
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
    if (typed) absl::StrAppend(&accepted, ", in quotes: ", QuoteForMessage(node.text));
  }
  return ErrorAt(node.line,
                 absl::StrCat(path, ": found ", TypeOf(node), ", but it must be ", accepted));
}

}  // namespace kipt::agent
