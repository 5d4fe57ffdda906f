// SPDX-License-Identifier: Apache-2.0
#include "agent/text/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace kipt::agent {
namespace {

TEST(QuoteForMessageTest, EscapesAndCutsWhatItShows) {
  EXPECT_EQ(QuoteForMessage("a\"b\n"), R"("a\"b\n")");
  EXPECT_EQ(QuoteForMessage(std::string(60, 'x')), "\"" + std::string(60, 'x') + "\"");
  EXPECT_EQ(QuoteForMessage(std::string(61, 'x')), "\"" + std::string(60, 'x') + "\"...");
  // A letter is not cut in two, and bytes that are no text end it.
  EXPECT_EQ(QuoteForMessage(std::string(59, 'x') + "\u00e9"),
            "\"" + std::string(59, 'x') + "\"...");
  EXPECT_EQ(QuoteForMessage(std::string(61, '\x80')), "\"\"...");
  EXPECT_EQ(QuoteForMessage(std::string(59, 'x') + "\xc3\xa4"),
            "\"" + std::string(59, 'x') + "\"...");
}

TEST(WrappedTest, BreaksLinesBetweenWords) {
  EXPECT_EQ(Wrapped("a b", 2, "- "), "  - a b\n");
  const std::string word(60, 'x');
  EXPECT_EQ(Wrapped(word + " " + word, 2, "- "), "  - " + word + "\n    " + word + "\n");
}

TEST(AppendLineTest, IsOneLineWhateverItsPartsAre) {
  std::string report = "head\n";
  AppendLine(report, "  + ", 7, " a\nb", "\x1b");
  EXPECT_EQ(report, "head\n  + 7 a\\nb\\x1b\n");
}

}  // namespace
}  // namespace kipt::agent
