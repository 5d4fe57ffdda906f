// SPDX-License-Identifier: Apache-2.0
//
// The chains of ConnLabelMarking and three generations of iptables, as nft and as legacy: each
// lists and checks what the agent made, and what one saves and another restores is in place for the
// agent.
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

  // `sync` or `plan` with the gate on must end with 0.
  static void ExpectWell(const std::string& command) {
    const ProgramResult result =
        Agent({command, absl::StrCat("--iptables-mode=", NameOf(Mode())),
               absl::StrCat("--feature-gates=ConnLabelMarking=true,IPTablesOwnershipCleanup=",
                            std::get<2>(GetParam()) ? "true" : "false")});
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
  ExpectWell("sync");
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

TEST_P(ConnLabelGenerationsTest, SavesWhatEachRestoresAndWeTakeForInPlace) {
  ExpectWell("sync");
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
    ExpectWell("plan");
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
