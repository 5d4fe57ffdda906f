// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/versions/versions.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/temporary_tree.h"

namespace kipt::skew {
namespace {

using testing::KubeletForm;

struct KubeletRow {
  const char* name;
  KubeletVersion kubelet;
  const char* text;
  bool cleans_up;
  KubeletForm form;
  const char* generation;
};
const KubeletRow kKubelets[] = {
    {"The oldest", {{1, 17}, {}}, "1.17", false, KubeletForm::k1_17, "1.17"},
    {"1.18", {{1, 18}, {}}, "1.18", false, KubeletForm::k1_17, "1.17"},
    {"1.19 writes IPv4 alone", {{1, 19}, {}}, "1.19", false, KubeletForm::k1_19, "1.19"},
    {"1.23", {{1, 23}, {}}, "1.23", false, KubeletForm::k1_19, "1.20"},
    {"1.24 makes the hint", {{1, 24}, {}}, "1.24", false, KubeletForm::k1_24, "1.24"},
    {"1.24 knows no gate", {{1, 24}, true}, "1.24 gate on", false, KubeletForm::k1_24, "1.24"},
    {"1.25", {{1, 25}, {}}, "1.25", false, KubeletForm::k1_27GateOff, "1.25"},
    {"1.25 gate on", {{1, 25}, true}, "1.25 gate on", true, KubeletForm::k1_27GateOn, "1.27"},
    {"1.25 gate off, set", {{1, 25}, false}, "1.25", false, KubeletForm::k1_27GateOff, "1.25"},
    {"1.27", {{1, 27}, {}}, "1.27", true, KubeletForm::k1_27GateOn, "1.27"},
    {"1.27 gate off", {{1, 27}, false}, "1.27 gate off", false, KubeletForm::k1_27GateOff, "1.25"},
    {"1.28 is locked", {{1, 28}, false}, "1.28 gate off", true, KubeletForm::k1_27GateOn, "1.27"},
    {"1.32", {{1, 32}, {}}, "1.32", true, KubeletForm::k1_27GateOn, "1.27"},
    {"1.33 probes", {{1, 33}, {}}, "1.33", true, KubeletForm::k1_27GateOn, "1.33"},
    {"1.34 has other time-outs", {{1, 34}, {}}, "1.34", true, KubeletForm::k1_27GateOn, "1.34"},
    {"The newest", {kNewest, {}}, "1.37", true, KubeletForm::k1_27GateOn, "1.34"},
};

TEST(KubeletVersionTest, KnowsItsGateItsFormAndItsGeneration) {
  for (const KubeletRow& row : kKubelets) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(ToString(row.kubelet), row.text);
    EXPECT_EQ(CleansUp(row.kubelet), row.cleans_up);
    EXPECT_EQ(FormOf(row.kubelet), row.form);
    EXPECT_EQ(ToString(GenerationOf(row.kubelet)), row.generation);
  }
}

TEST(KubeletVersionTest, DoesAsItsGenerationDoes) {
  for (const Version version : AllVersions()) {
    for (const std::optional<bool> gate :
         {std::optional<bool>(), std::optional<bool>(true), std::optional<bool>(false)}) {
      const KubeletVersion kubelet = {version, gate};
      const KubeletVersion generation = GenerationOf(kubelet);
      EXPECT_EQ(FormOf(generation), FormOf(kubelet)) << ToString(kubelet);
      EXPECT_EQ(GenerationOf(generation), generation) << ToString(kubelet);
    }
  }
}

bool Shows(const std::string& name, const char* pattern) {
  const char* folder = absl::StrContains(name, "/") ? ""
                       : absl::StartsWith(name, "kubelet-")
                           ? "skew/actors/testdata/"
                           : "skew/kube_proxy/testdata/kube-proxy-";
  const std::string text = FileText(absl::StrCat(KIPT_TESTS_DIR "/", folder, name));
  EXPECT_NE(text, "") << name;
  const std::regex regex(pattern);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (std::regex_search(line, regex)) return true;
  }
  return false;
}

// "1.31", out of "1.31-A-v4.save".
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

TEST(TraitsTest, TheNewestDoesAsTheNewestThatWasRun) {
  for (const TraitRow& row : Traits()) {
    EXPECT_EQ(Does(kNewest, row.trait), Does(kNewestCaptured, row.trait)) << row.does;
  }
}

}  // namespace

}  // namespace kipt::skew
