// SPDX-License-Identifier: Apache-2.0
#include "agent/config/command_line.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent::command_line_test {
namespace {

using Arguments = std::vector<std::string>;

struct GoodCase {
  std::string name;
  Arguments arguments;
  CommandLine result;
};

TEST(CommandLineTest, IsUnderstood) {
  const GoodCase rows[] = {
      {"ACommandAlone", {"sync"}, {Command::kSync, {}}},
      {"Run", {"run"}, {Command::kRun, {}}},
      {"NothingIsRun", {}, {Command::kRun, {}}},
      {"FlagsWithoutACommandAreRun", {"--v=2"}, {Command::kRun, {.v = 2}}},
      {"Plan", {"plan"}, {Command::kPlan, {}}},
      {"Status", {"status"}, {Command::kStatus, {}}},
      {"Detect", {"detect"}, {Command::kDetect, {}}},
      {"Gates", {"gates"}, {Command::kGates, {}}},
      {"Version", {"version"}, {Command::kVersion, {}}},
      {"VersionAsAFlag",
       {"--version", "--output=json"},
       {Command::kVersion, {.output = OutputFormat::kJson}}},
      {"VersionBehindACommand", {"audit", "--version"}, {Command::kVersion, {}}},
      {"EveryFlagBehindTheCommand",
       {"plan", "--config=/c", "--feature-gates=A=true,B=false",
        "--make-iptables-util-chains=false", "--iptables-masquerade-bit=3", "--iptables-drop-bit=4",
        "--v=2", "--vmodule=a=1", "--emulated-version=1.25", "--ip-families=ipv4",
        "--iptables-mode=legacy", "--host-root=/host", "--output=json", "--netns=/run/netns/x",
        "--iptables-sync-period=1m30s", "--watch=poll", "--healthz-bind-address=[::1]:1",
        "--metrics-bind-address="},
       {Command::kPlan,
        {.config = "/c",
         .feature_gates = {"A=true,B=false"},
         .make_iptables_util_chains = false,
         .iptables_masquerade_bit = 3,
         .iptables_drop_bit = 4,
         .v = 2,
         .vmodule = "a=1",
         .emulated_version = "1.25",
         .ip_families = "ipv4",
         .iptables_mode = "legacy",
         .host_root = "/host",
         .output = OutputFormat::kJson,
         .netns = "/run/netns/x",
         .iptables_sync_period = absl::Seconds(90),
         .watch = "poll",
         .healthz_bind_address = "[::1]:1",
         .metrics_bind_address = ""}}},
      {"Retire", {"retire"}, {Command::kRetire, {}}},
      {"RetireYes", {"retire", "--yes"}, {Command::kRetire, {.yes = true}}},
      {"AllIncidents", {"incidents", "--all"}, {Command::kIncidents, {.all = true}}},
      {"Colour", {"plan", "--color=never"}, {Command::kPlan, {.color = "never"}}},
      {"RetireNotYet", {"--yes=false", "retire"}, {Command::kRetire, {}}},
      {"Audit",
       {"audit", "--all-netns", "--allow=/a", "--output=dot", "--cni-conf-dir=/x,/y"},
       {Command::kAudit,
        {.output = OutputFormat::kDot, .cni_conf_dir = "/x,/y", .allow = "/a", .all_netns = true}}},
      {"ExplainTakesTheChain",
       {"explain", "--from-file=-", "nat/KUBE-MARK-MASQ"},
       {Command::kExplain, {.from_file = "-"}, "nat/KUBE-MARK-MASQ"}},
      {"OwnershipFlags",
       {"sync", "--stale-chains=retire", "--hint-policy=always"},
       {Command::kSync, {.stale_chains = "retire", .hint_policy = "always"}}},
      {"FlagsBeforeTheCommandWithTheirValuesApart",
       {"--config", "/c", "--iptables-drop-bit", "4", "--output", "json", "sync"},
       {Command::kSync, {.config = "/c", .iptables_drop_bit = 4, .output = OutputFormat::kJson}}},
      {"FlagsOnBothSides",
       {"--v=1", "status", "--iptables-drop-bit", "-1"},
       {Command::kStatus, {.iptables_drop_bit = -1, .v = 1}}},
      {"ABooleanWithoutAValueIsTrueAndTakesNoWord",
       {"--make-iptables-util-chains", "sync"},
       {Command::kSync, {.make_iptables_util_chains = true}}},
      {"GosSpellingsOfABoolean",
       {"sync", "--make-iptables-util-chains=F"},
       {Command::kSync, {.make_iptables_util_chains = false}}},
      {"AnEmptyValueTakesNoWord",
       {"--vmodule=", "sync", "--config="},
       {Command::kSync, {.config = "", .vmodule = ""}}},
      {"TheLastOfARepeatedFlagCounts",
       {"sync", "--iptables-drop-bit=1", "--v=1", "--iptables-drop-bit=2", "--v", "3",
        "--make-iptables-util-chains=false", "--make-iptables-util-chains"},
       {Command::kSync, {.make_iptables_util_chains = true, .iptables_drop_bit = 2, .v = 3}}},
      {"FeatureGatesAddUp",
       {"--feature-gates=A=true", "sync", "--feature-gates", "B=false,A=false"},
       {Command::kSync, {.feature_gates = {"A=true", "B=false,A=false"}}}},
      {"KlogsShorthand", {"sync", "-v=4"}, {Command::kSync, {.v = 4}}},
      {"KlogsShorthandApart", {"-v", "4", "sync"}, {Command::kSync, {.v = 4}}},
      {"BracketsAreNoList", {"sync", "--config=[a,b]"}, {Command::kSync, {.config = "[a,b]"}}},
      {"AValueThatLooksLikeAFlag",
       {"sync", "--config", "--v=2"},
       {Command::kSync, {.config = "--v=2"}}},
      {"AValueWithEqualsSigns",
       {"sync", "--vmodule=a=1,b="},
       {Command::kSync, {.vmodule = "a=1,b="}}},
      {"WordsBehindTwoDashes", {"--v=1", "--", "sync"}, {Command::kSync, {.v = 1}}},
      {"TheLargestInt",
       {"sync", "--iptables-drop-bit=0x7fffffff"},
       {Command::kSync, {.iptables_drop_bit = 2147483647}}},
  };
  for (const GoodCase& row : rows) {
    SCOPED_TRACE(row.name);
    const auto result = ParseCommandLine(row.arguments);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->command, row.result.command);
    EXPECT_EQ(result->flags, row.result.flags);
    EXPECT_EQ(result->argument, row.result.argument);
    EXPECT_EQ(result->help, "");
  }
}

