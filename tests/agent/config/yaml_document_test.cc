// SPDX-License-Identifier: Apache-2.0
#include "agent/config/yaml_document.h"

#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kipt::agent {
namespace {

using ::testing::StartsWith;

constexpr auto RowName = [](const auto& row) { return row.param.name; };

YamlDocument MustParse(absl::string_view text) {
  absl::StatusOr<YamlDocument> document = YamlDocument::Parse("f.yaml", text);
  EXPECT_TRUE(document.ok()) << document.status();
  return document.ok() ? *std::move(document) : *YamlDocument::Parse("f.yaml", "");
}

TEST(YamlDocumentTest, KeepsTheOrderAndThePlaceOfEveryValue) {
  const YamlDocument document = MustParse("# head\nb: 1\na:\n  - x\n  - {y: \"z\"}\nc:\n");
  const YamlNode& root = document.root();
  ASSERT_EQ(root.kind, YamlNode::Kind::kMap);
  ASSERT_EQ(root.entries.size(), 3u);
  EXPECT_EQ(root.entries[0].key.text, "b");
  EXPECT_EQ(root.entries[0].value.line, 2);
  EXPECT_TRUE(root.entries[0].value.plain);
  const YamlNode& list = root.entries[1].value;
  ASSERT_EQ(list.kind, YamlNode::Kind::kSequence);
  ASSERT_EQ(list.items.size(), 2u);
  EXPECT_EQ(list.items[0].text, "x");
  EXPECT_EQ(list.items[0].line, 4);
  const YamlNode* z = list.items[1].Find("y");
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->text, "z");
  EXPECT_FALSE(z->plain);
  EXPECT_EQ(root.entries[2].key.line, 6);
  EXPECT_EQ(root.entries[2].value.kind, YamlNode::Kind::kNull);
  EXPECT_EQ(root.entries[2].value.line, 6);
}

TEST(YamlDocumentTest, FindsNothingInAValueThatIsNoMap) {
  EXPECT_EQ(MustParse("word").root().Find("word"), nullptr);
  EXPECT_EQ(MustParse("a: 1").root().Find("b"), nullptr);
}

struct GoodCase {
  std::string name;
  std::string text;
  YamlNode::Kind kind;
};
void PrintTo(const GoodCase& row, std::ostream* out) { *out << row.name; }

class WellFormedYamlTest : public ::testing::TestWithParam<GoodCase> {};

TEST_P(WellFormedYamlTest, IsAccepted) {
  const auto document = YamlDocument::Parse("f.yaml", GetParam().text);
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ(document->root().kind, GetParam().kind);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, WellFormedYamlTest,
    ::testing::Values(GoodCase{"AnEmptyText", "", YamlNode::Kind::kNull},
                      GoodCase{"CommentsOnly", "# one\n\n  # two\n", YamlNode::Kind::kNull},
                      GoodCase{"AMarkerOnly", "---\n", YamlNode::Kind::kNull},
                      GoodCase{"AMarkerBeforeTheDocument", "---\na: 1\n", YamlNode::Kind::kMap},
                      GoodCase{"AnEndMarkerBehindIt", "a: 1\n...\n", YamlNode::Kind::kMap},
                      GoodCase{"AByteOrderMark",
                               "\xef\xbb\xbf"
                               "a: 1\n",
                               YamlNode::Kind::kMap},
                      GoodCase{"WindowsLineEnds", "a: 1\r\nb: 2\r\n", YamlNode::Kind::kMap},
                      GoodCase{"JsonIndentedWithTabs", "{\n\t\"a\": 1,\n\t\"b\": [1,\t2]\n}\n",
                               YamlNode::Kind::kMap},
                      GoodCase{"TabsInsideABlockOfText", "a: |\n  x\n  \ty\n",
                               YamlNode::Kind::kMap},
                      GoodCase{"AKeyWithNoValueInBraces", "{a, b: }", YamlNode::Kind::kMap},
                      GoodCase{"NonAsciiText", "a: \"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"\n",
                               YamlNode::Kind::kMap},
                      GoodCase{"DepthThirtyTwo", std::string(32, '[') + std::string(32, ']'),
                               YamlNode::Kind::kSequence}),
    RowName);

