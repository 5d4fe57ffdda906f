// SPDX-License-Identifier: Apache-2.0
//
// One YAML document as a tree in which every value knows its line, and a typed reader that refuses
// what merely converts. The parser accepts no more than a configuration needs: one document, no
// duplicate keys, no anchors, aliases and merge keys, bounded size, depth and number of values.
// What kubelet's lenient decoder accepts of these is a lapse, for the reader of a
// KubeletConfiguration to accept.
//
// Every error is InvalidArgument and begins with "FILE:LINE: ".
#ifndef KIPT_AGENT_CONFIG_YAML_DOCUMENT_H_
#define KIPT_AGENT_CONFIG_YAML_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kipt::agent {

// A Kubernetes object of more than 1 MiB cannot be stored in a cluster either.
inline constexpr size_t kMaxYamlBytes = size_t{1} << 20;
inline constexpr size_t kMaxYamlDepth = 32;
inline constexpr size_t kMaxYamlNodes = 50'000;

struct YamlEntry;

struct YamlNode {
  enum class Kind : uint8_t { kNull, kScalar, kSequence, kMap };

  Kind kind = Kind::kNull;
  // Scalar: its characters, quotes and escapes resolved, nothing else interpreted.
  std::string text;
  // Scalar: written without quotes, block indicator and tag, so that YAML gives it a type.
  bool plain = false;
  // "tag:yaml.org,2002:int" for !!int; empty where none is written.
  std::string tag;
  std::vector<YamlNode> items;     // sequence
  std::vector<YamlEntry> entries;  // map, in the order of the file
  // Where it is written, from 1. A null value has the line of its key.
  int line = 1;

  // The value of `key` in a map. Null where there is none, or where this is not a map.
  const YamlNode* Find(absl::string_view key) const;
};

struct YamlEntry {
  YamlNode key;  // a scalar
  YamlNode value;
};

enum class YamlType : uint8_t {
  // As sigs.k8s.io/yaml reads them, in YAML 1.1: true, yes, on, y, false, no, off, n, also
  // Capitalised and in CAPITALS, never in quotes.
  kBool,
  // Decimal. 014 and 0x0e, which Kubernetes reads as 12 and 14, are refused, as are "14",
  // 1_4, 14.0.
  kInt32,
  // A number, boolean or null must be in quotes: other programs would turn 1.30 into 1.3.
  kString,
};

// What kubelet's lenient decoder (sigs.k8s.io/yaml) accepts and this project's own files must not
// have.
struct YamlLapse {
  enum class Kind : uint8_t {
    kDuplicate,  // kubelet's strict decoder refuses it
    kDocument,   // ignored
    kShared,     // an anchor, alias or merge key, which the tree has written out
  };

  Kind kind = Kind::kShared;
  int line = 1;
  std::string message;
  // The top-level field that holds a duplicate.
  std::string field = {};
};

class YamlDocument {
 public:
  // `origin` is the file's name, for messages. A text without a document gives a root of kind
  // kNull.
  static absl::StatusOr<YamlDocument> Parse(absl::string_view origin, absl::string_view text);
  // The same, except that a lapse is no error. The tree is the first document's, aliases and merge
  // keys are written out, and Find() returns the first of duplicate keys.
  static absl::StatusOr<YamlDocument> ParseLeniently(absl::string_view origin,
                                                     absl::string_view text);

  const YamlNode& root() const { return root_; }
  // In the order of the file.
  absl::Span<const YamlLapse> lapses() const { return lapses_; }

  absl::Status ErrorAt(int line, absl::string_view message) const;

  // The text of a scalar of that type; a boolean is "true" or "false". An error for another type.
  // `path` is the field's, for the message ("featureGates.AllAlpha").
  absl::StatusOr<std::string> Text(const YamlNode& node, absl::string_view path,
                                   YamlType type) const;

 private:
  YamlDocument(absl::string_view origin, YamlNode root, std::vector<YamlLapse> lapses)
      : origin_(origin), root_(std::move(root)), lapses_(std::move(lapses)) {}

  std::string origin_;
  YamlNode root_;
  std::vector<YamlLapse> lapses_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_YAML_DOCUMENT_H_
