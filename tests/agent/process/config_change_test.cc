// SPDX-License-Identifier: Apache-2.0
//
// Whatever way a configuration file is changed in, the watch says so once; whatever else happens
// beside it, the watch says nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "tests/agent/process/config_watch_fixture.h"

namespace kipt::testing {
namespace {

struct Case {
  std::string name;
  Act before;
  Act act;
};

TEST(ConfigChange, IsSaidOnceAndTheNextOneToo) {
  const Case rows[] = {
      {"WrittenOver", MakeFile,
       [](const TemporaryTree& tree) { tree.Write("etc/config.yaml", "new"); }},
      {"Mv", MakeFile,
       [](const TemporaryTree& tree) {
         tree.Write("etc/.new", "new");
         Rename(tree, "etc/.new", "etc/config.yaml");
       }},
      {"VimRenamesAndWritesANewOne", MakeFile,
       [](const TemporaryTree& tree) {
         tree.Write("etc/.config.yaml.swp", "swap");
         tree.Write("etc/4913", "");
         tree.Remove("etc/4913");
         Rename(tree, "etc/config.yaml", "etc/config.yaml~");
         tree.Write("etc/config.yaml", "new");
         EXPECT_EQ(chmod(tree.Path("etc/config.yaml").c_str(), 0600), 0);
         tree.Remove("etc/config.yaml~");
         tree.Remove("etc/.config.yaml.swp");
       }},
      {"LnSfn",
       [](const TemporaryTree& tree) {
         tree.Write("a/config.yaml", "old");
         tree.Write("b/config.yaml", "new");
         tree.Link("etc/config.yaml", "../a/config.yaml");
       },
       [](const TemporaryTree& tree) {
         MustRun({"ln", "-sfn", "../b/config.yaml", tree.Path("etc/config.yaml")});
       }},
      {"WrittenBehindALink",
       [](const TemporaryTree& tree) {
         tree.Write("a/real", "old");
         tree.Link("etc/config.yaml", "../a/real");
       },
       [](const TemporaryTree& tree) { tree.Write("a/real", "new"); }},
      {"LinkToADirectoryLeadsElsewhere",
       [](const TemporaryTree& tree) {
         tree.Write("a/config.yaml", "old");
         tree.Write("b/config.yaml", "new");
         tree.Link("etc", "a");
       },
       [](const TemporaryTree& tree) {
         MustRun({"ln", "-sfn", "b", tree.Path("etc")});
       }},
      {"ConfigMapUpdated", MakeConfigMap,
       [](const TemporaryTree& tree) {
         tree.Write("etc/..2026_11_21/config.yaml", "new");
         tree.Link("etc/..data_tmp", "..2026_11_21");
         Rename(tree, "etc/..data_tmp", "etc/..data");
         tree.Remove("etc/..2026_11_20");
       }},
      {"Removed", MakeFile, [](const TemporaryTree& tree) { tree.Remove("etc/config.yaml"); }},
      {"RemovedWithItsDirectory", MakeFile, [](const TemporaryTree& tree) { tree.Remove("etc"); }},
      {"MadeForTheFirstTime", [](const TemporaryTree& tree) { tree.Directory("etc"); },
       [](const TemporaryTree& tree) { tree.Write("etc/config.yaml", "new"); }},
      {"MadeWithItsDirectory", [](const TemporaryTree&) {},
       [](const TemporaryTree& tree) { tree.Write("etc/config.yaml", "new"); }},
      {"DirectoryReplaced",
       [](const TemporaryTree& tree) {
         MakeFile(tree);
         tree.Write("new/config.yaml", "new");
       },
       [](const TemporaryTree& tree) {
         Rename(tree, "etc", "etc.old");
         Rename(tree, "new", "etc");
       }},
  };
  for (const Case& row : rows) {
    SCOPED_TRACE(row.name);

    const TemporaryTree tree;
    row.before(tree);
    Settle();
    auto watch = Watch(tree, "etc/config.yaml");
    EXPECT_EQ(TimesSaid(*watch), 0);
    row.act(tree);
    EXPECT_EQ(TimesSaid(*watch), 1);
    Settle();
    tree.Write("etc/config.yaml", "written afterwards");
    EXPECT_EQ(TimesSaid(*watch), 1) << "watches what stands there now";
    tree.Remove("etc/config.yaml");
    EXPECT_EQ(TimesSaid(*watch), 1);
  }
}

// More than the queue of the kernel holds.
void Storm(const TemporaryTree& tree) {
  for (int i = 0; i < 8000; ++i) {
    tree.Write("etc/other", "x");
    tree.Remove("etc/other");
  }
}

TEST(ConfigNoChange, IsNotSaid) {
  const Case rows[] = {
      {"StormOfOtherFiles", MakeFile, Storm},
      {"OpenedForWritingOnly", MakeFile,
       [](const TemporaryTree& tree) { OpenFile(tree.Path("etc/config.yaml"), 0).Close(); }},
      {"ConfigMapPrepared", MakeConfigMap,
       [](const TemporaryTree& tree) {
         tree.Write("etc/..2026_11_21/config.yaml", "new");
         tree.Link("etc/..data_tmp", "..2026_11_21");
       }},
      {"DirectoryMadeWithoutAFile", [](const TemporaryTree&) {},
       [](const TemporaryTree& tree) { tree.Directory("etc"); }},
      {"LinkToNowhere", [](const TemporaryTree& tree) { tree.Directory("etc"); },
       [](const TemporaryTree& tree) { tree.Link("etc/config.yaml", "../a"); }},
      {"MadeAndRemoved", [](const TemporaryTree& tree) { tree.Directory("etc"); },
       [](const TemporaryTree& tree) {
         tree.Write("etc/config.yaml", "new");
         tree.Remove("etc/config.yaml");
       }},
  };
  for (const Case& row : rows) {
    SCOPED_TRACE(row.name);

    const TemporaryTree tree;
    row.before(tree);
    Settle();
    auto watch = Watch(tree, "etc/config.yaml");
    row.act(tree);
    EXPECT_EQ(TimesSaid(*watch), 0);
    Settle();
    tree.Write("etc/config.yaml", "new");
    EXPECT_EQ(TimesSaid(*watch), 1);
  }
}

}  // namespace
}  // namespace kipt::testing
