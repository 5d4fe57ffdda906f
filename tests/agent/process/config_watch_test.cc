// SPDX-License-Identifier: Apache-2.0
//
// When the watch of a configuration file reports: after the writing is done, once, and also after
// many changes.
#include "agent/process/config_watch.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/agent/process/config_watch_fixture.h"
#include "tests/agent/process/without_capabilities.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using agent::ConfigWatch;

TEST(ConfigWriting, IsNotReportedBeforeItsEnd) {
  const std::pair<std::string, int> rows[] = {
      {":", O_TRUNC},
      {":", O_APPEND},
      {"mv etc/config.yaml etc/config.yaml~", O_CREAT | O_EXCL},
      {"rm etc/config.yaml", O_CREAT | O_EXCL},
  };
  for (const auto& [begin, flags] : rows) {
    SCOPED_TRACE(begin);
    const TemporaryTree tree;
    MakeFile(tree);
    Settle();
    auto watch = Watch(tree, "etc/config.yaml");
    RunIn(tree, begin);
    OpenFile file(tree.Path("etc/config.yaml"), flags);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(CountReports(*watch), 0);
      file.Write("some");
      tree.Write("etc/other", "x");
    }
    EXPECT_EQ(CountReports(*watch), 0);
    file.Close();
    EXPECT_EQ(CountReports(*watch), 1);
  }
}

class ConfigWatchTest : public ::testing::Test {
 protected:
  const TemporaryTree tree_;
};

TEST_F(ConfigWatchTest, SeesTwoWritesOfOneSizeOneRightAfterTheOther) {
  MakeFile(tree_);
  auto watch = Watch(tree_, "etc/config.yaml");
  for (int i = 100; i < 300; ++i) {
    tree_.Write("etc/config.yaml", absl::StrCat(i));
    EXPECT_EQ(CountReports(*watch), 1) << i;
  }
}

TEST_F(ConfigWatchTest, EndsAtLinksThatLeadInACircle) {
  tree_.Link("etc/config.yaml", "other");
  tree_.Link("etc/other", "config.yaml");
  auto watch = Watch(tree_, "etc/config.yaml");
  tree_.Remove("etc/other");
  tree_.Write("etc/other", "new");
  EXPECT_EQ(CountReports(*watch), 1);
}

// A relative path: any program may make files in the directories above the tree, such as /tmp, and
// an absolute path has these watched, too.
TEST_F(ConfigWatchTest, DoesNotWakeItself) {
  MakeFile(tree_);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(tree_.root());
  const auto watch = ConfigWatch::Create("etc/config.yaml");
  ASSERT_THAT(watch, IsOk());
  EXPECT_FALSE(HasEvents(**watch));
  tree_.Write("etc/config.yaml", "new");
  EXPECT_THAT((*watch)->Drain(), IsOkAndHolds(true));
  EXPECT_FALSE(HasEvents(**watch));
  std::ifstream(tree_.Path("etc/config.yaml")).get();
  EXPECT_FALSE(HasEvents(**watch)) << "nor is it woken by a reader";
  std::filesystem::current_path(before);
}

// Fills the queue of every watch on the directory `etc`: what happens from then on is lost.
void Overflow(const TemporaryTree& tree) {
  int most = 0;
  std::ifstream("/proc/sys/fs/inotify/max_queued_events") >> most;
  ASSERT_GT(most, 0);
  tree.Write("etc/other", "x");
  const std::string from = tree.Path("etc/other");
  const std::string to = tree.Path("etc/another");
  // There and back is four events.
  bool renamed = true;
  for (int events = 0; events <= most; events += 4) {
    renamed =
        renamed && rename(from.c_str(), to.c_str()) == 0 && rename(to.c_str(), from.c_str()) == 0;
  }
  ASSERT_TRUE(renamed);
}

TEST_F(ConfigWatchTest, ReportsAPossibleChangeWhereEventsWereLost) {
  MakeFile(tree_);
  Settle();
  auto watch = Watch(tree_, "etc/config.yaml");
  Overflow(tree_);
  tree_.Write("etc/config.yaml", "new");
  EXPECT_EQ(CountReports(*watch), 1);
  tree_.Write("etc/config.yaml", "newer");
  EXPECT_EQ(CountReports(*watch), 1) << "it keeps watching";
}

