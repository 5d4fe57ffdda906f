// SPDX-License-Identifier: Apache-2.0
//
// Labels that connlabel.conf names. tests/kernel/conn_label_names_test.cc compares the same with
// iptables itself.
#include "agent/xtables/conn_label_names.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

constexpr size_t kLargest = 64 << 10;

// "114 masq", and empty lines.
std::string OfSize(size_t size) {
  const std::string line = "114 masq\n";
  return line + std::string(size - line.size(), '\n');
}

TEST(ConnLabelNamesTest, HasNoneWhereThereIsNoFile) {
  const TemporaryTree tree;
  tree.Write("file", "114 masq\n");
  tree.Link("nowhere", "none");
  for (const std::string path : {"none", "none/connlabel.conf", "file/connlabel.conf", "nowhere"}) {
    EXPECT_THAT(ReadConnLabelNames(tree.Path(path)), IsOkAndHolds(IsEmpty())) << path;
    EXPECT_EQ(ConnLabelNamesProblem(tree.Path(path)), "") << path;
  }
}

TEST(ConnLabelNamesTest, AFileThatCannotBeReadWholeIsAnErrorWithARemedy) {
  const TemporaryTree tree;
  const std::string path = tree.Path("connlabel.conf");
  const auto fails = [&](const std::string& why, const std::string& advice) {
    return StatusIs(absl::StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr(path), HasSubstr(why), HasSubstr(advice)));
  };
  tree.Write("connlabel.conf", OfSize(kLargest));
  EXPECT_THAT(ReadConnLabelNames(path), IsOkAndHolds(SizeIs(1)));
  tree.Write("connlabel.conf", OfSize(kLargest + 1));
  EXPECT_THAT(ReadConnLabelNames(path), fails("64 KiB", "shorten or remove it"));
  tree.Remove("connlabel.conf");
  tree.Directory("connlabel.conf");
  EXPECT_THAT(ReadConnLabelNames(path), fails("Is a directory", "remove it"));
  tree.Remove("connlabel.conf");
  // For a test that runs as root, who may read everything.
  tree.Link("connlabel.conf", path);
  EXPECT_THAT(ReadConnLabelNames(path), fails("symbolic links", "make it readable"));
}

TEST(ConnLabelNamesTest, PutsNumbersInPlaceOfNames) {
  const ConnLabelNames names = {{"masq", 114}, {"two words", 115}, {"-j DROP", 7},
                                {"3", 114},    {"0x5", 6},         {"over", 200},
                                {"114", 8},    {"9", 10},          {"last", 127}};
  const auto label = [](const std::string& rest) { return "-m connlabel " + rest; };
  const std::pair<std::string, std::string> rows[] = {
      {label("--label \"masq\" --set"), label("--label \"114\" --set")},
      {label("! --label \"two words\" -j DROP"), label("! --label \"115\" -j DROP")},
      {label("--label \"-j DROP\" -j A"), label("--label \"7\" -j A")},
      {label("--label \"masq\" -m connlabel ! --label \"two words\" --set"),
       label("--label \"114\" -m connlabel ! --label \"115\" --set")},
      {label("--label \"0x5\""), label("--label \"6\"")},
      // Label 114 has a name of its own, so this is label 8.
      {label("--label \"114\" --set"), label("--label \"8\" --set")},
      {label("--label \"last\""), label("--label \"127\"")},
  };
  std::vector<std::pair<std::string, std::string>> all(std::begin(rows), std::end(rows));
  for (const std::string same :
       {"-m connlabel --label \"9\" --set", "-m connlabel --label \"20\"",
        "-m connlabel --label \"nobody\"", "-m connlabel --label \"over\"",
        "-m connlabel --label masq", "-m connlabel --label xmasq\"",
        "-m connlabel --labels \"masq\"", "-m connlabel ! --label", "-m connlabel --label",
        "-m connlabel", "-m comment --comment \"-m connlabel --label \\\"masq\\\"\" -j DROP",
        "-m comment --comment \"a\n-A X -m connlabel --label \"  -j DROP",
        "-j connlabel --label \"masq\""}) {
    all.emplace_back(same, same);
  }
  for (const auto& [rule, expected] : all) {
    const auto saved = [](const std::string& text) {
      return absl::StrCat("# -m connlabel --label \"masq\"\n*nat\n:X - [0:0]\n[1:2] -A X ", text,
                          "\n-A X ", text, "\nCOMMIT\n");
    };
    EXPECT_THAT(WithConnLabelNumbers(saved(rule), names), IsOkAndHolds(saved(expected)));
    EXPECT_THAT(WithConnLabelNumbers(saved(rule), ConnLabelNames()), IsOkAndHolds(saved(rule)));
  }
}

TEST(ConnLabelNamesTest, LeavesBrokenTextsAsTheyAre) {
  const ConnLabelNames names = {{"a", 1}};
  for (const std::string text :
       {"", "\n", "-A X -m connlabel --label \"a\n", "-A X \"b\"c -m connlabel --label \"a\"\n",
        "x -m connlabel --label \"a\"", "-"}) {
    EXPECT_THAT(WithConnLabelNumbers(text, names), IsOkAndHolds(text));
  }
  EXPECT_THAT(WithConnLabelNumbers("-A X -m connlabel --label \"a\"", names),
              IsOkAndHolds("-A X -m connlabel --label \"1\""))
      << "no newline at the end";
  EXPECT_THAT(WithConnLabelNumbers("# \"a\n-A X -m connlabel --label \"a\"\n", names),
              IsOkAndHolds("# \"a\n-A X -m connlabel --label \"1\"\n"))
      << "a quote in a comment opens nothing";
}

TEST(ConnLabelNamesTest, DistinguishesANameFromWhatIsPrintedWithoutOne) {
  struct Row {
    std::string rule;
    bool named;
  };
  const Row rows[] = {
      {"-A X -m connlabel --label \"masq\" --set", true},
      {"[1:2] -A X -m connlabel ! --label \"masq\" --set", true},
      {"-A X -m connlabel --label \"114\" -m connlabel --label \"two words\"", true},
      {"-A X -m connlabel --label \"0x10\"", true},
      {"-A X -m connlabel --label \"010\"", true},
      {"-A X -m connlabel --label \"\"", true},
      {"-A X -m connlabel --label \"114\" --set", false},
      {"-A X -m connlabel ! --label \"0\"", false},
      {"-A X -m comment --comment \"-m connlabel --label \\\"masq\\\"\" -j DROP", false},
      {"-A X -m comment --comment \"-m connlabel --label \" -j DROP", false},
      {"# -m connlabel --label \"masq\"", false},
  };
  for (const Row& row : rows) {
    const std::string saved = absl::StrCat("*nat\n:X - [0:0]\n", row.rule, "\nCOMMIT\n");
    const absl::Status unreadable = absl::FailedPreconditionError("no names");
    const absl::StatusOr<std::string> text = WithConnLabelNumbers(saved, unreadable);
    EXPECT_EQ(text.status(), row.named ? unreadable : absl::OkStatus()) << row.rule;
    EXPECT_EQ(text.value_or(saved), saved);
  }
}

}  // namespace
}  // namespace kipt::agent
