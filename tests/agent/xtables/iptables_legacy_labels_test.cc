// SPDX-License-Identifier: Apache-2.0
//
// The iptables-legacy backend where rules have connection labels: their names, and what iptables
// prints about those on standard error.
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/kernel_error.h"
#include "tests/agent/xtables/iptables_legacy_fixture.h"
#include "tests/support/fake_command_runner.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/surveyed.h"

namespace kipt::testing::iptables_legacy_labels_test {
namespace {

using netlink::Rule;

using LegacyLabelsTest = OpenLegacyFixture;

const ChainId kUser{Family::kIPv4, Table::kFilter, "USER"};
constexpr char kFilterWithUser[] =
    "*filter\n:INPUT ACCEPT [7:420]\n:USER - [0:0]\n-A USER -j DROP\nCOMMIT\n";

TEST_F(LegacyLabelsTest, ReadsLabelsByTheirNamesOfTheMoment) {
  Saves("iptables",
        "*filter\n:INPUT ACCEPT [0:0]\n:USER - [0:0]\n"
        "-A USER -m connlabel --label \"to drop\" -j DROP\nCOMMIT\n");
  const Rule drop{.conn_label = netlink::ConnLabelMatch{.label = 115}};
  const auto first = [&] { return Read(*backend_, {kUser}).Find(kUser)->rules.at(0); };
  ASSERT_NE(first().opaque(), nullptr) << "its meaning is not known";
  const uint32_t unnamed = Read(*backend_, {kUser}).generation;
  std::ofstream(directory_ + "/connlabel.conf") << "115 to drop\n";
  ASSERT_NE(first().rule(), nullptr) << first().opaque()->text;
  EXPECT_EQ(*first().rule(), drop);
  const auto survey = backend_->TakeSurvey({});
  ASSERT_THAT(survey, IsOk());
  const std::vector<netlink::SurveyRule>& rules = survey->Find({"ip", "filter"}, "USER")->rules;
  ASSERT_THAT(rules, SizeIs(1));
  EXPECT_EQ(TextOf(rules[0]), "-m connlabel --label \"115\" -j DROP");
  EXPECT_EQ(TextOf(rules[0]), ToString(Family::kIPv4, drop)) << "as nf_tables has it";
  EXPECT_NE(Read(*backend_, {kUser}).generation, unnamed);
}

TEST_F(LegacyLabelsTest, ReadsNoRuleByANameThatCannotBeLookedUp) {
  const auto reads = [&](const std::string& label) {
    Saves("iptables", absl::StrCat("*filter\n:USER - [0:0]\n-A USER -m connlabel --label \"", label,
                                   "\" --set\nCOMMIT\n"));
    return backend_->Read({{.chain = kUser}}).status();
  };
  tree_.Link("connlabel.conf", tree_.Path("connlabel.conf"));
  EXPECT_THAT(reads("masq"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("connlabel.conf")));
  EXPECT_THAT(reads("114"), IsOk()) << "iptables prints numbers where it cannot open the file";
}

TEST_F(LegacyLabelsTest, ShowsWhyAProgramFailedThatHasWarnedOftenBefore) {
  Saves("iptables", kFilterWithUser);
  std::string errors;
  for (int i = 0; i < 20; ++i) {
    errors += "Warning: cannot open /etc/xtables/connlabel.conf: No such file or directory\n";
  }
  runner_.On(Program("iptables", "save"),
             Answers({.exit_code = 1, .output = "", .errors = errors + "the reason\n"}));
  EXPECT_THAT(backend_->Read({{.chain = kUser}}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("No such file"), HasSubstr("; the reason)"))));
  runner_.On(Program("iptables", "save"),
             Answers({.exit_code = 0, .output = kFilterWithUser, .errors = errors}));
  EXPECT_THAT(backend_->Read({{.chain = kUser}}), IsOk()) << "warnings do no harm";
}

// What iptables-legacy-restore prints where the match connlabel is missing. The words and exit
// codes of the rows are those of iptables 1.8.7, 1.8.9 and 1.8.11.

constexpr char kNoNames[] = "cannot open /etc/xtables/connlabel.conf: No such file or directory\n";
constexpr char kNoExtension[] =
    "iptables-restore v1.8.9 (legacy): Couldn't load match `connlabel':No such file or directory\n"
    "\nError occurred at line: 3\n";
constexpr char kNoModule[] =
    "Warning: Extension connlabel revision 0 not supported, missing kernel module?\n"
    "iptables-restore: line 4 failed\n";
constexpr char kLineFailed[] = "iptables-restore: line 4 failed\n";

TEST_F(LegacyLabelsTest, OnlyAMissingMatchIsReportedAsMissing) {
  const std::string no_names = absl::StrCat(kNoNames, kNoNames);
  const std::string no_comment = "Couldn't load match `comment':No such file or directory\n";
  const struct {
    int exit_code;
    std::string errors;
    std::optional<std::string> matches;  // of the kernel; nothing: there is no such file
    bool missing;
    bool with_label = true;
    bool capable = true;
  } rows[] = {
      {2, kNoExtension, "comment\nconnlabel\n", true},
      {1, kNoModule, "comment\nmark\n", true},
      {1, kNoModule, std::nullopt, true},
      {1, kLineFailed, "comment\n", true},
      {1, kLineFailed, "comment\nconnlabel\nmark\n", false},  // it refuses something else
      {1, kLineFailed, std::nullopt, false},
      // The warning of a missing list of names is no such word.
      {1, absl::StrCat(no_names, kLineFailed), "connlabel\n", false},
      {2, absl::StrCat(no_names, no_comment), "", false},
      {1, absl::StrCat(kNoNames, kNoModule), std::nullopt, true},
      {1, kLineFailed, "connlabels\nxconnlabel\n", true},
      {1, kNoModule, "comment\n", false, /*with_label=*/false},
      {4, kNoModule, "", false},    // a lock
      {137, kNoModule, "", false},  // a signal
      {3, kNoModule, "", false},    // another version
      {2, kNoExtension, std::nullopt, false, /*with_label=*/true, /*capable=*/false},
  };
  const ChainId chain{Family::kIPv4, Table::kNat, "KUBELET-MARK-MASQ"};
  for (const auto& row : rows) {
    SCOPED_TRACE(&row - rows);
    backend_ = Open("1.8.9");
    const uint32_t generation = Read(*backend_, {chain}).generation;
    tree_.Remove("ip_tables_matches");
    if (row.matches) tree_.Write("ip_tables_matches", *row.matches);
    tree_.Write("status", absl::StrCat("CapEff:\t", row.capable ? "000001ffffffffff\n" : "0\n"));
    runner_.On(Program("iptables", "restore"), Exits(row.exit_code, row.errors));
    Rule rule = {.target = netlink::Drop{}};
    if (row.with_label) rule.conn_label = netlink::ConnLabelMatch{.label = 114};
    const absl::Status status =
        backend_->Apply({.generation = generation,
                         .operations = {netlink::CreateChain{chain},
                                        netlink::AddRule{.chain = chain, .rule = rule}}});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(netlink::MissingExtension(status).value_or(""), row.missing ? "connlabel" : "")
        << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("nothing was done"));
  }
}

}  // namespace
}  // namespace kipt::testing::iptables_legacy_labels_test
