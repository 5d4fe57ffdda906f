// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/options.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"

namespace kipt::skew::options_test {
namespace {

Options Parsed(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Options> options = ParseOptions("/opt/bin/kube-iptables-skew", arguments);
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(Options{});
}

struct SideRow {
  const char* name;
  const char* a;
  const char* b;
  const char* name_a;
  const char* name_b;
};
const SideRow kSides[] = {
    {"by default", "kubelet", "agent", "kubelet", "agent"},
    {"the other way round", "agent", "kubelet", "agent", "kubelet"},
    {"two agents", "agent:/old", "agent:/new", "agent-a", "agent-b"},
    {"two versions of kubelet", "kubelet:1.31", "kubelet:1.36", "kubelet-1.31", "kubelet-1.36"},
    {"a gate that is set", "kubelet:1.27-gate-off", "agent", "kubelet-1.27-gate-off", "agent"},
};

TEST(OptionsTest, TakeWhatIsCompared) {
  for (const SideRow& row : kSides) {
    const Options options =
        Parsed({absl::StrCat("--a=", row.a), absl::StrCat("--b=", row.b), "--agent=/opt/agent"});
    EXPECT_THAT(NamesOf(options.sides), ::testing::Pair(row.name_a, row.name_b)) << row.name;
    const absl::StatusOr<std::vector<Cell>> cells = ChosenCells(options);
    ASSERT_TRUE(cells.ok()) << row.name << ": " << cells.status();
    size_t of_b = 0;
    for (const Cell& cell : *cells) {
      EXPECT_TRUE(
          absl::EndsWith(CellId(cell), absl::StrCat("/", cell.is_b ? row.name_b : row.name_a)))
          << CellId(cell);
      of_b += cell.is_b ? 1 : 0;
    }
    EXPECT_GT(of_b, 20U) << row.name;
  }
  EXPECT_EQ(Parsed({"--agent=/opt/agent"}).sides.b.program, "/opt/agent");
  EXPECT_EQ(Parsed({"--agent=/opt/agent", "--a=agent:/old"}).sides.a.program, "/old");
}

struct RefusedRow {
  const char* name;
  const char* argument;
  const char* message;
};
const RefusedRow kRefused[] = {
    {"an unknown flag", "--paht=boot", "--paht"},
    {"an unknown path", "--paths=boot,upgrade", "there is no path \"upgrade\""},
    {"an unknown command", "walk", "walk"},
    {"no jobs", "--jobs=0", "--jobs"},
    {"a version that is none", "--b=kubelet:1.24.3", "1.24.3"},
    {"a version before all facts", "--b=kubelet:1.16", "from 1.17 to 1.37"},
    {"a side that is none", "--a=kublet", "kubelet:VERSION"},
    {"an agent without its file", "--b=agent:", "agent:FILE"},
    {"a kubelet of no version", "--b=kubelet:new", "\"new\" is not a version"},
    {"a gate that cannot be set", "--b=kubelet:1.31-gate-off", "no gate"},
};

TEST(OptionsTest, RefuseWhatMakesNoSense) {
  for (const RefusedRow& row : kRefused) {
    const absl::StatusOr<Options> options = ParseOptions("kube-iptables-skew", {row.argument});
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

}  // namespace
}  // namespace kipt::skew::options_test
