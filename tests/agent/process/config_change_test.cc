// SPDX-License-Identifier: Apache-2.0
//
// However a configuration file is changed, the watch reports it once; it reports nothing else that
// happens next to the file.
#include <gtest/gtest.h>

#include <string>

#include "tests/agent/process/config_watch_fixture.h"

namespace kipt::testing {
namespace {

// Scripts that run in the tree.
struct Case {
  std::string name;
  std::string before;
  std::string act;
  int reports = 1;
};

const std::string kFile = "mkdir etc; echo old > etc/config.yaml";
// As kubelet lays out the volume of a ConfigMap (AtomicWriter).
const std::string kConfigMap =
    "mkdir -p etc/..2026_11_20; echo old > etc/..2026_11_20/config.yaml; "
    "ln -s ..2026_11_20 etc/..data; ln -s ..data/config.yaml etc/config.yaml";
const std::string kNextConfigMap =
    "mkdir etc/..2026_11_21; echo new > etc/..2026_11_21/config.yaml; "
    "ln -s ..2026_11_21 etc/..data_tmp; ";
const std::string kTwoDirectories =
    "mkdir a b; echo old > a/config.yaml; echo new > b/config.yaml; ";

TEST(ConfigChange, IsReportedOnceAndTheNextOneToo) {
  const Case rows[] = {
      {"WrittenOver", kFile, "echo new > etc/config.yaml"},
      {"Mv", kFile, "echo new > etc/.new; mv etc/.new etc/config.yaml"},
      {"SedInPlace", kFile, "sed -i s/old/new/ etc/config.yaml"},
      {"VimRenamesAndWritesANewOne", kFile,
       "cd etc; echo swap > .config.yaml.swp; echo > 4913; rm 4913; mv config.yaml config.yaml~; "
       "echo new > config.yaml; chmod 0600 config.yaml; rm config.yaml~ .config.yaml.swp"},
      {"LnSfn", kTwoDirectories + "mkdir etc; ln -s ../a/config.yaml etc/config.yaml",
       "ln -sfn ../b/config.yaml etc/config.yaml"},
      {"LinkReplacedByAFile", kConfigMap, "rm etc/config.yaml; echo new > etc/config.yaml"},
      {"WrittenThroughALink", kTwoDirectories + "mkdir etc; ln -s ../a/config.yaml etc/config.yaml",
       "echo new > a/config.yaml"},
      {"LinkToADirectoryLeadsElsewhere", kTwoDirectories + "ln -s a etc", "ln -sfn b etc"},
      {"ConfigMapUpdated", kConfigMap,
       kNextConfigMap + "mv -T etc/..data_tmp etc/..data; rm -r etc/..2026_11_20"},
      {"Removed", kFile, "rm etc/config.yaml"},
      {"RemovedWithItsDirectory", kFile, "rm -r etc"},
      {"MadeForTheFirstTime", "mkdir etc", "echo new > etc/config.yaml"},
      {"MadeWithItsDirectory", "", kFile},
      {"DirectoryReplaced", kTwoDirectories + "mv a etc", "mv etc etc.old; mv b etc"},
      // What is no change.
      // More than the queue of the kernel holds.
      {"StormOfOtherFiles", kFile, "for i in $(seq 8200); do : > etc/a; : > etc/b; done", 0},
      {"Read", kFile, "read -r line < etc/config.yaml", 0},
      {"OpenedForWritingOnly", kFile, ": >> etc/config.yaml", 0},
      {"ConfigMapPrepared", kConfigMap, kNextConfigMap, 0},
      {"DirectoryMadeWithoutAFile", "", "mkdir etc", 0},
      {"LinkToNowhere", "mkdir etc", "ln -s ../a etc/config.yaml", 0},
      {"MadeAndRemoved", "mkdir etc", "echo new > etc/config.yaml; rm etc/config.yaml", 0},
  };
  for (const Case& row : rows) {
    SCOPED_TRACE(row.name);
    const TemporaryTree tree;
    RunIn(tree, row.before);
    Settle();
    auto watch = Watch(tree, "etc/config.yaml");
    EXPECT_EQ(CountReports(*watch), 0);
    RunIn(tree, row.act);
    EXPECT_EQ(CountReports(*watch), row.reports);
    Settle();
    RunIn(tree, "mkdir -p etc; echo written afterwards > etc/config.yaml");
    EXPECT_EQ(CountReports(*watch), 1) << "watches the new file";
    tree.Remove("etc/config.yaml");
    EXPECT_EQ(CountReports(*watch), 1);
  }
}

}  // namespace
}  // namespace kipt::testing
