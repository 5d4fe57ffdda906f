// SPDX-License-Identifier: Apache-2.0
#include "agent/config/command_line.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/config/settings.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent::command_line_test {
namespace {

using Arguments = std::vector<std::string>;

struct GoodCase {
  Arguments arguments;
  CommandLine result;
};

TEST(CommandLineTest, IsUnderstood) {
  const GoodCase rows[] = {
      {List("sync"), CommandLine{Command::kSync, {}}},
      {List(), CommandLine{Command::kRun, {}}},
      {List("--v=2"), CommandLine{Command::kRun, {.v = 2}}},
      {List("--version", "--output=json"),
       CommandLine{Command::kVersion, {.output = OutputFormat::kJson}}},
      {List("plan", "--config=/c", "--feature-gates=A=true,B=false",
            "--make-iptables-util-chains=F", "--iptables-masquerade-bit=3", "--output=json",
            "--iptables-sync-period=1m30s", "--metrics-bind-address="),
       CommandLine{Command::kPlan,
                   {.config = "/c",
                    .feature_gates = {"A=true,B=false"},
                    .make_iptables_util_chains = false,
                    .iptables_masquerade_bit = 3,
                    .output = OutputFormat::kJson,
                    .iptables_sync_period = absl::Seconds(90),
                    .metrics_bind_address = ""}}},
      {List("audit", "--all-netns", "--allow=/a", "--output=dot", "--cni-conf-dir=/x,/y"),
       CommandLine{Command::kAudit,
                   {.output = OutputFormat::kDot,
                    .cni_conf_dir = "/x,/y",
                    .allow = "/a",
                    .all_netns = true}}},
      {List("explain", "--from-file=-", "nat/KUBE-MARK-MASQ"),
       CommandLine{Command::kExplain, {.from_file = "-"}, "nat/KUBE-MARK-MASQ"}},
      {List("--config", "/c", "--iptables-drop-bit", "4", "--output", "json", "sync"),
       CommandLine{Command::kSync,
                   {.config = "/c", .iptables_drop_bit = 4, .output = OutputFormat::kJson}}},
      {List("--v=1", "status", "--iptables-drop-bit", "-1"),
       CommandLine{Command::kStatus, {.iptables_drop_bit = -1, .v = 1}}},
      {List("--make-iptables-util-chains", "sync"),
       CommandLine{Command::kSync, {.make_iptables_util_chains = true}}},
      {List("--vmodule=", "sync", "--config="),
       CommandLine{Command::kSync, {.config = "", .vmodule = ""}}},
      {List("sync", "--iptables-drop-bit=1", "--v=1", "--iptables-drop-bit=2", "--v", "3",
            "--make-iptables-util-chains=false", "--make-iptables-util-chains"),
       CommandLine{Command::kSync,
                   {.make_iptables_util_chains = true, .iptables_drop_bit = 2, .v = 3}}},
      {List("--feature-gates=A=true", "sync", "--feature-gates", "B=false,A=false"),
       CommandLine{Command::kSync, {.feature_gates = {"A=true", "B=false,A=false"}}}},
      {List("-v", "4", "sync"), CommandLine{Command::kSync, {.v = 4}}},
      {List("sync", "--config", "--v=2"), CommandLine{Command::kSync, {.config = "--v=2"}}},
      {List("sync", "--vmodule=a=1,b="), CommandLine{Command::kSync, {.vmodule = "a=1,b="}}},
      {List("--v=1", "--", "sync"), CommandLine{Command::kSync, {.v = 1}}},
  };
  for (const GoodCase& row : rows) {
    SCOPED_TRACE(::testing::PrintToString(row.arguments));
    const auto result = ParseCommandLine(row.arguments);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->command, row.result.command);
    EXPECT_EQ(result->flags, row.result.flags);
    EXPECT_EQ(result->argument, row.result.argument);
    EXPECT_EQ(result->help, "");
  }
}

struct BadCase {
  Arguments arguments;
  std::string message;  // how it begins
};

constexpr char kCommands[] =
    "; the commands are run, sync, plan, status, check, incidents, retire, audit, explain, marks, "
    "detect, gates, completion, version, help";