struct BadCase {
  std::string name;
  std::string text;
  std::string message;  // the whole of it, or its beginning
};
void PrintTo(const BadCase& row, std::ostream* out) { *out << row.name; }

class RefusedYamlTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(RefusedYamlTest, NamesFileAndLine) {
  const auto document = YamlDocument::Parse("f.yaml", GetParam().text);
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(document.status().message()), StartsWith(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Texts, RefusedYamlTest,
    ::testing::Values(
        BadCase{"ATabAsIndentation", "a:\n\tb: 1\n",
                "f.yaml:2: not well-formed YAML: illegal map value; the line is indented with a "
                "tab, use spaces"},
        BadCase{"ATabBeforeASecondKey", "a: 1\n\tb: 2\n", "f.yaml:2: not well-formed YAML"},
        BadCase{"ADuplicateKey", "a: 1\nb: 2\na: 3\n",
                "f.yaml:3: duplicate key \"a\", already set in line 1"},
        BadCase{"ADuplicateKeyInOtherQuotes", "x:\n  \"a\": 1\n  'a': 2\n",
                "f.yaml:3: duplicate key \"a\", already set in line 2"},
        BadCase{"AnUnclosedBrace", "a: 1\nb: {c: 1\n", "f.yaml:3: not well-formed YAML"},
        BadCase{"AnUnclosedQuote", "a: \"b", "f.yaml:1: not well-formed YAML"},
        BadCase{"AKeyWithoutAColon", "a: 1\nb\n",
                "f.yaml:2: the key \"b\" is not followed by a colon"},
        BadCase{"WrongIndentation", "a:\n  b: 1\n c: 2\n", "f.yaml:3: not well-formed YAML"},
        BadCase{"ASecondDocument", "a: 1\n---\nb: 1\n",
                "f.yaml:2: a second document begins here; a configuration file holds one"},
        BadCase{"WhatMakesTheLibraryLoopForever", ",[ull,",
                "f.yaml:1: unexpected text after the end of the document"},
        BadCase{"AnAliasOfNothing", "a: 1\nb: *x\n", "f.yaml:2: "},
        BadCase{"AListAsAKey", "? [a]\n: b\n", "f.yaml:1: a key must be a word or a string"},
        BadCase{"NoKey", ": 1\n", "f.yaml:1: a value without a key"},
        BadCase{"DepthThirtyThree", std::string(33, '[') + std::string(33, ']'),
                "f.yaml:1: nested more than 32 levels deep"},
        BadCase{"AMillionBrackets", std::string(kMaxYamlBytes, '['), "f.yaml:1: "},
        BadCase{"TooManyValues",
                [] {
                  std::string text = "[";
                  for (size_t i = 0; i <= kMaxYamlNodes; ++i) text += "1,";
                  return text + "]";
                }(),
                "f.yaml:1: the file holds more than 50000 values"},
        BadCase{"TooManyBytes", "# " + std::string(kMaxYamlBytes, 'x'),
                "f.yaml:1: the file is larger than 1048576 bytes"},
        BadCase{"ANulByte", std::string("a: 1\nb: \0\n", 10),
                "f.yaml:2: not a YAML text: it contains the control character 0x00"},
        BadCase{"TheByteTheLibraryTakesForTheEnd", "a: 1\n\x04",
                "f.yaml:2: not a YAML text: it contains the control character 0x04"},
        BadCase{"BytesThatAreNotUtf8", "a: 1\nb: \xff\xfe\n",
                "f.yaml:2: not a YAML text: the bytes are not UTF-8"},
        BadCase{"AnOverlongUtf8Form", "\xc0\xaf", "f.yaml:1: not a YAML text"},
        BadCase{"ACutUtf8Sequence", "a: \xe2\x82", "f.yaml:1: not a YAML text"},
        BadCase{"Utf16",
                std::string("\xff\xfe"
                            "a\0:\0",
                            6),
                "f.yaml:1: not a YAML text"}),
    RowName);

// What a crashed disk leaves behind: an error or a value, never a hang or a crash.
TEST(YamlDocumentTest, EndsOnRandomTextOfYamlsOwnCharacters) {
  static constexpr absl::string_view kAlphabet = "a1 \n\t:-,[]{}#&*!|>'\"%@`?~.<";
  std::mt19937 random(20240613);  // NOLINT: the same texts in every run
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = kAlphabet[random() % kAlphabet.size()];
    const auto document = YamlDocument::Parse("f.yaml", text);
    if (!document.ok()) {
      ASSERT_THAT(std::string(document.status().message()), StartsWith("f.yaml:")) << text;
    }
  }
}