struct BadCase {
  std::string name;
  Arguments arguments;
  std::string message;  // how it begins
};

constexpr char kCommands[] =
    "; the commands are run, sync, plan, status, check, incidents, retire, audit, explain, marks, "
    "detect, gates, completion, version, help";

TEST(RefusedCommandLineTest, SaysWhatIsWrong) {
  const BadCase rows[] = {
      {"ExplainWithoutAChain",
       {"explain"},
       "the command explain needs TABLE/CHAIN after it, as in explain nat/"},
      {"ExplainWithTwo",
       {"explain", "nat/A", "nat/B"},
       "unexpected argument \"nat/B\" after the command explain"},
      {"AFlagOfAnotherCommand",
       {"sync", "--yes"},
       "the flag --yes belongs to the command retire, not to sync"},
      {"AFlagOfACommandWithTheDaemon",
       {"--all-netns"},
       "the flag --all-netns belongs to the command audit, not to run"},
      {"AllIncidentsInAStatus",
       {"status", "--all"},
       "the flag --all belongs to the commands incidents and plan, not to status"},
      {"APictureOfAPlan",
       {"plan", "--output=dot"},
       "--output=dot belongs to the command audit, not to plan"},
      {"AnAllowListWithoutAName",
       {"audit", "--allow="},
       "invalid argument \"\" for \"--allow\" flag: it must be a path"},
      {"YesToNothing",
       {"retire", "--yes=maybe"},
       "invalid argument \"maybe\" for \"--yes\" flag: "},
      {"AnUnknownCommand", {"snyc"}, std::string("unknown command \"snyc\"") + kCommands},
      {"AnEmptyWord", {""}, std::string("unknown command \"\"") + kCommands},
      {"HelpOfNothing", {"help", "me"}, "unknown command \"me\"; the commands are run, "},
      {"TwoCommands", {"sync", "plan"}, "unexpected argument \"plan\" after the command"},
      {"AnExtraWord", {"plan", "now"}, "unexpected argument \"now\" after the command"},
      {"TwoPlusSigns", {"plan", "++"}, "unexpected argument \"++\" after the command"},
      {"ABooleansValueApart",
       {"--make-iptables-util-chains", "false", "sync"},
       std::string("unknown command \"false\"") + kCommands +
           "; a boolean flag takes its value after an equals sign"},
      {"AnUnknownFlag", {"sync", "--dry-run"}, "unknown flag: --dry-run;"},
      {"AnUnknownFlagWithAValue", {"sync", "--drop=1"}, "unknown flag: --drop;"},
      {"AnUnknownFlagWithItsValueApart", {"--drop", "1", "sync"}, "unknown flag: --drop;"},
      {"AnAbbreviation", {"sync", "--iptables-drop=3"}, "unknown flag: --iptables-drop;"},
      {"AnUnknownFlagThatEndsInAnEqualsSign", {"--drop=", "sync"}, "unknown flag: --drop;"},
      {"AnUnknownShorthand", {"sync", "-x"}, "unknown shorthand flag: 'x' in -x;"},
      {"AMissingValue", {"sync", "--config"}, "flag needs an argument: --config"},
      {"AWordForABit",
       {"sync", "--iptables-drop-bit=x"},
       "invalid argument \"x\" for \"--iptables-drop-bit\" flag: strconv.ParseInt: parsing \"x\": "
       "invalid syntax"},
      {"NothingForABit",
       {"--iptables-drop-bit=", "sync"},
       "invalid argument \"\" for \"--iptables-drop-bit\" flag: strconv.ParseInt: parsing \"\": "
       "invalid syntax"},
      {"ABitThatIsNoOctalNumber",
       {"sync", "--iptables-masquerade-bit=019"},
       "invalid argument \"019\" for \"--iptables-masquerade-bit\" flag: strconv.ParseInt: parsing "
       "\"019\": invalid syntax"},
      {"ABitWithSpaces",
       {"sync", "--iptables-drop-bit= 3"},
       "invalid argument \" 3\" for \"--iptables-drop-bit\" flag: strconv.ParseInt: parsing \" "
       "3\": invalid syntax"},
      {"ABitThatIsTooLargeForAnInt",
       {"sync", "--iptables-drop-bit=2147483648"},
       "invalid argument \"2147483648\" for \"--iptables-drop-bit\" flag: strconv.ParseInt: "
       "parsing \"2147483648\": value out of range"},
      {"AWrongValueBeforeARightOne",
       {"sync", "--iptables-drop-bit=x", "--iptables-drop-bit=3"},
       "invalid argument \"x\" for \"--iptables-drop-bit\" flag"},
      {"YesForABoolean",
       {"sync", "--make-iptables-util-chains=yes"},
       "invalid argument \"yes\" for \"--make-iptables-util-chains\" flag: strconv.ParseBool: "
       "parsing \"yes\": invalid syntax; it must be true or false"},
      {"AWordForVerbosity",
       {"sync", "-v=loud"},
       "invalid argument \"loud\" for \"-v, --v\" flag: it must be a decimal integer"},
      {"APeriodWithoutAUnit",
       {"run", "--iptables-sync-period=60"},
       "invalid argument \"60\" for \"--iptables-sync-period\" flag: time: missing unit in "
       "duration \"60\""},
      {"NoPeriod",
       {"--iptables-sync-period="},
       "invalid argument \"\" for \"--iptables-sync-period\" flag: time: invalid duration \"\""},
      {"AnUnknownOutput",
       {"sync", "--output=yaml"},
       "invalid argument \"yaml\" for \"--output\" flag: it must be text or json"},
      {"AColourThatIsNoChoice",
       {"plan", "--color=yes"},
       "invalid argument \"yes\" for \"--color\" flag: it must be one of auto, always, never"},
      {"AnEmptyHostRoot",
       {"sync", "--host-root="},
       "invalid argument \"\" for \"--host-root\" flag: it must be a directory"},
      {"AnEmptyNamespace",
       {"sync", "--netns="},
       "invalid argument \"\" for \"--netns\" flag: it must be a path"},
  };
  for (const BadCase& row : rows) {
    SCOPED_TRACE(row.name);
    const auto result = ParseCommandLine(row.arguments);
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(row.message)));
  }
}

