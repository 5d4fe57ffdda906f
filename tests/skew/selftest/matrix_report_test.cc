// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/report/matrix_report.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/skew/report/report_parts.h"
#include "tests/skew/selftest/sample_matrix.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kId[] = "boot/kubelet-1.24/proxy-1.27/nft/agent";

// ---- verdicts ----

struct StepRow {
  std::string name;
  StepReport step;
  Verdict verdict;
};

Check Complained(Check check) {
  check.complaint = "pod a had 60 of 64";
  return check;
}

// Expected to leak, and did not: a fact that is not one.
Check BetterThanExpected() {
  Check check = SampleCheck();
  check.expected = Outcome::kReachedHost;
  return check;
}

StepReport Asked(std::vector<Check> checks) { return {.name = "a step", .checks = checks}; }
StepReport Sent(uint64_t bad, uint64_t allowed) {
  return {.name = "a step", .streams = {SampleStream(bad, allowed)}};
}
StepReport Failed(bool expected, const Check& check) {
  return {.name = "a step", .error = "exit 2", .error_expected = expected, .checks = {check}};
}

std::vector<StepRow> StepRows() {
  return {
      {"asked nothing", Asked({}), Verdict::kSound},
      {"sound check", Asked({SampleCheck()}), Verdict::kSound},
      {"known leak", Asked({SampleCheck(), SampleLeak("a fact")}), Verdict::kKnown},
      {"leak", Asked({SampleLeak("a fact"), SampleLeak("")}), Verdict::kUnexpected},
      {"better than expected", Asked({BetterThanExpected()}), Verdict::kUnexpected},
      {"complaint", Asked({Complained(SampleCheck())}), Verdict::kUnexpected},
      {"of a known leak", Asked({Complained(SampleLeak("a fact"))}), Verdict::kUnexpected},
      {"sound stream", Sent(0, 0), Verdict::kSound},
      {"sound stream that need not be", Sent(0, 9), Verdict::kSound},
      {"stream as bad as allowed", Sent(9, 9), Verdict::kKnown},
      {"stream worse than allowed", Sent(10, 9), Verdict::kUnexpected},
      {"expected error", Failed(true, SampleCheck()), Verdict::kKnown},
      {"unexpected error", Failed(false, SampleCheck()), Verdict::kUnexpected},
      {"expected error, and a leak", Failed(true, SampleLeak("")), Verdict::kUnexpected},
  };
}

TEST(StepVerdictTest, IsThatOfItsWorstPacketOrError) {
  for (const StepRow& row : StepRows()) {
    EXPECT_STREQ(NameOf(VerdictOf(row.step)), NameOf(row.verdict)) << row.name;
  }
}

TEST(CellVerdictTest, IsThatOfTheWorstStep) {
  CellReport cell = SampleCell(kId, Verdict::kSound);
  EXPECT_EQ(VerdictOf(cell), Verdict::kSound);
  cell.steps.push_back({.name = "later", .checks = {SampleLeak("")}});
  cell.steps.push_back({.name = "latest", .checks = {SampleLeak("a fact")}});
  EXPECT_EQ(VerdictOf(cell), Verdict::kUnexpected);
}

TEST(CellVerdictTest, IsBrokenWithAProblemWhateverItsPacketsDid) {
  CellReport cell = SampleCell(kId, Verdict::kUnexpected);
  cell.problem = "the agent did not start";
  EXPECT_EQ(VerdictOf(cell), Verdict::kBroken);
}

TEST(CellVerdictTest, IsBrokenWhereNothingWasAsked) {
  CellReport cell;
  EXPECT_EQ(VerdictOf(cell), Verdict::kBroken);
  cell.steps = {{.name = "kubelet starts"}};
  EXPECT_EQ(VerdictOf(cell), Verdict::kBroken);
  cell.steps[0].streams = {SampleStream(0, 0)};
  EXPECT_EQ(VerdictOf(cell), Verdict::kSound);
}

TEST(TallyTest, CountsEachVerdictAndAllIsAsExpectedOnlyWithoutBadOnes) {
  MatrixReport report;
  report.cells = {SampleCell(kId, Verdict::kSound), SampleCell(kId, Verdict::kKnown),
                  SampleCell(kId, Verdict::kKnown)};
  EXPECT_TRUE(AllAsExpected(report));
  report.problems = {"the agent is worse than kubelet"};
  EXPECT_FALSE(AllAsExpected(report));
  report.problems.clear();
  for (const Verdict verdict : {Verdict::kUnexpected, Verdict::kBroken}) {
    MatrixReport bad = report;
    bad.cells.push_back(SampleCell(kId, verdict));
    EXPECT_FALSE(AllAsExpected(bad)) << NameOf(verdict);
  }
  report.cells.push_back(SampleCell(kId, Verdict::kUnexpected));
  report.cells.push_back(SampleCell(kId, Verdict::kBroken));
  EXPECT_THAT(TallyOf(report), ElementsAre(1, 2, 1, 1));
}

// ---- JSON ----

TEST(CellJsonTest, IsTheSameCellWhenItIsReadAgain) {
  const CellReport cell = CellWithEveryField();
  const absl::StatusOr<CellReport> read = ParseCellReport(CellJson(cell));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(CellJson(*read), CellJson(cell));
  EXPECT_EQ(read->seconds, cell.seconds);
  EXPECT_EQ(read->steps[0].error, cell.steps[0].error);
  EXPECT_EQ(read->steps[0].streams[0].count, cell.steps[0].streams[0].count);
  EXPECT_EQ(read->steps[0].checks[0].result, cell.steps[0].checks[0].result);
  EXPECT_EQ(read->steps[0].checks[0].probe.from, Place::kSecondNode);
}

