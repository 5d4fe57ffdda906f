// SPDX-License-Identifier: Apache-2.0
//
// The chains of ConnLabelMarking and three generations of iptables, as nft and as legacy: each
// lists and checks what the agent made, what each writes is in place for the agent, and so is what
// one saves and another restores.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/interop/agent_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"

namespace kipt::testing {
namespace {

// Of the iptables that a Debian release has. This machine's own is that of bookworm.
struct Generation {
  const char* name;
  const char* release;  // empty: this machine's
  const char* version;
};
constexpr Generation kGenerations[] = {
    {"Iptables1_8_7", "bullseye", "v1.8.7"},
    {"Iptables1_8_9", "", "v1.8.9"},
    {"Iptables1_8_11", "trixie", "v1.8.11"},
};

// What the gate makes, written out by hand: -C takes the words, -S prints `text`.
struct LabelRule {
  const char* table;
  const char* chain;
  std::vector<std::string> words;
  const char* text;
};
const LabelRule kLabelRules[] = {
    {"nat", "KUBELET-MARK-MASQ", List("-m", "connlabel", "--label", "114", "--set"),
     "-m connlabel --label \"114\" --set"},
    {"nat", "KUBELET-MARK-DROP", List("-m", "connlabel", "--label", "115", "--set"),
     "-m connlabel --label \"115\" --set"},
    {"nat", "KUBELET-POSTROUTING",
     List("-m", "connlabel", "--label", "114", "-j", "MASQUERADE", "--random-fully"),
     "-m connlabel --label \"114\" -j MASQUERADE --random-fully"},
    {"filter", "KUBELET-FIREWALL", List("-m", "connlabel", "--label", "115", "-j", "DROP"),
     "-m connlabel --label \"115\" -j DROP"},
    {"nat", "POSTROUTING",
     List("-m", "comment", "--comment", "kubelet postrouting rules", "-j", "KUBELET-POSTROUTING"),
     "-m comment --comment \"kubelet postrouting rules\" -j KUBELET-POSTROUTING"},
    {"filter", "INPUT", List("-j", "KUBELET-FIREWALL"), "-j KUBELET-FIREWALL"},
    {"filter", "FORWARD", List("-j", "KUBELET-FIREWALL"), "-j KUBELET-FIREWALL"},
    {"filter", "OUTPUT", List("-j", "KUBELET-FIREWALL"), "-j KUBELET-FIREWALL"},
};

bool IsOurChain(const LabelRule& rule) { return absl::StartsWith(rule.chain, "KUBELET-"); }

class ConnLabelGenerationsTest
    : public AgentTest,
      public ::testing::WithParamInterface<std::tuple<Generation, IptablesMode, bool>> {
 protected:
  static IptablesMode Mode() { return std::get<1>(GetParam()); }
  static Iptables Of(const Generation& generation, IpFamily family) {
    const std::string release = generation.release;
    return {family, release.empty() ? "" : ChrootDir(release), Mode()};
  }
  static Iptables Theirs(IpFamily family) { return Of(std::get<0>(GetParam()), family); }

  static ProgramResult AgentDoes(const std::string& command, bool labels) {
    const auto word = [](bool value) { return value ? "true" : "false"; };
    return Agent({command, absl::StrCat("--iptables-mode=", NameOf(Mode())),
                  absl::StrCat("--feature-gates=IPTablesOwnershipCleanup=",
                               word(std::get<2>(GetParam())), ",ConnLabelMarking=", word(labels))});
  }
  static void SyncLabels(bool labels = true) {
    const ProgramResult result = AgentDoes("sync", labels);
    EXPECT_EQ(result.exit_code, kExitOk) << result;
  }
  static void ExpectInPlace() {
    const ProgramResult result = AgentDoes("plan", /*labels=*/true);
    EXPECT_EQ(result.exit_code, kExitOk) << result;
  }

  // Legacy iptables in a chroot has one lock for all tests that run at once.
  static ProgramResult Run(const Iptables& iptables, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-w", "30"});
    return iptables.Run(arguments);
  }

  // The rules of one chain, from "-A CHAIN".
  static std::vector<std::string> Listed(const Iptables& iptables, const LabelRule& rule) {
    const ProgramResult result = Run(iptables, {"-t", rule.table, "-S", rule.chain});
    EXPECT_EQ(result.exit_code, 0) << result;
    std::vector<std::string> lines;
    for (const absl::string_view line : absl::StrSplit(result.out, '\n')) {
      // 1.8.7 ends the line of --set with a space.
      const std::string text(absl::StripTrailingAsciiWhitespace(line));
      if (absl::StartsWith(text, "-A ")) lines.push_back(text);
    }
    return lines;
  }
};

TEST_P(ConnLabelGenerationsTest, ListsAndChecksEachRuleThatWeMade) {
  SyncLabels();
  for (const IpFamily family : kBothFamilies) {
    const Iptables theirs = Theirs(family);
    for (const LabelRule& rule : kLabelRules) {
      SCOPED_TRACE(absl::StrCat(NameOf(family), " ", rule.table, " ", rule.chain));
      const std::vector<std::string> listed = Listed(theirs, rule);
      const std::string line = absl::StrCat("-A ", rule.chain, " ", rule.text);
      EXPECT_EQ(std::count(listed.begin(), listed.end(), line), 1) << absl::StrJoin(listed, "\n");
      if (IsOurChain(rule)) {
        EXPECT_EQ(listed.size(), 1U) << absl::StrJoin(listed, "\n");
      }
      std::vector<std::string> check = {"-t", rule.table, "-C", rule.chain};
      check.insert(check.end(), rule.words.begin(), rule.words.end());
      const ProgramResult found = Run(theirs, check);
      EXPECT_EQ(found.exit_code, 0) << found;
      check.insert(check.end(), {"-s", "10.0.0.1"});
      EXPECT_NE(Run(theirs, check).exit_code, 0) << "it takes any rule for this one";
    }
  }
}

// Of no use for -C and -D: libxt_connlabel.c says userspacesize = offsetof(..., bit), which is 0,
// so iptables compares nothing of the match. The agent compares all of it.
TEST_P(ConnLabelGenerationsTest, TakesEveryLabelForEveryOtherAndWeDoNot) {
  SyncLabels();
  const Iptables theirs = Theirs(IpFamily::kIpv4);
  const std::vector<std::string> another = {"KUBELET-MARK-MASQ", "-m", "connlabel", "--label", "7"};
  for (const char* command : {"-C", "-D"}) {
    std::vector<std::string> words = {"-t", "nat", command};
    words.insert(words.end(), another.begin(), another.end());
    const ProgramResult found = Run(theirs, words);
    EXPECT_EQ(found.exit_code, 0) << command << found;
  }
  EXPECT_THAT(Listed(theirs, kLabelRules[0]), IsEmpty()) << "it deleted label 114 for label 7";
  std::vector<std::string> add = {"-t", "nat", "-A"};
  add.insert(add.end(), another.begin(), another.end());
  add.emplace_back("--set");
  EXPECT_EQ(Run(theirs, add).exit_code, 0);
  EXPECT_EQ(AgentDoes("plan", /*labels=*/true).exit_code, kExitDifferences);
  SyncLabels();
  EXPECT_THAT(Listed(theirs, kLabelRules[0]),
              ElementsAre("-A KUBELET-MARK-MASQ -m connlabel --label \"114\" --set"));
}

TEST_P(ConnLabelGenerationsTest, WritesWhatWeTakeForInPlace) {
  SyncLabels(/*labels=*/false);
  for (const IpFamily family : kBothFamilies) {
    const Iptables theirs = Theirs(family);
    for (const LabelRule& rule : kLabelRules) {
      if (!IsOurChain(rule)) continue;
      const ProgramResult made = Run(theirs, {"-t", rule.table, "-N", rule.chain});
      EXPECT_EQ(made.exit_code, 0) << made;
    }
    for (const LabelRule& rule : kLabelRules) {
      std::vector<std::string> insert = {"-t", rule.table, "-I", rule.chain};
      insert.insert(insert.end(), rule.words.begin(), rule.words.end());
      const ProgramResult added = Run(theirs, insert);
      EXPECT_EQ(added.exit_code, 0) << added;
    }
  }
  ExpectInPlace();
  for (const IpFamily family : kBothFamilies) {
    const std::vector<std::string> without = {"-t", "nat", "-F", "KUBELET-MARK-MASQ"};
    EXPECT_EQ(Run(Theirs(family), without).exit_code, 0);
  }
  EXPECT_EQ(AgentDoes("plan", /*labels=*/true).exit_code, kExitDifferences);
}

TEST_P(ConnLabelGenerationsTest, SavesWhatEachRestoresAndWeTakeForInPlace) {
  SyncLabels();
  std::vector<std::string> saved;
  for (const IpFamily family : kBothFamilies) {
    std::string text;
    // A save of all tables would want a /proc in the chroot, in legacy.
    for (const char* table : kIptablesTables) {
      const ProgramResult result = Theirs(family).Save(table);
      EXPECT_EQ(result.exit_code, 0) << result;
      absl::StrAppend(&text, result.out);
    }
    EXPECT_THAT(text, HasSubstr("connlabel --label \"114\" --set"));
    saved.push_back(text);
  }
  for (const Generation& other : kGenerations) {
    SCOPED_TRACE(absl::StrCat("restored by ", other.name));
    const Netns netns = NewNetns();
    const InNetns in(netns);
    for (const IpFamily family : kBothFamilies) {
      const ProgramResult restored =
          Of(other, family).Replace(saved[family == IpFamily::kIpv4 ? 0 : 1]);
      EXPECT_EQ(restored.exit_code, 0) << restored;
    }
    ExpectInPlace();
  }
}

INSTANTIATE_TEST_SUITE_P(Releases, ConnLabelGenerationsTest,
                         ::testing::Combine(::testing::ValuesIn(kGenerations),
                                            ::testing::ValuesIn(kBothModes), ::testing::Bool()),
                         [](const auto& row) {
                           return absl::StrCat(std::get<0>(row.param).name,
                                               TestNameOf(std::get<1>(row.param)),
                                               std::get<2>(row.param) ? "Cleanup" : "Kubelet");
                         });

}  // namespace
}  // namespace kipt::testing
