// SPDX-License-Identifier: Apache-2.0
//
// The parser of iptables-save on what kube-proxy writes: testdata/rulesets/README.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/xtables/iptables_save.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::Filter;
using ::kipt::testing::IsOk;
using ::kipt::testing::Mangle;
using ::kipt::testing::Nat;
using netlink::ChainId;
using netlink::Family;
using netlink::ObservedChain;
using netlink::ObservedRule;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Chains = std::map<ChainId, ObservedChain>;

std::vector<std::string> SortedWords(absl::string_view line) {
  std::vector<std::string> words = absl::StrSplit(line, ' ');
  std::sort(words.begin(), words.end());
  return words;
}

class CapturedSaveTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::ifstream file(absl::StrCat(KIPT_RULESETS_DIR, "/", GetParam()));
    ASSERT_TRUE(file.is_open());
    std::stringstream content;
    content << file.rdbuf();
    text_ = content.str();
    family_ = absl::StrContains(GetParam(), "-v6") ? Family::kIPv6 : Family::kIPv4;
  }

  std::string text_;
  Family family_ = Family::kIPv4;
};

// The matches of a Rule have no order, so a line may come back with other places for its words.
// What is opaque comes back byte for byte.
TEST_P(CapturedSaveTest, ComesBackLineByLine) {
  absl::StatusOr<Chains> chains = ParseSave(family_, text_);
  ASSERT_THAT(chains, IsOk());
  ASSERT_THAT(*chains, Not(IsEmpty()));
  std::string table;
  std::map<ChainId, size_t> next;
  size_t ours = 0;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text_, '\n'))) {
    if (absl::StartsWith(line, "*")) table = line.substr(1);
    if (!absl::StartsWith(line, "-A ")) continue;
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    const std::string& name = words[1];
    ChainId id = Filter(name, family_);
    if (table != "filter") id = table == "nat" ? Nat(name, family_) : Mangle(name, family_);
    ASSERT_EQ(chains->count(id), 1U) << ToString(id);
    const std::vector<ObservedRule>& rules = chains->at(id).rules;
    ASSERT_LT(next[id], rules.size()) << line;
    const ObservedRule& rule = rules[next[id]++];
    EXPECT_EQ(rule.handle, next[id]);
    if (rule.rule() != nullptr) {
      ++ours;
      EXPECT_EQ(SortedWords(ToString(family_, rule)), SortedWords(words[2]));
    } else {
      EXPECT_EQ(ToString(family_, rule), words[2]);
    }
  }
  for (const auto& [id, chain] : *chains) EXPECT_EQ(chain.rules.size(), next[id]) << ToString(id);
  EXPECT_GT(ours, 0U);
}

// The ones that decide about adoption and about order.
TEST_P(CapturedSaveTest, ReadsTheRulesThatAreOursToo) {
  const absl::StatusOr<Chains> chains = ParseSave(family_, text_);
  ASSERT_THAT(chains, IsOk());
  for (const char* name : {"KUBE-MARK-MASQ", "KUBE-MARK-DROP", "KUBE-POSTROUTING", "POSTROUTING"}) {
    const auto found = chains->find(Nat(name, family_));
    if (found == chains->end()) continue;
    for (const ObservedRule& rule : found->second.rules) {
      EXPECT_NE(rule.rule(), nullptr) << name << ": " << ToString(family_, rule);
    }
  }
  for (const auto& [id, chain] : *chains) {
    EXPECT_EQ(chain.hooked, !absl::StartsWith(id.name, "KUBE-")) << id.name;
    for (const ObservedRule& rule : chain.rules) {
      const std::string line = ToString(family_, rule);
      const std::string* jump = JumpTarget(rule);
      EXPECT_EQ(jump != nullptr, absl::StrContains(line, "-j KUBE-")) << line;
      EXPECT_TRUE(jump == nullptr || absl::EndsWith(line, "-j " + *jump)) << line;
      EXPECT_EQ(MayDecide(rule), absl::StrContains(line, "-j ")) << line;
    }
  }
}

std::vector<std::string> CapturedSaves() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(KIPT_RULESETS_DIR)) {
    if (entry.path().extension() == ".save") names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(KubeProxy, CapturedSaveTest, ::testing::ValuesIn(CapturedSaves()),
                         [](const auto& row) {
                           std::string name = row.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST(CapturedSavesTest, AreAllThere) { EXPECT_THAT(CapturedSaves(), SizeIs(30)); }

}  // namespace
}  // namespace kipt::agent
