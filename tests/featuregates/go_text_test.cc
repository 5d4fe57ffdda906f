// SPDX-License-Identifier: Apache-2.0
//
// Expectations are those of Go's own strings_test.go, quote_test.go and atob_test.go where they
// have the case.
#include "featuregates/go_text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/support/status_matchers.h"
#include "tests/support/unescaped.h"

namespace kipt::featuregates {
namespace {

using ::kipt::testing::FindUnescaped;
using ::kipt::testing::IsOkAndHolds;
using ::kipt::testing::StatusIs;

constexpr char32_t kLastRune = 0x10FFFF;

bool IsSurrogate(char32_t rune) { return rune >= 0xD800 && rune <= 0xDFFF; }

// The byte that holds the lowest six bits of `bits`.
char Continuation(char32_t bits) { return static_cast<char>(0x80 | (bits & 0x3F)); }

std::string Utf8(char32_t rune) {
  if (rune < 0x80) return {static_cast<char>(rune)};
  if (rune < 0x800) return {static_cast<char>(0xC0 | (rune >> 6)), Continuation(rune)};
  if (rune < 0x10000) {
    return {static_cast<char>(0xE0 | (rune >> 12)), Continuation(rune >> 6), Continuation(rune)};
  }
  return {static_cast<char>(0xF0 | (rune >> 18)), Continuation(rune >> 12), Continuation(rune >> 6),
          Continuation(rune)};
}

TEST(GoTextTest, ParsesTheTwelveSpellingsOfABool) {
  for (const char* text : {"1", "t", "T", "true", "TRUE", "True"}) {
    EXPECT_THAT(GoParseBool(text), IsOkAndHolds(true)) << text;
  }
  for (const char* text : {"0", "f", "F", "false", "FALSE", "False"}) {
    EXPECT_THAT(GoParseBool(text), IsOkAndHolds(false)) << text;
  }
}

TEST(GoTextTest, RefusesOtherBoolsInGosWords) {
  for (const char* text : {"", "yes", "on", "tRUE", "fALSE", "2", "true "}) {
    EXPECT_THAT(GoParseBool(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                            std::string("strconv.ParseBool: parsing \"") + text +
                                                "\": invalid syntax"));
  }
  EXPECT_THAT(GoParseBool("a\"b"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "strconv.ParseBool: parsing \"a\\\"b\": invalid syntax"));
}

// The cases of parseUint64BaseTests and parseInt64BaseTests that base 0 and 32 bits have.
TEST(GoTextTest, ParsesAnIntegerOfAnyBaseAsStrconvDoes) {
  const std::pair<int32_t, std::string> rows[] = {
      {0, "0 -0"},
      {10, "0xa 0x0a"},
      {15, "+15 0xf 0XF 017 0o17 0O17 0b1111 0B1111 0x_f 0_17 1_5"},
      {-15, "-15 -0xF"},
      {31, "0x1_F"},
      {2147483647, "2147483647"},
      {-2147483647 - 1, "-2147483648"},
  };
  for (const auto& [value, texts] : rows) {
    for (const absl::string_view text : absl::StrSplit(texts, ' ')) {
      EXPECT_THAT(GoParseInt32(text), IsOkAndHolds(value)) << text;
    }
  }
}

TEST(GoTextTest, RefusesOtherIntegersInGosWords) {
  for (const char* text : {"",     "x",    "+",   "-",    "--1",   "+-1", " 3",          "3 ",
                           "0x",   "0b",   "0o",  "019",  "0b2",   "0o8", "0xg",         "1.0",
                           "1e3",  "_15",  "08",  "-+1",  "0x`",   "0x{", "4294967295x", "15_",
                           "1__5", "_0xf", "0x_", "0xf_", "0__17", "+_1", "0_xf",        "f"}) {
    EXPECT_THAT(GoParseInt32(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("strconv.ParseInt: parsing \"", text, "\": invalid syntax")))
        << text;
  }
  for (const char* text : {"2147483648", "-2147483649", "0x80000000", "18446744073709551616",
                           "99999999999999999999x"}) {
    EXPECT_THAT(GoParseInt32(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                             absl::StrCat("strconv.ParseInt: parsing \"", text,
                                                          "\": value out of range")))
        << text;
  }
}

TEST(GoTextTest, TrimsUnicodeSpacesAtBothEndsOnly) {
  const std::pair<absl::string_view, absl::string_view> rows[] = {
      {"", ""},
      {" \t\r\n\v\f", ""},
      {"  a b\t", "a b"},
      {"x\xE2\x80\x8B", "x\xE2\x80\x8B"},  // a zero width space is none
      {" \xC3\xA9 ", "\xC3\xA9"},          // a letter beyond ASCII
      {" \xA0 ", "\xA0"},                  // not UTF-8
      {"x\xE2\x80", "x\xE2\x80"},          // a cut sequence
  };
  for (const auto& [text, trimmed] : rows) EXPECT_EQ(GoTrimSpace(text), trimmed);
}

TEST(GoTextTest, QuotesAsStrconvDoes) {
  const std::pair<absl::string_view, absl::string_view> rows[] = {
      {"", R"("")"},
      {"\a\b\f\r\n\t\v", R"("\a\b\f\r\n\t\v")"},
      {"\\", R"("\\")"},
      {"a\"b", R"("a\"b")"},
      {"a'b", R"("a'b")"},
      {"\x04\x1B\x7F", R"("\x04\x1b\x7f")"},
      {absl::string_view("\0", 1), R"("\x00")"},
      {"\xE2\x98\xBA\xC3\xA9\xF0\x9F\x98\x80", "\"\xE2\x98\xBA\xC3\xA9\xF0\x9F\x98\x80\""},
      {"abc\xFF"
       "def",
       R"("abc\xffdef")"},
      {"\xC2\xA0", R"("\u00a0")"},                    // a no-break space
      {"\xE2\x80\xAE", R"("\u202e")"},                // right-to-left override
      {"\xF4\x8F\xBF\xBF", R"("\U0010ffff")"},        // the last of Unicode
      {"\xF4\x90\x80\x80", R"("\xf4\x90\x80\x80")"},  // beyond Unicode
      {"\xE2\x98", R"("\xe2\x98")"},                  // cut
      {"\xE2\x28\xA1", R"("\xe2(\xa1")"},             // a continuation is missing
      // The edges of UTF-8.
      {"\xC2\x80", R"("\u0080")"},                    // first of two bytes
      {"\xC1\xBF", R"("\xc1\xbf")"},                  // overlong in two
      {"\xE0\xA0\x80", "\"\xE0\xA0\x80\""},           // first of three bytes
      {"\xE0\x9F\xBF", R"("\xe0\x9f\xbf")"},          // overlong in three
      {"\xF0\x90\x80\x80", "\"\xF0\x90\x80\x80\""},   // first of four bytes
      {"\xF0\x8F\xBF\xBF", R"("\xf0\x8f\xbf\xbf")"},  // overlong in four
      {"\xF1\x80\x80\x80\xF2\x80\x80\x80\xF3\xB0\x80\x80",
       "\"\xF1\x80\x80\x80\xF2\x80\x80\x80\\U000f0000\""},
      {"\xED\x9F\xBF", "\"\xED\x9F\xBF\""},                   // last before the surrogates
      {"\xED\xBF\xBF", R"("\xed\xbf\xbf")"},                  // last surrogate
      {"\xEE\x80\x80", R"("\ue000")"},                        // first after the surrogates
      {"\xEF\xBF\xBF", R"("\uffff")"},                        // last with four digits
      {"\xF8\x88\x80\x80\x80", R"("\xf8\x88\x80\x80\x80")"},  // a lead of five bytes
  };
  for (const auto& [text, quoted] : rows) EXPECT_EQ(GoQuote(text), quoted);
}

TEST(GoTextTest, TrimsWhatUnicodeCallsWhiteSpaceAndNothingElse) {
  // White_Space of Unicode's PropList.txt.
  const std::set<char32_t> expected = {0x09,   0x0A,   0x0B,   0x0C,   0x0D,   0x20,   0x85,
                                       0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                       0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                       0x2029, 0x202F, 0x205F, 0x3000};
  std::set<char32_t> trimmed;
  for (char32_t rune = 0; rune <= 0xFFFF; ++rune) {  // beyond, there is none
    if (!IsSurrogate(rune) && GoTrimSpace(Utf8(rune)).empty()) trimmed.insert(rune);
  }
  EXPECT_EQ(trimmed, expected);
}

TEST(GoTextTest, QuotesEachSideOfWhatIsInvisible) {
  struct Row {
    const char* name;
    char32_t first;
    char32_t last;
  };
  const Row rows[] = {
      {"controls to the no-break space", 0x80, 0xA0},
      {"soft hyphen", 0xAD, 0xAD},
      {"Arabic number signs", 0x600, 0x605},
      {"Arabic letter mark", 0x61C, 0x61C},
      {"Arabic end of ayah", 0x6DD, 0x6DD},
      {"Syriac abbreviation mark", 0x70F, 0x70F},
      {"Ogham space", 0x1680, 0x1680},
      {"Mongolian vowel separator", 0x180E, 0x180E},
      {"spaces, joiners and direction marks", 0x2000, 0x200F},
      {"separators and embeddings", 0x2028, 0x202F},
      {"mathematical space to the deprecated formats", 0x205F, 0x206F},
      {"ideographic space", 0x3000, 0x3000},
      {"private use", 0xE000, 0xF8FF},
      {"byte order mark", 0xFEFF, 0xFEFF},
      {"specials, to the interlinear annotations", 0xFFF0, 0xFFFB},
      {"noncharacters at the end of the first plane", 0xFFFE, 0xFFFF},
      {"tags", 0xE0000, 0xE00FF},
      {"private use planes", 0xF0000, 0x10FFFF},
  };
  const auto escaped = [](char32_t rune) {
    const auto number = static_cast<uint32_t>(rune);
    return rune < 0x10000 ? absl::StrFormat("\"\\u%04x\"", number)
                          : absl::StrFormat("\"\\U%08x\"", number);
  };
  const auto plain = [](char32_t rune) { return "\"" + Utf8(rune) + "\""; };
  for (const Row& row : rows) {
    EXPECT_EQ(GoQuote(Utf8(row.first)), escaped(row.first)) << row.name;
    EXPECT_EQ(GoQuote(Utf8(row.last)), escaped(row.last)) << row.name;
    // U+0080 follows a control, U+E000 a surrogate; nothing follows U+10FFFF.
    if (row.first > 0x80 && !IsSurrogate(row.first - 1)) {
      EXPECT_EQ(GoQuote(Utf8(row.first - 1)), plain(row.first - 1)) << row.name;
    }
    if (row.last < kLastRune) {
      EXPECT_EQ(GoQuote(Utf8(row.last + 1)), plain(row.last + 1)) << row.name;
    }
  }
}

TEST(PrintableTest, EscapesWhatDeceivesAReaderAndNothingElse) {
  const std::string plain =
      "-A X -m comment --comment \"it's \\\"x\\\" \\\\\" -j na\u00efve\u65e5\U0001F600";
  const std::pair<std::string, std::string> rows[] = {
      {"", ""},
      {plain, plain},
      {"a\nb\r\nc", R"(a\nb\r\nc)"},
      {std::string("a\0b", 3), R"(a\x00b)"},
      {"\a\b\t\v\f\x1b\x1f\x7f", R"(\a\b\t\v\f\x1b\x1f\x7f)"},
      {"\u0080\u0085\u009b2J\u009f", R"(\u0080\u0085\u009b2J\u009f)"},
      {"\u202ea\u2066b\u061c\u200f", R"(\u202ea\u2066b\u061c\u200f)"},
      {"\u2028\u2029\u00a0\u200b\ufeff\U000E0041", R"(\u2028\u2029\u00a0\u200b\ufeff\U000e0041)"},
      {"\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80", R"(\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80)"},
      {"a\xe2\x80", R"(a\xe2\x80)"},
  };
  for (const auto& [text, printable] : rows) {
    SCOPED_TRACE(printable);
    EXPECT_EQ(Printable(text), printable);
    EXPECT_EQ(Printable(printable), printable) << "it may be done twice";
    EXPECT_EQ(FindUnescaped(printable), "");
  }
}

TEST(PrintableTest, LetsNoPairOfBytesThrough) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string text = {'\xe2', static_cast<char>(a), static_cast<char>(b), 'x'};
      const std::string printable = Printable(text);
      EXPECT_EQ(FindUnescaped(printable), "");
      EXPECT_EQ(printable.find('\n'), std::string::npos);
      EXPECT_EQ(printable.back(), 'x');
    }
  }
}

}  // namespace
}  // namespace kipt::featuregates
