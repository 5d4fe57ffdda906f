// SPDX-License-Identifier: Apache-2.0
//
// Whatever way a configuration file is changed in, the watch says so once; whatever else happens
// beside it, the watch says nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
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
      {.name = "WrittenOver",
       .before = MakeFile,
       .act = [](const TemporaryTree& tree) { tree.Write("etc/config.yaml", "new"); }},
      {.name = "Cp",
       .before = MakeFile,
       .act =
           [](const TemporaryTree& tree) {
             tree.Write("new", "new");
             MustRun({"cp", tree.Path("new"), tree.Path("etc/config.yaml")});
           }},
      {.name = "Mv",
       .before = MakeFile,
       .act =
           [](const TemporaryTree& tree) {
             tree.Write("etc/.new", "new");
             Rename(tree, "etc/.new", "etc/config.yaml");
           }},
      {.name = "SedInPlace",
       .before = MakeFile,
       .act =
           [](const TemporaryTree& tree) {
             MustRun({"sed", "-i", "s/old/new/", tree.Path("etc/config.yaml")});
           }},
      {.name = "VimRenamesAndWritesANewOne",
       .before = MakeFile,
       .act =
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
      {.name = "LnSfn",
       .before =
           [](const TemporaryTree& tree) {
             tree.Write("a/config.yaml", "old");
             tree.Write("b/config.yaml", "new");
             tree.Link("etc/config.yaml", "../a/config.yaml");
           },
       .act =
           [](const TemporaryTree& tree) {
             MustRun({"ln", "-sfn", "../b/config.yaml", tree.Path("etc/config.yaml")});
           }},
      {.name = "LinkRemovedAndMadeAgain",
       .before =
           [](const TemporaryTree& tree) {
             tree.Write("a", "old");
             tree.Write("b", "new");
             tree.Link("etc/config.yaml", tree.Path("a"));
           },
       .act =
           [](const TemporaryTree& tree) {
             tree.Remove("etc/config.yaml");
             tree.Link("etc/config.yaml", tree.Path("b"));
           }},
      {.name = "LinkRenamedAway",
       .before =
           [](const TemporaryTree& tree) {
             tree.Write("a", "old");
             tree.Link("etc/config.yaml", "../a");
           },
       .act = [](const TemporaryTree& tree) { Rename(tree, "etc/config.yaml", "etc/away"); }},
      {.name = "LinkReplacedByAFile",
       .before = MakeConfigMap,
       .act =
           [](const TemporaryTree& tree) {
             tree.Remove("etc/config.yaml");
             tree.Write("etc/config.yaml", "new");
           }},
      {.name = "LinkMadeToAFileThatIsThere",
       .before =
           [](const TemporaryTree& tree) {
             tree.Write("a", "new");
             tree.Directory("etc");
           },
       .act = [](const TemporaryTree& tree) { tree.Link("etc/config.yaml", "../a"); }},
      {.name = "WrittenBehindALink",
       .before =
           [](const TemporaryTree& tree) {
             tree.Write("a/real", "old");
             tree.Link("etc/config.yaml", "../a/real");
           },
       .act = [](const TemporaryTree& tree) { tree.Write("a/real", "new"); }},
      {.name = "LinkToADirectoryLeadsElsewhere",
       .before =
           [](const TemporaryTree& tree) {
             tree.Write("a/config.yaml", "old");
             tree.Write("b/config.yaml", "new");
             tree.Link("etc", "a");
           },
       .act =
           [](const TemporaryTree& tree) {
             MustRun({"ln", "-sfn", "b", tree.Path("etc")});
           }},
      {.name = "ConfigMapUpdated",
       .before = MakeConfigMap,
       .act =
           [](const TemporaryTree& tree) {
             tree.Write("etc/..2026_11_21/config.yaml", "new");
             tree.Link("etc/..data_tmp", "..2026_11_21");
             Rename(tree, "etc/..data_tmp", "etc/..data");
             tree.Remove("etc/..2026_11_20");
           }},
      {.name = "Removed",
       .before = MakeFile,
       .act = [](const TemporaryTree& tree) { tree.Remove("etc/config.yaml"); }},
      {.name = "RemovedWithItsDirectory",
       .before = MakeFile,
       .act = [](const TemporaryTree& tree) { tree.Remove("etc"); }},
      {.name = "MadeForTheFirstTime",
       .before = [](const TemporaryTree& tree) { tree.Directory("etc"); },
       .act = [](const TemporaryTree& tree) { tree.Write("etc/config.yaml", "new"); }},
      {.name = "MadeWithItsDirectory",
       .before = [](const TemporaryTree&) {},
       .act = [](const TemporaryTree& tree) { tree.Write("etc/config.yaml", "new"); }},
      {.name = "RemovedAndMadeAgain",
       .before = MakeFile,
       .act =
           [](const TemporaryTree& tree) {
             tree.Remove("etc/config.yaml");
             tree.Write("etc/config.yaml", "new");
           }},
      {.name = "DirectoryReplaced",
       .before =
           [](const TemporaryTree& tree) {
             MakeFile(tree);
             tree.Write("new/config.yaml", "new");
           },
       .act =
           [](const TemporaryTree& tree) {
             Rename(tree, "etc", "etc.old");
             Rename(tree, "new", "etc");
           }},
      {.name = "SecondNameOfAnotherFile",
       .before =
           [](const TemporaryTree& tree) {
             tree.Directory("etc");
             tree.Write("other", "new");
           },
       .act =
           [](const TemporaryTree& tree) {
             std::filesystem::create_hard_link(tree.Path("other"), tree.Path("etc/config.yaml"));
           }},
      {.name = "WrittenUnderAnotherName",
       .before =
           [](const TemporaryTree& tree) {
             MakeFile(tree);
             std::filesystem::create_hard_link(tree.Path("etc/config.yaml"), tree.Path("other"));
           },
       .act = [](const TemporaryTree& tree) { tree.Write("other", "new"); }},
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
      {.name = "StormOfOtherFiles", .before = MakeFile, .act = Storm},
      {.name = "StormOfOtherFilesWhereThereIsNone",
       .before = [](const TemporaryTree& tree) { tree.Directory("etc"); },
       .act = Storm},
      {.name = "Read",
       .before = MakeFile,
       .act =
           [](const TemporaryTree& tree) {
             std::ifstream file(tree.Path("etc/config.yaml"));
             EXPECT_EQ(file.get(), 'o');
           }},
      {.name = "OpenedForWritingOnly",
       .before = MakeFile,
       .act = [](const TemporaryTree& tree) { OpenFile(tree.Path("etc/config.yaml"), 0).Close(); }},
      {.name = "ConfigMapPrepared",
       .before = MakeConfigMap,
       .act =
           [](const TemporaryTree& tree) {
             tree.Write("etc/..2026_11_21/config.yaml", "new");
             tree.Link("etc/..data_tmp", "..2026_11_21");
           }},
      {.name = "DirectoryMadeWithoutAFile",
       .before = [](const TemporaryTree&) {},
       .act = [](const TemporaryTree& tree) { tree.Directory("etc"); }},
      {.name = "LinkToNowhere",
       .before = [](const TemporaryTree& tree) { tree.Directory("etc"); },
       .act = [](const TemporaryTree& tree) { tree.Link("etc/config.yaml", "../a"); }},
      {.name = "MadeAndRemoved",
       .before = [](const TemporaryTree& tree) { tree.Directory("etc"); },
       .act =
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
