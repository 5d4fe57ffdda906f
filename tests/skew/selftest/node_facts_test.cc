// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/skew/matrix/judge.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

// What the table "Version skew" of deploy/upgrades.md has for a pair.
std::string SkewOf(const KubeletVersion& kubelet, int proxy) {
  const auto lets_through = [&](IpFamily family) {
    FamilyFacts facts;
    facts.family = family;
    KubeletSyncs(kubelet, facts);
    ProxySyncsFully({{1, proxy}}, true, facts);
    for (const Question& question : ServiceQuestions(family)) {
      if (question.about != About::kRefusedBoundVip) continue;
      return Expect(facts, question).expected != Outcome::kDropped;
    }
    ADD_FAILURE() << "no service is refused";
    return false;
  };
  if (lets_through(IpFamily::kIpv4)) return "D";
  if (lets_through(IpFamily::kIpv6)) return "6";
  return IsAllowed(kubelet.version, {1, proxy}) ? "ok" : "u";
}

TEST(UpgradesDocumentTest, MatchesTheFactsOfEachPair) {
  std::ifstream file(KIPT_TESTS_DIR "/../deploy/upgrades.md");
  // The versions of each column; the first names kubelet's.
  std::vector<std::string> columns;
  int compared = 0;
  for (std::string line; std::getline(file, line);) {
    const bool heads = absl::StartsWith(line, "| kubelet, or ");
    if (!heads && columns.empty()) continue;
    if (line.empty()) break;
    const std::vector<std::string> cells = absl::StrSplit(
        absl::StrReplaceAll(line, {{"*", ""}, {"1.", ""}, {"kube-proxy ", ""}}), " | ");
    if (heads) columns = cells;
    int kubelet = 0;
    if (!absl::SimpleAtoi(cells[0].substr(2, 2), &kubelet)) continue;
    std::optional<bool> gate;
    if (absl::StrContains(cells[0], "gate")) gate = absl::StrContains(cells[0], "gate on");
    for (size_t i = 1; i < cells.size(); ++i) {
      for (const absl::string_view proxy : absl::StrSplit(columns[i], ", ")) {
        int minor = 0;
        ASSERT_TRUE(absl::SimpleAtoi(proxy.substr(0, 2), &minor)) << proxy;
        const std::string written = cells[i].substr(0, cells[i].find(' '));
        EXPECT_EQ(written, SkewOf({{1, kubelet}, gate}, minor)) << line << " " << proxy;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 110);
}

}  // namespace
}  // namespace kipt::skew