// So that the test above compares all of a cell.
TEST(CellJsonTest, HoldsEveryField) {
  const Json json = Json::parse(CellJson(CellWithEveryField()));
  const Json flat = json.flatten();
  for (const auto& leaf : flat.items()) {
    const Json& value = leaf.value();
    const bool set = !(value.is_null() || value == "" || value == 0);
    EXPECT_TRUE(set) << leaf.key() << " " << value;
  }
  EXPECT_EQ(json.size(), 14U);
  EXPECT_EQ(json["steps"][0].size(), 8U);
  EXPECT_EQ(json["steps"][0]["checks"][0].size(), 6U);
  EXPECT_EQ(json["steps"][0]["checks"][0]["probe"].size(), 8U);
  EXPECT_EQ(json["steps"][0]["checks"][0]["result"].size(), 8U);
  EXPECT_EQ(json["steps"][0]["streams"][0].size(), 8U);
  EXPECT_EQ(json["steps"][0]["streams"][0]["count"].size(), 10U);
}

TEST(CellJsonTest, WritesWhatIsNoUtf8AsReplacementCharacters) {
  CellReport cell = SampleCell(kId, Verdict::kSound);
  cell.about = "bad \xFF\xC0 byte";
  const absl::StatusOr<CellReport> read = ParseCellReport(CellJson(cell));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->about, "bad \xEF\xBF\xBD\xEF\xBF\xBD byte");
}

TEST(CellJsonTest, IsRefusedWhereItIsNotWhatWasWritten) {
  const Json whole = Json::parse(CellJson(CellWithEveryField()));
  const std::string text = whole.dump();
  Json without_steps = whole;
  without_steps.erase("steps");
  Json unknown_outcome = whole;
  unknown_outcome["steps"][0]["checks"][0]["expected"] = "eaten";
  for (const std::string& each : {text.substr(0, text.size() / 2), std::string(),
                                  without_steps.dump(), unknown_outcome.dump()}) {
    EXPECT_EQ(ParseCellReport(each).status().code(), absl::StatusCode::kInvalidArgument) << each;
  }
}

TEST(MatrixJsonTest, HasTheWholeMatrixAndEachCellsVerdict) {
  MatrixReport report{.kernel = "6.18.5",
                      .iptables = "1.8.9",
                      .b = {"agent", "kube-iptables-agent 0.4.0"},
                      .seconds = 2.5};
  report.cells = {SampleCell(kId, Verdict::kKnown), SampleCell(kId, Verdict::kBroken)};
  report.problems = {"a problem"};
  report.left_out = {{.id = "boot/x/agent", .path = "fresh boot", .why = "no such thing"}};
  report.compared = {.cells = 1, .checks = 20, .streams = 30};
  const Json json = Json::parse(MatrixJson(report));
  EXPECT_EQ(json["kernel"], "6.18.5");
  EXPECT_EQ(json["a"], Json::parse(R"({"name":"kubelet","what":"the kubelet of each cell"})"));
  EXPECT_EQ(json["b"], Json::parse(R"({"name":"agent","what":"kube-iptables-agent 0.4.0"})"));
  EXPECT_EQ(json["problems"], Json::array({"a problem"}));
  EXPECT_EQ(json["tally"]["knownFailure"], 1);
  EXPECT_EQ(json["tally"]["leftOut"], 1);
  EXPECT_EQ(json["leftOut"],
            Json::parse(R"([{"id":"boot/x/agent","path":"fresh boot","why":"no such thing"}])"));
  EXPECT_EQ(json["compared"], Json::parse(R"({"cells":1,"checks":20,"streams":30})"));
  EXPECT_EQ(json["allAsExpected"], false);
  ASSERT_EQ(json["cells"].size(), 2U);
  EXPECT_EQ(json["cells"][0]["verdict"], "known failure");
  EXPECT_EQ(json["cells"][1]["verdict"], "broken");
  report.cells.clear();
  EXPECT_TRUE(Json::parse(MatrixJson(report))["cells"].empty());
}

// ---- tables ----

TEST(GridTest, IsOneForEachPathModeAndCompanyWithSortedGenerations) {
  MatrixReport report;
  for (const char* id :
       {"boot/kubelet-1.25-gate-on/proxy-1.27/nft/agent",
        "boot/kubelet-1.9/proxy-1.23-ipvs/nft/kubelet", "boot/kubelet-1.25/proxy-1.27/nft/kubelet",
        "boot/kubelet-1.25/proxy-1.27/nft/agent", "boot/kubelet-1.25/proxy-1.27/legacy/agent",
        "boot/kubelet-1.25/proxy-1.27/other-bit/nft/agent"}) {
    report.cells.push_back(SampleCell(id, Verdict::kSound));
  }
  const std::vector<Grid> grids = GridsOf(report);
  ASSERT_EQ(grids.size(), 3U);
  EXPECT_THAT(grids[0].rows, ElementsAre("1.9", "1.25", "1.25 gate on"));
  EXPECT_THAT(grids[0].columns, ElementsAre("1.27", "1.23 ipvs"));
  ASSERT_EQ(grids[0].pairs.size(), 3U);
  EXPECT_EQ(grids[0].pairs[1].a, &report.cells[2]);
  EXPECT_EQ(grids[0].pairs[1].b, &report.cells[3]);
  EXPECT_EQ(grids[0].pairs[2].a, nullptr);
  EXPECT_EQ(grids[1].mode, "legacy");
  EXPECT_EQ(grids[2].Title(), "fresh boot, other bit");
}

}  // namespace
}  // namespace kipt::skew
