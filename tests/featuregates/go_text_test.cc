// SPDX-License-Identifier: Apache-2.0
//
// Expectations are those of Go's own strings_test.go, quote_test.go and atob_test.go where they
// have the case.
#include "featuregates/go_text.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace kipt::featuregates {
namespace {

using ::kipt::testing::IsOkAndHolds;
using ::kipt::testing::StatusIs;

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

TEST(GoTextTest, TrimsUnicodeSpacesAtBothEndsOnly) {
  struct Row {
    const char* name;
    absl::string_view text;
    absl::string_view trimmed;
  };
  const Row rows[] = {
      {"nothing", "", ""},
      {"only spaces", " \t\r\n\v\f", ""},
      {"no spaces", "abc", "abc"},
      {"inner space stays", "  a b\t", "a b"},
      {"no-break space", "\xC2\xA0x\xC2\xA0", "x"},
      {"next line", "\xC2\x85x", "x"},
      {"em space and ideographic space", "\xE2\x80\x83x\xE3\x80\x80", "x"},
      {"zero width space is none", "x\xE2\x80\x8B", "x\xE2\x80\x8B"},
      {"a letter beyond ASCII", " \xC3\xA9 ", "\xC3\xA9"},
      {"a byte that is not UTF-8 stays", " \xA0 ", "\xA0"},
      {"a cut sequence stays", "x\xE2\x80", "x\xE2\x80"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(GoTrimSpace(row.text), row.trimmed) << row.name;
  }
}

TEST(GoTextTest, QuotesAsStrconvDoes) {
  struct Row {
    const char* name;
    absl::string_view text;
    absl::string_view quoted;
  };
  const Row rows[] = {
      {"empty", "", R"("")"},
      {"short escapes", "\a\b\f\r\n\t\v", R"("\a\b\f\r\n\t\v")"},
      {"backslash", "\\", R"("\\")"},
      {"double quote", "a\"b", R"("a\"b")"},
      {"single quote stays", "a'b", R"("a'b")"},
      {"other controls", "\x04\x1B\x7F", R"("\x04\x1b\x7f")"},
      {"NUL", absl::string_view("\0", 1), R"("\x00")"},
      {"letters beyond ASCII", "\xE2\x98\xBA\xC3\xA9\xF0\x9F\x98\x80",
       "\"\xE2\x98\xBA\xC3\xA9\xF0\x9F\x98\x80\""},
      {"not UTF-8",
       "abc\xFF"
       "def",
       R"("abc\xffdef")"},
      {"no-break space", "\xC2\xA0", R"("\u00a0")"},
      {"right-to-left override", "\xE2\x80\xAE", R"("\u202e")"},
      {"beyond the basic plane", "\xF4\x8F\xBF\xBF", R"("\U0010ffff")"},
      {"overlong slash", "\xC0\xAF", R"("\xc0\xaf")"},
      {"surrogate", "\xED\xA0\x80", R"("\xed\xa0\x80")"},
      {"beyond Unicode", "\xF4\x90\x80\x80", R"("\xf4\x90\x80\x80")"},
      {"cut sequence", "\xE2\x98", R"("\xe2\x98")"},
      {"continuation missing", "\xE2\x28\xA1", R"("\xe2(\xa1")"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(GoQuote(row.text), row.quoted) << row.name;
  }
}

}  // namespace
}  // namespace kipt::featuregates
