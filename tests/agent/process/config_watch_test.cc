// SPDX-License-Identifier: Apache-2.0
//
// When the watch of a configuration file reports: however the file is changed, once, after the
// writing is done, and also after many changes; and nothing else that happens next to the file.
#include "agent/process/config_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/agent/process/without_capabilities.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using agent::ConfigWatch;

// Waits until the file system's coarse clock gives later writes another time.
void Settle() { absl::SleepFor(absl::Milliseconds(40)); }

void Rename(const TemporaryTree& tree, const std::string& from, const std::string& to) {
  EXPECT_EQ(rename(tree.Path(from).c_str(), tree.Path(to).c_str()), 0) << from;
}

bool HasEvents(const ConfigWatch& watch) {
  pollfd polled = {.fd = watch.fd(), .events = POLLIN, .revents = 0};
  return poll(&polled, 1, 0) == 1;
}

// How often the watch reports that the file may have changed, until it has no more events.
int CountReports(ConfigWatch& watch) {
  int reports = 0;
  while (HasEvents(watch)) {
    const absl::StatusOr<bool> changed = watch.Drain();
    EXPECT_THAT(changed, IsOk());
    if (!changed.ok()) break;
    if (*changed) ++reports;
  }
  return reports;
}

std::unique_ptr<ConfigWatch> Watch(const TemporaryTree& tree, const std::string& name) {
  auto watch = ConfigWatch::Create(tree.Path(name));
  EXPECT_THAT(watch, IsOk());
  return watch.ok() ? *std::move(watch) : nullptr;
}

// A file that is open for writing.
class OpenFile {
 public:
  OpenFile(const std::string& path, int flags)
      : fd_(open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644)) {
    EXPECT_GE(fd_, 0) << path;
  }
  ~OpenFile() { Close(); }
  void Write(const std::string& text) const {
    EXPECT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

void RunIn(const TemporaryTree& tree, const std::string& script) {
  MustRun({"/bin/sh", "-euc", "cd \"$0\"; " + script, tree.root()});
}

void MakeFile(const TemporaryTree& tree) { tree.Write("etc/config.yaml", "old"); }

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
