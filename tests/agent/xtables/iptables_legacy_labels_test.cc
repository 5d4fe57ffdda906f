// SPDX-License-Identifier: Apache-2.0
//
// The legacy backend where rules have labels of connections: their names, and what iptables says of
// those on standard error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/agent/xtables/iptables_legacy_fixture.h"
#include "tests/support/surveyed.h"

namespace kipt::testing::iptables_legacy_labels_test {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::Rule;
using netlink::Table;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const ChainId kUser{Family::kIPv4, Table::kFilter, "USER"};
constexpr char kFilterWithUser[] =
    "*filter\n:INPUT ACCEPT [7:420]\n:USER - [0:0]\n-A USER -j DROP\nCOMMIT\n";

using LegacyLabelsTest = LegacyFixture;

TEST_F(LegacyLabelsTest, ReadsLabelsByTheirNamesOfTheMoment) {
  auto backend = Open("1.8.9");
  Saves("iptables",
        "*filter\n:INPUT ACCEPT [0:0]\n:USER - [0:0]\n"
        "-A USER -m connlabel --label \"to drop\" -j DROP\nCOMMIT\n");
  const Rule drop{.conn_label = netlink::ConnLabelMatch{.label = 115}};
  const auto first = [&] { return Read(*backend, {kUser}).Find(kUser)->rules.at(0); };
  ASSERT_NE(first().opaque(), nullptr) << "nobody says what it means";
  const uint32_t unnamed = Read(*backend, {kUser}).generation;
  std::ofstream(directory_ + "/connlabel.conf") << "115 to drop\n";
  ASSERT_NE(first().rule(), nullptr) << first().opaque()->text;
  EXPECT_EQ(*first().rule(), drop);
  const auto survey = backend->TakeSurvey({});
  ASSERT_THAT(survey, IsOk());
  const std::vector<netlink::SurveyRule>& rules = survey->Find({"ip", "filter"}, "USER")->rules;
  ASSERT_THAT(rules, SizeIs(1));
  EXPECT_EQ(TextOf(rules[0]), "-m connlabel --label \"115\" -j DROP");
  EXPECT_EQ(TextOf(rules[0]), ToString(Family::kIPv4, drop)) << "as nf_tables has it";
  EXPECT_NE(Read(*backend, {kUser}).generation, unnamed);
}

TEST_F(LegacyLabelsTest, ShowsWhyAProgramFailedThatHasWarnedOftenBefore) {
  auto backend = Open("1.8.9");
  Saves("iptables", kFilterWithUser);
  std::string errors;
  for (int i = 0; i < 20; ++i) {
    errors += "Warning: cannot open /etc/xtables/connlabel.conf: No such file or directory\n";
  }
  runner_.On(Program("iptables", "save"),
             Answers({.exit_code = 1, .output = "", .errors = errors + "the reason\n"}));
  EXPECT_THAT(backend->Read({{.chain = kUser}}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("No such file"), HasSubstr("; the reason)"))));
  runner_.On(Program("iptables", "save"),
             Answers({.exit_code = 0, .output = kFilterWithUser, .errors = errors}));
  EXPECT_THAT(backend->Read({{.chain = kUser}}), IsOk()) << "warnings do no harm";
}

}  // namespace
}  // namespace kipt::testing::iptables_legacy_labels_test
