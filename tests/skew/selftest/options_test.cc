// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace kipt::skew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Options Parsed(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Options> options = ParseOptions("/opt/bin/kube-iptables-skew", arguments);
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(Options{});
}

TEST(OptionsTest, RunTheMainPathsWithoutArguments) {
  const Options options = Parsed({});
  EXPECT_EQ(options.command, Options::Command::kRun);
  EXPECT_EQ(options.paths, MainPaths());
  EXPECT_TRUE(options.harness.retire);
  EXPECT_GE(options.jobs, 1);
}

TEST(OptionsTest, TakeTheFlagsOfRunWithAndWithoutItsName) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--paths=boot,to-nft", "--stale-chains=keep", "--jobs", "3",
                                 "--html=/tmp/x.html"},
        std::vector<std::string>{"run", "--paths=boot,to-nft", "--stale-chains=keep", "--jobs", "3",
                                 "--html=/tmp/x.html"}}) {
    const Options options = Parsed(arguments);
    EXPECT_EQ(options.command, Options::Command::kRun);
    EXPECT_THAT(options.paths, ElementsAre(Path::kBoot, Path::kToNft));
    EXPECT_FALSE(options.harness.retire);
    EXPECT_EQ(options.jobs, 3);
    EXPECT_EQ(options.html_file, "/tmp/x.html");
  }
}

TEST(OptionsTest, TakeAnUpgrade) {
  const Options options =
      Parsed({"advise", "--from", "1.24", "--to=1.27", "--proxy=1.25", "--live"});
  EXPECT_EQ(options.command, Options::Command::kAdvise);
  EXPECT_EQ(options.plan.from.version, (Version{1, 24}));
  EXPECT_EQ(options.plan.to.version, (Version{1, 27}));
  ASSERT_TRUE(options.plan.proxy_to.has_value());
  EXPECT_EQ(options.plan.proxy_to->version, (Version{1, 25}));
  EXPECT_TRUE(options.live);
}

struct RefusedRow {
  const char* name;
  std::vector<std::string> arguments;
  const char* message;
};
const RefusedRow kRefused[] = {
    {"an unknown flag", {"--paht=boot"}, "--paht"},
    {"an unknown path", {"--paths=boot,upgrade"}, "there is no path \"upgrade\""},
    {"an unknown command", {"walk"}, "walk"},
    {"no jobs", {"--jobs=0"}, "--jobs"},
    {"another word than keep and retire", {"--stale-chains=burn"}, "burn"},
    {"an upgrade from nowhere", {"advise", "--to=1.27"}, "--from"},
    {"a version that is none", {"advise", "--from=1.24.3", "--to=1.27"}, "1.24.3"},
    {"a version before all facts", {"advise", "--from=1.16", "--to=1.17"}, "from 1.17 to 1.34"},
    {"where kube-proxy comes from and not where it goes",
     {"advise", "--from=1.24", "--to=1.27", "--proxy-from=1.23"},
     "--proxy-from needs --proxy"},
};

TEST(OptionsTest, RefuseWhatMakesNoSense) {
  for (const RefusedRow& row : kRefused) {
    const absl::StatusOr<Options> options = ParseOptions("kube-iptables-skew", row.arguments);
    ASSERT_FALSE(options.ok()) << row.name;
    EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument) << row.name;
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(row.message)) << row.name;
  }
}

TEST(ChosenCellsTest, AreThoseThatTheExpressionFinds) {
  Options options = Parsed({"list", "--cells=^boot/kubelet-1.27/proxy-1.24/"});
  const absl::StatusOr<std::vector<Cell>> cells = ChosenCells(options);
  ASSERT_TRUE(cells.ok()) << cells.status();
  EXPECT_EQ(cells->size(), 4U);  // two modes, two actors
  options.cells = "no such cell";
  EXPECT_THAT(std::string(ChosenCells(options).status().message()), HasSubstr("finds no cell"));
  options.cells = "(";
  EXPECT_THAT(std::string(ChosenCells(options).status().message()), HasSubstr("--cells"));
}

TEST(ChosenCellsTest, AreEveryPairOnEveryPathOrOnThoseNamed) {
  const auto count = [](const Options& options) { return ChosenCells(options)->size(); };
  const size_t boot = count(Parsed({"list", "--full", "--paths=boot"}));
  EXPECT_EQ(boot, 18U * 18U * 2U * 2U);  // two modes, two actors
  EXPECT_GT(count(Parsed({"list", "--full"})), 7U * boot);
}

TEST(ChosenCellsTest, LeaveOutOtherIptablesWithoutThem) {
  const auto with_chroot = [](const Options& options) {
    const absl::StatusOr<std::vector<Cell>> cells = ChosenCells(options);
    return std::count_if(cells->begin(), cells->end(),
                         [](const Cell& cell) { return *ChrootOf(cell.company) != '\0'; });
  };
  EXPECT_EQ(with_chroot(Parsed({})), 0);
  EXPECT_GT(with_chroot(Parsed({"--iptables-chroots=/var/cache/x"})), 0);
}

}  // namespace
}  // namespace kipt::skew
