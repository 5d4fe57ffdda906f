// SPDX-License-Identifier: Apache-2.0
#include "agent/config/yaml_document.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent::yaml_document_test {
namespace {

YamlDocument MustParse(absl::string_view text) {
  absl::StatusOr<YamlDocument> document = YamlDocument::Parse("f.yaml", text);
  EXPECT_TRUE(document.ok()) << document.status();
  return document.ok() ? *std::move(document) : *YamlDocument::Parse("f.yaml", "");
}

struct GoodCase {
  std::string text;
  YamlNode::Kind kind = YamlNode::Kind::kMap;
};

TEST(WellFormedYamlTest, IsAccepted) {
  const GoodCase rows[] = {
      {"", YamlNode::Kind::kNull},
      {"# one\n\n  # two\n", YamlNode::Kind::kNull},
      {"---\na: 1\n"},
      {"\xef\xbb\xbf"
       "a: 1\n"},
      {"{\n\t\"a\": 1,\n\t\"b\": [1,\t2]\n}\n"},
      {"{a, b: }"},
      {"a: \"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"\n"},
      {std::string(32, '[') + std::string(32, ']'), YamlNode::Kind::kSequence},
  };
  for (const GoodCase& row : rows) {
    SCOPED_TRACE(row.text.substr(0, 100));
    const auto document = YamlDocument::Parse("f.yaml", row.text);
    ASSERT_TRUE(document.ok()) << document.status();
    EXPECT_EQ(document->root().kind, row.kind);
  }
}

struct BadCase {
  std::string text;
  std::string message;  // the whole of it, or its beginning
};

TEST(RefusedYamlTest, NamesFileAndLine) {
  const BadCase rows[] = {
      {"a:\n\tb: 1\n",
       "f.yaml:2: not well-formed YAML: illegal map value; the line is indented with a "
       "tab, use spaces"},
      {"a: 1\nb: 2\na: 3\n", "f.yaml:3: duplicate key \"a\", already set in line 1"},
      {"a: 1\nb: {c: 1\n", "f.yaml:3: not well-formed YAML"},
      {"a: 1\nb\n", "f.yaml:2: the key \"b\" is not followed by a colon"},
      {"a:\n  b: 1\n c: 2\n", "f.yaml:3: not well-formed YAML"},
      {"a: 1\n---\nb: 1\n",
       "f.yaml:2: a second document begins here; a configuration file holds one"},
      {",[ull,", "f.yaml:1: unexpected text after the end of the document"},
      {"a: 1\nb: *x\n", "f.yaml:2: "},
      {"? [a]\n: b\n", "f.yaml:1: a key must be a word or a string"},
      {": 1\n", "f.yaml:1: a value without a key"},
      {std::string(33, '[') + std::string(33, ']'), "f.yaml:1: nested more than 32 levels deep"},
      {[] {
         std::string text = "[";
         for (size_t i = 0; i <= kMaxYamlNodes; ++i) text += "1,";
         return text + "]";
       }(),
       "f.yaml:1: the file holds more than 50000 values"},
      {"# " + std::string(kMaxYamlBytes, 'x'), "f.yaml:1: the file is larger than 1048576 bytes"},
      {std::string("a: 1\nb: \0\n", 10),
       "f.yaml:2: not a YAML text: it contains the control character 0x00"},
      {"a: 1\n\x04", "f.yaml:2: not a YAML text: it contains the control character 0x04"},
      {"a: 1\nb: \xff\xfe\n", "f.yaml:2: not a YAML text: the bytes are not UTF-8"},
  };
  for (const BadCase& row : rows) {
    SCOPED_TRACE(row.text.substr(0, 100));
    const auto document = YamlDocument::Parse("f.yaml", row.text);
    EXPECT_THAT(document, StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(row.message)));
  }
}

struct ReaderCase {
  std::string value;         // as written after "field: "
  std::string result;        // the value read; empty where it is refused
  std::string message = {};  // then: after "f.yaml:1: spec.field: found ", before `end`
};

void ExpectRead(YamlType type, absl::Span<const ReaderCase> rows, absl::string_view end) {
  for (const ReaderCase& row : rows) {
    SCOPED_TRACE(row.value);
    const YamlDocument document = MustParse("field: " + row.value);
    const auto value = document.Text(*document.root().Find("field"), "spec.field", type);
    if (!row.result.empty()) {
      EXPECT_THAT(value, IsOkAndHolds(row.result));
    } else {
      EXPECT_THAT(value, StatusIs(absl::StatusCode::kInvalidArgument,
                                  absl::StrCat("f.yaml:1: spec.field: found ", row.message, end)));
    }
  }
}

TEST(BoolReaderTest, ReadsWhatKubernetesReadsAsABoolean) {
  const ReaderCase rows[] = {
      {"true", "true"},
      {"yes", "true"},
      {"on", "true"},
      {"false", "false"},
      {"No", "false"},
      {"OFF", "false"},
      {"tRue", "", "the string \"tRue\""},
      {"\"true\"", "", "the string \"true\""},
      {"1", "", "the number 1"},
      {"", "", "no value"},
      {"~", "", "no value"},
      {"[true]", "", "a list"},
      {"{a: true}", "", "a map"},
      {"!!str true", "", "\"true\" with the tag \"tag:yaml.org,2002:str\""},
  };
  ExpectRead(YamlType::kBool, rows, ", but it must be true or false, without quotes");
}

TEST(Int32ReaderTest, ReadsPlainDecimalIntegersOnly) {
  const ReaderCase out_of_range[] = {{"2147483648", "", "the number 2147483648"}};
  ExpectRead(YamlType::kInt32, out_of_range, ", but it must be between -2147483648 and 2147483647");
  const ReaderCase rows[] = {
      {"0", "0"},
      {"14", "14"},
      {"2147483647", "2147483647"},
      {"-2147483648", "-2147483648"},
      {"014", "", "the number 014"},
      {"-0", "", "the number -0"},
      {"0x1f", "", "the number 0x1f"},
      {"1_4", "", "the string \"1_4\""},
      {"\"14\"", "", "the string \"14\""},
      {"true", "", "the boolean true"},
      {"", "", "no value"},
      {"!!int \"14\"", "", "\"14\" with the tag \"tag:yaml.org,2002:int\""},
  };
  ExpectRead(YamlType::kInt32, rows,
             ", but it must be a decimal integer, without quotes, leading zeros or a fraction");
}

TEST(StringReaderTest, RefusesWhatYamlGivesAnotherType) {
  const ReaderCase rows[] = {
      {"auto", "auto"},
      {"'1.30'", "1.30"},
      {"1.30", "", "the number 1.30, but it must be a string, in quotes: \"1.30\""},
      {"off", "", "the boolean off, but it must be a string, in quotes: \"off\""},
      {"[ipv4]", "", "a list, but it must be a string"},
      {"", "", "no value, but it must be a string"},
  };
  ExpectRead(YamlType::kString, rows, "");
}

}  // namespace
}  // namespace kipt::agent::yaml_document_test