// ---- help ----

std::string HelpOf(const Arguments& arguments) {
  const auto result = ParseCommandLine(arguments);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result.ok() && !result->help.empty());
  return result.ok() ? result->help : "";
}

TEST(HelpTest, ListsEveryCommandAndEveryFlag) {
  const std::string help = HelpOf({"--help"});
  for (const char* const name : {"run",
                                 "sync",
                                 "plan",
                                 "status",
                                 "detect",
                                 "gates",
                                 "version",
                                 "--config",
                                 "--feature-gates",
                                 "--make-iptables-util-chains",
                                 "--iptables-masquerade-bit",
                                 "--iptables-drop-bit",
                                 "--iptables-masquerade-label",
                                 "--iptables-drop-label",
                                 "--v",
                                 "--vmodule",
                                 "--emulated-version",
                                 "--ip-families",
                                 "--iptables-mode",
                                 "--host-root",
                                 "--output",
                                 "--netns",
                                 "--iptables-sync-period",
                                 "--watch",
                                 "--healthz-bind-address",
                                 "--metrics-bind-address",
                                 "--help"}) {
    EXPECT_THAT(help, HasSubstr(std::string(" ") + name + (name[0] == '-' ? "" : " ")));
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
  EXPECT_EQ(HelpOf({"-h"}), help);
  EXPECT_EQ(HelpOf({"help"}), help);
  EXPECT_EQ(HelpOf({"nonsense", "--nonsense", "-h"}), help);
  EXPECT_EQ(HelpOf({"--config", "--help"}), help);
}

TEST(HelpTest, BehindTwoDashesIsAWord) {
  EXPECT_FALSE(ParseCommandLine(Arguments{"sync", "--", "--help"}).ok());
}

TEST(HelpTest, HasKubeletsWordsForKubeletsFlags) {
  std::string help = HelpOf({"--help"});
  std::vector<std::string> words = absl::StrSplit(help, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  help.clear();
  for (const std::string& word : words) help += word + " ";
  EXPECT_THAT(
      help,
      AllOf(HasSubstr(
                "The bit of the fwmark space to mark packets for SNAT. Must be within the range "
                "[0, 31]. Please match this parameter with corresponding parameter in kube-proxy."),
            HasSubstr("The bit of the fwmark space to mark packets for dropping. Must be within "
                      "the range [0, 31]."),
            HasSubstr("A set of key=value pairs that describe feature gates for alpha/experimental "
                      "features. Options are: AllAlpha=true|false")));
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

TEST(HelpTest, FitsIntoAHundredColumns) {
  for (absl::string_view line : absl::StrSplit(HelpOf({"--help"}), '\n')) {
    EXPECT_LE(line.size(), 100u) << line;
  }
}

}  // namespace
}  // namespace kipt::agent::command_line_test
