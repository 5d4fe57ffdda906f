// SPDX-License-Identifier: Apache-2.0
//
// The table of versions against the captures.
#include "tests/skew/versions/traits.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "absl/strings/str_split.h"

namespace kipt::skew {
namespace {

bool Shows(const std::string& path, const char* pattern) {
  std::ifstream file(std::string(KIPT_TESTS_DIR "/") + path);
  EXPECT_TRUE(file.is_open()) << path;
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::regex regex(pattern);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (std::regex_search(line, regex)) return true;
  }
  return false;
}

// "1.31", out of "skew/kube_proxy/testdata/kube-proxy-1.31-A-v4.save".
Version VersionIn(const std::string& path) {
  std::smatch match;
  EXPECT_TRUE(std::regex_search(path, match, std::regex("1\\.([0-9]+)(\\.[0-9]+)?[-.]"))) << path;
  // 1.18.6 is as 1.19 in what it writes (testdata/README.md).
  return {1, std::stoi(match[1]) + (match[2].length() > 0 ? 1 : 0)};
}

TEST(TraitsTest, AreWhatTheCapturesShow) {
  int held = 0;
  for (const TraitRow& row : Traits()) {
    SCOPED_TRACE(row.does);
    const bool captured = std::string(row.evidence).find("captures") != std::string::npos;
    if (*row.shows == '\0') continue;
    EXPECT_TRUE(captured) << "its evidence names no captures";
    EXPECT_TRUE(Shows(row.with, row.shows)) << row.with;
    EXPECT_FALSE(Shows(row.without, row.shows)) << row.without;
    EXPECT_TRUE(Does(VersionIn(row.with), row.trait)) << row.with;
    EXPECT_FALSE(Does(VersionIn(row.without), row.trait)) << row.without;
    ++held;
  }
  EXPECT_GE(held, 29);
}

TEST(TraitsTest, NameTheirEvidenceAndLieWithinTheVersions) {
  std::set<std::string> texts;
  for (const TraitRow& row : Traits()) {
    SCOPED_TRACE(row.does);
    EXPECT_STRNE(row.does, "");
    EXPECT_STRNE(row.evidence, "");
    EXPECT_GE(row.first, kOldest.minor);
    EXPECT_LE(row.first, row.last);
    EXPECT_TRUE(row.last <= kNewest.minor || row.last == kEver);
    EXPECT_EQ(*row.with == '\0', *row.shows == '\0');
    EXPECT_EQ(*row.without == '\0', *row.shows == '\0');
  }
}

TEST(TraitsTest, TheNewestDoesAsTheNewestThatWasRun) {
  for (const TraitRow& row : Traits()) {
    EXPECT_EQ(Does(kNewest, row.trait), Does(kNewestCaptured, row.trait)) << row.does;
  }
}

// A generation is a run of versions of which none begins or ends to do anything.
TEST(TraitsTest, GenerationsBeginWhereTheRowsSay) {
  for (int minor = kOldest.minor + 1; minor <= kNewest.minor; ++minor) {
    for (const Component component :
         {Component::kKubelet, Component::kIptablesProxy, Component::kIpvsProxy}) {
      bool differs = false;
      for (const TraitRow& row : Traits()) {
        if (row.component != component || !row.begins_generation) continue;
        differs |= Does({1, minor}, row.trait) != Does({1, minor - 1}, row.trait);
      }
      EXPECT_EQ(FirstLike(component, {1, minor}) == (Version{1, minor}), differs) << minor;
    }
  }
}

}  // namespace
}  // namespace kipt::skew
