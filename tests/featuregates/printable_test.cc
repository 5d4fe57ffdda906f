// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "featuregates/go_text.h"
#include "tests/support/unescaped.h"

namespace kipt::featuregates {
namespace {

using ::kipt::testing::FindUnescaped;

struct Row {
  const char* name;
  std::string text;
  std::string printable;
};

TEST(PrintableTest, EscapesWhatDeceivesAReaderAndNothingElse) {
  const std::vector<Row> rows = {
      {"nothing", "", ""},
      {"a rule", R"(-A X -m comment --comment "it's \"x\" \\" -j Y)",
       R"(-A X -m comment --comment "it's \"x\" \\" -j Y)"},
      {"letters of any script", "na\u00efve \u0393\u65e5\U0001F600",
       "na\u00efve \u0393\u65e5\U0001F600"},
      {"ends of lines", "a\nb\r\nc", R"(a\nb\r\nc)"},
      {"NUL", std::string("a\0b", 3), R"(a\x00b)"},
      {"other C0", "\a\b\t\v\f\x1b\x1f", R"(\a\b\t\v\f\x1b\x1f)"},
      {"DEL", "\x7f", R"(\x7f)"},
      {"C1", "\u0080\u0085\u009b2J\u009f", R"(\u0080\u0085\u009b2J\u009f)"},
      {"C1 as bytes",
       "\x9b"
       "2J",
       R"(\x9b2J)"},
      {"text that runs backwards", "\u202ea\u2066b\u061c\u200f", R"(\u202ea\u2066b\u061c\u200f)"},
      {"line and paragraph separator", "\u2028\u2029", R"(\u2028\u2029)"},
      {"invisible", "\u00a0\u200b\ufeff\U000E0041", R"(\u00a0\u200b\ufeff\U000e0041)"},
      {"no UTF-8", "\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80",
       R"(\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80)"},
      {"a cut sequence", "a\xe2\x80", R"(a\xe2\x80)"},
      {"a sequence that a letter cuts",
       "\xc2"
       "a",
       R"(\xc2a)"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(Printable(row.text), row.printable);
    EXPECT_EQ(Printable(row.printable), row.printable) << "it may be done twice";
    EXPECT_EQ(FindUnescaped(row.printable), "");
  }
}

// Whatever stands beside them.
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

TEST(AppendLineTest, IsOneLineWhateverItsPartsAre) {
  std::string report = "head\n";
  AppendLine(report, "  + ", 7, " a\nb", "\x1b");
  EXPECT_EQ(report, "head\n  + 7 a\\nb\\x1b\n");
}

}  // namespace
}  // namespace kipt::featuregates
