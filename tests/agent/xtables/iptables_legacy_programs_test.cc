// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_legacy_programs.h"

#include <optional>
#include <string>
#include <vector>

#include "tests/agent/xtables/iptables_legacy_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using agent::FindIptablesLegacyPrograms;
using agent::IptablesProgram;
using agent::IptablesVersion;
using agent::ParseIptablesVersion;
using agent::RestoreWaitArguments;
using netlink::Family;

TEST(IptablesVersionTest, ReadsWhatEveryGenerationPrints) {
  struct Row {
    std::string name;
    std::string text = {};
    std::optional<IptablesProgram> wanted = {};
    bool legacy = false;
  };
  const std::vector<Row> rows = {
      {"legacy", "iptables-restore v1.8.9 (legacy)\n", {{{1, 8, 9}, "legacy"}}, true},
      {"nft", "iptables v1.8.11 (nf_tables)\n", {{{1, 8, 11}, "nf_tables"}}},
      {"before variants", "iptables v1.6.1\n", {{{1, 6, 1}, ""}}, true},
      {"four numbers", "ip6tables v1.4.19.1\n", {{{1, 4, 19}, ""}}, true},
      {"no variant in the first version that names one", "iptables v1.8.0\n", {{{1, 8, 0}, ""}}},
      {"no v", "iptables 1.8.9 (legacy)\n"},
      {"one word more", "iptables v1.8.9 (legacy) more\n"},
      {"two numbers", "iptables v1.6\n", {{{1, 6, 0}, ""}}, true},
      {"no variant where there must be one", "iptables v1.8.9\n", {{{1, 8, 9}, ""}}},
      {"nothing"},
      {"no version", "iptables: unknown option\n"},
      {"negative", "iptables v1.-8.9 (legacy)\n"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const std::optional<IptablesProgram> found = ParseIptablesVersion(row.text);
    EXPECT_EQ(found, row.wanted);
    EXPECT_EQ(found && found->legacy(), row.legacy);
  }
}

TEST(IptablesVersionTest, KnowsWhatEachVersionCan) {
  struct Row {
    IptablesVersion version;
    bool takes_lock;
    bool movable;
    bool random_fully;
  };
  for (const Row& row : std::vector<Row>{{{1, 4, 21}, false, false, false},
                                         {{1, 6, 1}, false, false, false},
                                         {{1, 6, 2}, true, false, true},
                                         {{1, 8, 6}, true, false, true},
                                         {{1, 8, 7}, true, true, true},
                                         {{1, 8, 11}, true, true, true},
                                         {{2, 0, 0}, true, true, true}}) {
    SCOPED_TRACE(ToString(row.version));
    EXPECT_EQ(row.version.RestoreTakesLock(), row.takes_lock);
    EXPECT_EQ(row.version.LockIsMovable(), row.movable);
    EXPECT_EQ(row.version.HasRandomFully(), row.random_fully);
  }
}

TEST(IptablesVersionTest, NeverWaitsForEver) {
  EXPECT_THAT(RestoreWaitArguments({1, 6, 1}, absl::Seconds(5)), IsEmpty());
  EXPECT_THAT(RestoreWaitArguments({1, 6, 2}, absl::Seconds(5)), ElementsAre("-w", "5"));
  EXPECT_THAT(RestoreWaitArguments({1, 8, 9}, absl::Milliseconds(1200)), ElementsAre("-w", "2"));
  EXPECT_THAT(RestoreWaitArguments({1, 8, 9}, absl::ZeroDuration()), ElementsAre("-w", "1"));
}

class FindLegacyProgramsTest : public LegacyFixture {
 protected:
  // STEM-save, STEM-restore and STEM, of which the last two answer --version.
  void InstallStem(const std::string& stem, const std::string& restore_says,
                   const std::string& says) {
    Install(directory_ + "/" + stem + "-save");
    Install(directory_ + "/" + stem + "-restore");
    runner_.On(directory_ + "/" + stem + "-restore",
               Answers({.exit_code = 0, .output = restore_says, .errors = ""}));
    runner_.On(directory_ + "/" + stem, Answers({.exit_code = 0, .output = says, .errors = ""}));
  }
  auto Find() {
    return FindIptablesLegacyPrograms(runner_, Family::kIPv4, {directory_ + "/none", directory_});
  }
};

TEST_F(FindLegacyProgramsTest, TakesTheProgramsThatAreCalledLegacyFirst) {
  InstallStem("iptables", "iptables-restore v1.6.1\n", "");
  InstallStem("iptables-legacy", "iptables-restore v1.8.9 (legacy)\n", "");
  const auto found = Find();
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->save, directory_ + "/iptables-legacy-save");
  EXPECT_EQ(found->version, (IptablesVersion{1, 8, 9}));
}