TEST_F(ConfigWatchTest, DoesNotWaitForTheEndOfAWritingThatWasLost) {
  MakeFile(tree_);
  auto watch = Watch(tree_, "etc/config.yaml");
  tree_.Remove("etc/config.yaml");
  EXPECT_EQ(CountReports(*watch), 1);
  OpenFile file(tree_.Path("etc/config.yaml"), O_CREAT);
  EXPECT_EQ(CountReports(*watch), 0);
  Overflow(tree_);
  file.Write("new");
  file.Close();
  EXPECT_EQ(CountReports(*watch), 1);
}

// What the kernel watches for it.
int WatchesOf(const ConfigWatch& watch) {
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", watch.fd()));
  int count = 0;
  for (std::string line; std::getline(info, line);) count += line.rfind("inotify", 0) == 0;
  return count;
}

TEST_F(ConfigWatchTest, KeepsNoDescriptorOrWatchOfWhatIsGone) {
  MakeFile(tree_);
  auto watch = Watch(tree_, "etc/config.yaml");
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const int watches_before = WatchesOf(*watch);
  const auto descriptors_before = descriptors();
  for (int i = 0; i < 1000; ++i) {
    Rename(tree_, "etc", "etc.old");
    tree_.Write("etc/config.yaml", "new");
    EXPECT_GE(CountReports(*watch), 1) << i;
    tree_.Remove("etc.old");
    CountReports(*watch);
  }
  EXPECT_EQ(WatchesOf(*watch), watches_before);
  EXPECT_EQ(descriptors(), descriptors_before);
}

// While it exists, names in a directory can be opened and created, but not listed.
class Unlistable {
 public:
  explicit Unlistable(std::string path) : path_(std::move(path)) { Set(0311); }
  ~Unlistable() { Set(0755); }
  Unlistable(const Unlistable&) = delete;
  Unlistable& operator=(const Unlistable&) = delete;

 private:
  void Set(mode_t mode) const { EXPECT_EQ(chmod(path_.c_str(), mode), 0) << path_; }
  std::string path_;
};

TEST(ConfigUnlistable, IsReportedOnce) {
  const struct {
    std::string unlistable;
    std::string before;
    std::function<void(const TemporaryTree&)> act;
    bool is_lost = false;  // afterwards nothing could be noticed
  } rows[] = {
      {"etc", "mkdir etc; echo old > etc/config.yaml",
       [](const TemporaryTree& tree) { tree.Write("etc/config.yaml", "new"); }},
      {"etc", "mkdir etc; echo old > etc/config.yaml",
       [](const TemporaryTree& tree) { Rename(tree, "etc/config.yaml", "etc/away"); }, true},
      {"outer",
       "mkdir -p outer/etc outer/new; echo old > outer/etc/config.yaml; "
       "echo new > outer/new/config.yaml; ln -s outer/etc etc",
       [](const TemporaryTree& tree) {
         Rename(tree, "outer/etc", "outer/away");
         Rename(tree, "outer/new", "outer/etc");
       }},
  };
  for (const auto& row : rows) {
    const TemporaryTree tree;
    RunIn(tree, row.before);
    const Unlistable unlistable(tree.Path(row.unlistable));
    Settle();
    WithoutCapabilities([&] {
      auto watch = Watch(tree, "etc/config.yaml");
      ASSERT_NE(watch, nullptr);
      row.act(tree);
      if (row.is_lost) {
        EXPECT_THAT(watch->Drain(), StatusIs(absl::StatusCode::kPermissionDenied));
      } else {
        EXPECT_EQ(CountReports(*watch), 1);
      }
    });
  }
}

TEST(ConfigWatchFaultTest, RefusesAFileOfWhichNoChangeCouldBeNoticed) {
  const TemporaryTree tree;
  MakeFile(tree);
  const Unlistable unlistable(tree.Path("etc"));
  ASSERT_EQ(chmod(tree.Path("etc/config.yaml").c_str(), 0200), 0);
  WithoutCapabilities([&] {
    for (const char* file : {"etc/config.yaml", "etc/none"}) {
      EXPECT_THAT(ConfigWatch::Create(tree.Path(file)),
                  StatusIs(absl::StatusCode::kPermissionDenied))
          << file;
    }
  });
}

TEST(ConfigWatchFaultTest, WatchesAnUnreadableFileByItsDirectory) {
  const TemporaryTree tree;
  MakeFile(tree);
  ASSERT_EQ(chmod(tree.Path("etc/config.yaml").c_str(), 0200), 0);
  WithoutCapabilities([&] {
    auto watch = Watch(tree, "etc/config.yaml");
    ASSERT_NE(watch, nullptr);
    tree.Write("etc/config.yaml", "longer than before");
    EXPECT_EQ(CountReports(*watch), 1);
  });
}

}  // namespace
}  // namespace kipt::testing