TEST(RefusedCommandLineTest, NamesTheMistake) {
  const BadCase rows[] = {
      {List("explain"), "the command explain needs TABLE/CHAIN after it, as in explain nat/"},
      {List("explain", "nat/A", "nat/B"),
       "unexpected argument \"nat/B\" after the command explain"},
      {List("sync", "--yes"), "the flag --yes belongs to the command retire, not to sync"},
      {List("status", "--all"),
       "the flag --all belongs to the commands incidents and plan, not to status"},
      {List("plan", "--output=dot"), "--output=dot belongs to the command audit, not to plan"},
      {List("audit", "--allow="), "invalid argument \"\" for \"--allow\" flag: it must be a path"},
      {List("snyc"), std::string("unknown command \"snyc\"") + kCommands},
      {List("sync", "plan"), "unexpected argument \"plan\" after the command"},
      {List("--make-iptables-util-chains", "false", "sync"),
       std::string("unknown command \"false\"") + kCommands +
           "; a boolean flag takes its value after an equals sign"},
      {List("sync", "--dry-run"), "unknown flag: --dry-run;"},
      {List("sync", "-x"), "unknown shorthand flag: 'x' in -x;"},
      {List("sync", "--config"), "flag needs an argument: --config"},
      {List("sync", "--iptables-drop-bit=x"),
       "invalid argument \"x\" for \"--iptables-drop-bit\" flag: strconv.ParseInt: parsing \"x\": "
       "invalid syntax"},
      {List("sync", "-v=loud"),
       "invalid argument \"loud\" for \"-v, --v\" flag: it must be a decimal integer"},
      {List("run", "--iptables-sync-period=60"),
       "invalid argument \"60\" for \"--iptables-sync-period\" flag: time: missing unit in "
       "duration \"60\""},
      {List("sync", "--output=yaml"),
       "invalid argument \"yaml\" for \"--output\" flag: it must be text or json"},
      {List("plan", "--color=yes"),
       "invalid argument \"yes\" for \"--color\" flag: it must be one of auto, always, never"},
  };
  for (const BadCase& row : rows) {
    SCOPED_TRACE(::testing::PrintToString(row.arguments));
    EXPECT_THAT(ParseCommandLine(row.arguments),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(row.message)));
  }
}

std::string HelpOf(const Arguments& arguments) {
  const auto result = ParseCommandLine(arguments);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result.ok() && !result->help.empty());
  return result.ok() ? result->help : "";
}

TEST(HelpTest, ListsEveryCommandAndEveryFlagThatIsOfAllIn100Columns) {
  const std::string help = HelpOf({"--help"});
  for (const CommandRow& row : kCommandTable) {
    EXPECT_THAT(help, HasSubstr(absl::StrCat(" ", row.name, " ")));
  }
  for (const Setting& setting : kSettings) {
    EXPECT_THAT(help, HasSubstr(absl::StrCat(" --", setting.flag)));
  }
  for (const absl::string_view line : absl::StrSplit(help, '\n')) {
    EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(HelpTest, OfACommandHasItsFlagsAndNamesTheOthers) {
  const std::string help = HelpOf({"audit", "--help"});
  EXPECT_EQ(HelpOf({"help", "audit"}), help);
  EXPECT_EQ(HelpOf({"-h", "audit", "--nonsense"}), help);
  EXPECT_THAT(help, AllOf(HasSubstr("\nFlags of audit:\n      --all-netns\n"),
                          HasSubstr("      --before change\n"), HasSubstr("--config, "),
                          Not(HasSubstr("--yes")), Not(HasSubstr("--all\n"))));
  EXPECT_THAT(HelpOf({"help", "plan"}), HasSubstr("      --all\n"));
  EXPECT_THAT(HelpOf({"sync", "--help"}), Not(HasSubstr("Flags of sync")));
  EXPECT_THAT(HelpOf({"explain", "-h"}), HasSubstr("kube-iptables-agent explain TABLE/CHAIN ["));
}

TEST(HelpTest, IsTheSameByEveryNameAndWithWrongFlags) {
  const std::string help = HelpOf({"--help"});
  for (const Arguments& other : std::vector<Arguments>{
           {"-h"}, {"help"}, {"nonsense", "--nonsense", "-h"}, {"--config", "--help"}}) {
    EXPECT_EQ(HelpOf(other), help);
  }
}

TEST(HelpTest, ListsTheGatesOfTheEmulatedRelease) {
  EXPECT_THAT(HelpOf({"--help"}),
              HasSubstr("IPTablesOwnershipCleanup=true|false (BETA - default=true)"));
  EXPECT_THAT(HelpOf({"--help", "--emulated-version=1.25"}),
              HasSubstr("IPTablesOwnershipCleanup=true|false (ALPHA - default=false)"));
  EXPECT_THAT(HelpOf({"--emulated-version", "1.30", "--help"}),
              Not(HasSubstr("IPTablesOwnershipCleanup=true|false")));
  EXPECT_EQ(HelpOf({"--help", "--emulated-version=banana"}), HelpOf({"--help"}));
}

}  // namespace
}  // namespace kipt::agent::command_line_test