TEST_F(FindLegacyProgramsTest, AsksIptablesWhereItsRestoreKnowsNoVersion) {
  InstallStem("iptables", "", "iptables v1.6.1\n");
  ASSERT_THAT(Find(), IsOk());
  EXPECT_EQ(Find()->version, (IptablesVersion{1, 6, 1}));
}

TEST_F(FindLegacyProgramsTest, SaysWhereItLookedAndWhatItFoundInstead) {
  EXPECT_THAT(Find(), StatusIs(absl::StatusCode::kNotFound,
                               AllOf(HasSubstr(directory_ + "/none"), HasSubstr("install"))));
  InstallStem("iptables", "iptables-restore v1.8.9 (nf_tables)\n", "");
  EXPECT_THAT(Find(), StatusIs(absl::StatusCode::kNotFound,
                               HasSubstr("iptables-restore is 1.8.9 (nf_tables)")));
  InstallStem("iptables", "garbage\n", "garbage\n");
  EXPECT_THAT(Find(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("iptables-restore --version: exit code 0 and no version")));
  for (const std::string name : {"iptables", "iptables-restore"}) {
    runner_.On(directory_ + "/" + name, Fails(absl::DeadlineExceededError("it hangs")));
  }
  EXPECT_THAT(Find(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("(found: it hangs)")));
}

TEST_F(FindLegacyProgramsTest, AsksForTheVersionForALimitedTimeAndOutput) {
  InstallStem("iptables-legacy", "", "");
  agent::CommandRequest asked;
  runner_.On(directory_ + "/iptables-legacy-restore", [&](const agent::CommandRequest& request) {
    asked = request;
    return agent::CommandResult{.exit_code = 0, .output = "iptables-restore v1.8.9 (legacy)\n"};
  });
  ASSERT_THAT(Find(), IsOk());
  EXPECT_EQ(asked.deadline, absl::Seconds(10));
  EXPECT_EQ(asked.output_limit, size_t{64} << 10);
}

TEST_F(FindLegacyProgramsTest, AsksTheProgramOfBothFamiliesOnce) {
  InstallStem("iptables-legacy", "iptables-restore v1.8.9 (legacy)\n", "");
  InstallStem("ip6tables-legacy", "ip6tables-restore v1.6.2\n", "");
  const auto ipv4 = Find();
  ASSERT_THAT(ipv4, IsOk());
  const auto find_ipv6 = [&] {
    return FindIptablesLegacyPrograms(runner_, Family::kIPv6, {directory_}, &*ipv4);
  };
  EXPECT_EQ(find_ipv6()->version, (IptablesVersion{1, 6, 2})) << "another program";
  tree_.Remove("ip6tables-legacy-restore");
  tree_.Link("ip6tables-legacy-restore", "iptables-legacy-restore");
  runner_.On(directory_ + "/ip6tables-legacy-restore", Fails(absl::UnknownError("asked")));
  ASSERT_THAT(find_ipv6(), IsOk());
  EXPECT_EQ(find_ipv6()->version, (IptablesVersion{1, 8, 9}));
  EXPECT_EQ(find_ipv6()->restore, directory_ + "/ip6tables-legacy-restore");
}

TEST_F(FindLegacyProgramsTest, PassesOverWhatCannotBeExecuted) {
  InstallStem("iptables", "iptables-restore v1.6.2\n", "");
  for (const std::string verb : {"save", "restore"}) {
    const std::string path = directory_ + "/iptables-legacy-" + verb;
    runner_.On(path, Answers({.exit_code = 0, .output = "iptables-restore v1.8.9 (legacy)\n"}));
    tree_.Directory("iptables-legacy-" + verb);
  }
  EXPECT_THAT(Find(), IsOk());
  EXPECT_EQ(Find()->version, (IptablesVersion{1, 6, 2})) << "the others are directories";
  for (const std::string verb : {"save", "restore"}) {
    tree_.Remove("iptables-legacy-" + verb);
    tree_.Write("iptables-legacy-" + verb, "no program");
    ASSERT_EQ(chmod((directory_ + "/iptables-legacy-" + verb).c_str(), 0644), 0);
  }
  EXPECT_EQ(Find()->version, (IptablesVersion{1, 6, 2})) << "the others may not be executed";
  ASSERT_EQ(chmod((directory_ + "/iptables-legacy-restore").c_str(), 0755), 0);
  EXPECT_EQ(Find()->version, (IptablesVersion{1, 6, 2})) << "one of the others may not be executed";
}

}  // namespace
}  // namespace kipt::testing