TEST(YamlDocumentTest, EndsOnRandomBytes) {
  std::mt19937 random(7);  // NOLINT: the same bytes in every run
  for (int round = 0; round < 2000; ++round) {
    std::string text(64, ' ');
    for (char& c : text) c = static_cast<char>(random() & 0xff);
    EXPECT_FALSE(YamlDocument::Parse("f.yaml", text).ok());
  }
}

// ---- typed readers ----

struct ReaderCase {
  std::string name;
  std::string value;    // as written behind "field: "
  std::string result;   // the value read; empty where it is refused
  std::string message;  // then: behind "f.yaml:1: spec.field: found "
};
void PrintTo(const ReaderCase& row, std::ostream* out) { *out << row.name; }

void ExpectRead(const ReaderCase& row, const absl::StatusOr<std::string>& value) {
  if (!row.result.empty()) {
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(*value, row.result);
    return;
  }
  ASSERT_FALSE(value.ok()) << *value;
  EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(value.status().message(), "f.yaml:1: spec.field: found " + row.message);
}

class BoolReaderTest : public ::testing::TestWithParam<ReaderCase> {};

TEST_P(BoolReaderTest, ReadsWhatKubernetesReadsAsABoolean) {
  const YamlDocument document = MustParse("field: " + GetParam().value);
  ExpectRead(GetParam(),
             document.Text(*document.root().Find("field"), "spec.field", YamlType::kBool));
}

constexpr char kBool[] = ", but it must be true or false, without quotes";

INSTANTIATE_TEST_SUITE_P(
    Values, BoolReaderTest,
    ::testing::Values(
        ReaderCase{"True", "true", "true", ""}, ReaderCase{"CapitalisedTrue", "True", "true", ""},
        ReaderCase{"TrueInCapitals", "TRUE", "true", ""}, ReaderCase{"Yes", "yes", "true", ""},
        ReaderCase{"On", "on", "true", ""}, ReaderCase{"Y", "y", "true", ""},
        ReaderCase{"False", "false", "false", ""}, ReaderCase{"No", "No", "false", ""},
        ReaderCase{"Off", "OFF", "false", ""},
        ReaderCase{"MixedCase", "tRue", "", std::string("the string \"tRue\"") + kBool},
        ReaderCase{"Quoted", "\"true\"", "", std::string("the string \"true\"") + kBool},
        ReaderCase{"ANumber", "1", "", std::string("the number 1") + kBool},
        ReaderCase{"Nothing", "", "", std::string("no value") + kBool},
        ReaderCase{"Null", "~", "", std::string("no value") + kBool},
        ReaderCase{"AList", "[true]", "", std::string("a list") + kBool},
        ReaderCase{"AMap", "{a: true}", "", std::string("a map") + kBool},
        ReaderCase{"ATag", "!!str true", "",
                   std::string("\"true\" with the tag \"tag:yaml.org,2002:str\"") + kBool}),
    RowName);

class Int32ReaderTest : public ::testing::TestWithParam<ReaderCase> {};

TEST_P(Int32ReaderTest, ReadsPlainDecimalIntegersOnly) {
  const YamlDocument document = MustParse("field: " + GetParam().value);
  ExpectRead(GetParam(),
             document.Text(*document.root().Find("field"), "spec.field", YamlType::kInt32));
}

constexpr char kInt[] =
    ", but it must be a decimal integer, without quotes, leading zeros or a fraction";
constexpr char kRange[] = ", but it must be between -2147483648 and 2147483647";

INSTANTIATE_TEST_SUITE_P(
    Values, Int32ReaderTest,
    ::testing::Values(
        ReaderCase{"Zero", "0", "0", ""}, ReaderCase{"Fourteen", "14", "14", ""},
        ReaderCase{"MinusOne", "-1", "-1", ""},
        ReaderCase{"TheLargest", "2147483647", "2147483647", ""},
        ReaderCase{"TheSmallest", "-2147483648", "-2147483648", ""},
        ReaderCase{"OneTooLarge", "2147483648", "", std::string("the number 2147483648") + kRange},
        ReaderCase{"FarTooSmall", "-99999999999999999999", "",
                   std::string("the number -99999999999999999999") + kRange},
        ReaderCase{"LeadingZero", "014", "", std::string("the number 014") + kInt},
        ReaderCase{"MinusZero", "-0", "", std::string("the number -0") + kInt},
        ReaderCase{"Hexadecimal", "0x1f", "", std::string("the number 0x1f") + kInt},
        ReaderCase{"Octal", "0o16", "", std::string("the string \"0o16\"") + kInt},
        ReaderCase{"Underscore", "1_4", "", std::string("the string \"1_4\"") + kInt},
        ReaderCase{"PlusSign", "+14", "", std::string("the number +14") + kInt},
        ReaderCase{"Quoted", "\"14\"", "", std::string("the string \"14\"") + kInt},
        ReaderCase{"Fraction", "14.0", "", std::string("the number 14.0") + kInt},
        ReaderCase{"Exponent", "1e1", "", std::string("the number 1e1") + kInt},
        ReaderCase{"AWord", "x", "", std::string("the string \"x\"") + kInt},
        ReaderCase{"ABoolean", "true", "", std::string("the boolean true") + kInt},
        ReaderCase{"MinusAlone", "\"-\"", "", std::string("the string \"-\"") + kInt},
        ReaderCase{"Nothing", "", "", std::string("no value") + kInt},
        ReaderCase{"ATag", "!!int \"14\"", "",
                   std::string("\"14\" with the tag \"tag:yaml.org,2002:int\"") + kInt}),
    RowName);

class StringReaderTest : public ::testing::TestWithParam<ReaderCase> {};

TEST_P(StringReaderTest, RefusesWhatYamlGivesAnotherType) {
  const YamlDocument document = MustParse("field: " + GetParam().value);
  ExpectRead(GetParam(),
             document.Text(*document.root().Find("field"), "spec.field", YamlType::kString));
}

INSTANTIATE_TEST_SUITE_P(
    Values, StringReaderTest,
    ::testing::Values(ReaderCase{"AWord", "auto", "auto", ""},
                      ReaderCase{"Quoted", "'1.30'", "1.30", ""},
                      ReaderCase{"WithAComma", "ipv4,ipv6", "ipv4,ipv6", ""},
                      ReaderCase{"HexadecimalDigits", "cafe", "cafe", ""},
                      ReaderCase{"AVersion", "1.30", "",
                                 "the number 1.30, but it must be a string, in quotes: \"1.30\""},
                      ReaderCase{"ABoolean", "off", "",
                                 "the boolean off, but it must be a string, in quotes: \"off\""},
                      ReaderCase{"AList", "[ipv4]", "", "a list, but it must be a string"},
                      ReaderCase{"Nothing", "", "", "no value, but it must be a string"}),
    RowName);

}  // namespace
}  // namespace kipt::agent
