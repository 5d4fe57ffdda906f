// SPDX-License-Identifier: Apache-2.0
//
// The watch of a configuration file where something may not be read, or a limit is reached.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <ostream>
#include <string>

#include "agent/process/config_watch.h"
#include "tests/agent/process/config_watch_fixture.h"
#include "tests/agent/process/without_capabilities.h"
#include "tests/support/failing_call.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using agent::ConfigWatch;

// As long as it exists, a directory in which names can be looked up and made, but not listed.
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

struct UnlistableCase {
  std::string name;
  std::string unlistable;
  Act before;
  Act act;
  bool is_lost = false;  // afterwards nothing could be noticed
};
void PrintTo(const UnlistableCase& c, std::ostream* stream) { *stream << c.name; }

using ConfigUnlistable = ::testing::TestWithParam<UnlistableCase>;

TEST_P(ConfigUnlistable, IsSaidOnce) {
  const TemporaryTree tree;
  GetParam().before(tree);
  const Unlistable unlistable(tree.Path(GetParam().unlistable));
  Settle();
  WithoutCapabilities([&] {
    auto watch = Watch(tree, "etc/config.yaml");
    ASSERT_NE(watch, nullptr);
    GetParam().act(tree);
    if (GetParam().is_lost) {
      EXPECT_THAT(watch->Drain(), StatusIs(absl::StatusCode::kPermissionDenied));
    } else {
      EXPECT_EQ(TimesSaid(*watch), 1);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    , ConfigUnlistable,
    ::testing::Values(
        UnlistableCase{
            .name = "AFileIsWrittenOver",
            .unlistable = "etc",
            .before = MakeFile,
            .act = [](const TemporaryTree& tree) { tree.Write("etc/config.yaml", "new"); }},
        UnlistableCase{
            .name = "AFileIsRenamed",
            .unlistable = "etc",
            .before = MakeFile,
            .act = [](const TemporaryTree& tree) { Rename(tree, "etc/config.yaml", "etc/away"); },
            .is_lost = true},
        UnlistableCase{
            .name = "AFileIsReplaced",
            .unlistable = "etc",
            .before =
                [](const TemporaryTree& tree) {
                  MakeFile(tree);
                  tree.Write("etc/new", "new");
                },
            .act = [](const TemporaryTree& tree) { Rename(tree, "etc/new", "etc/config.yaml"); }},
        UnlistableCase{.name = "ADirectoryIsReplaced",
                       .unlistable = "outer",
                       .before =
                           [](const TemporaryTree& tree) {
                             tree.Write("outer/etc/config.yaml", "old");
                             tree.Write("outer/new/config.yaml", "new");
                             tree.Link("etc", "outer/etc");
                           },
                       .act =
                           [](const TemporaryTree& tree) {
                             Rename(tree, "outer/etc", "outer/away");
                             Rename(tree, "outer/new", "outer/etc");
                           }},
        UnlistableCase{
            .name = "ALinkToItIsMade",
            .unlistable = "real",
            .before = [](const TemporaryTree& tree) { tree.Write("real/config.yaml", "new"); },
            .act = [](const TemporaryTree& tree) { tree.Link("etc", "real"); }}),
    [](const auto& of) { return of.param.name; });

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
    EXPECT_EQ(TimesSaid(*watch), 1);
  });
}

// The descriptor that is opened next.
int NextDescriptor() {
  const int next = dup(STDERR_FILENO);
  close(next);
  return next;
}

TEST(ConfigWatchFaultTest, SaysWhichResourceIsExhausted) {
  struct Row {
    const char* what;
    const char* file;
    FailingCall call;
  };
  const Row rows[] = {
      {"instances",
       "etc/config.yaml",
       {.number = SYS_inotify_init1,
        .argument = 0,
        .value = IN_CLOEXEC | IN_NONBLOCK,
        .error = EMFILE}},
      {"watches of directories",
       "etc/none",
       {.number = SYS_inotify_add_watch,
        .argument = 0,
        .value = static_cast<uint32_t>(NextDescriptor()),
        .error = ENOSPC}},
      {"watches, for the file",
       "etc/config.yaml",
       {.number = SYS_inotify_add_watch,
        .argument = 2,
        .value = IN_CLOSE_WRITE | IN_MOVE_SELF,
        .error = ENOSPC}},
  };
  const TemporaryTree tree;
  MakeFile(tree);
  for (const Row& row : rows) {
    WithFailingCall(row.call, [&] {
      EXPECT_THAT(ConfigWatch::Create(tree.Path(row.file)),
                  StatusIs(absl::StatusCode::kResourceExhausted))
          << row.what;
    });
  }
}

TEST(ConfigWatchFaultTest, RefusesToWatchWhatItCannotSearchForWithoutDescriptors) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // inotify's is the last one.
  const rlimit few = {.rlim_cur = static_cast<rlim_t>(NextDescriptor()) + 1,
                      .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const absl::Status status = ConfigWatch::Create("/etc/config.yaml").status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(ConfigWatchFaultTest, TakesTheRootForAFileThatNeverChanges) {
  auto watch = ConfigWatch::Create("/");
  ASSERT_THAT(watch, IsOk());
  EXPECT_THAT((*watch)->Drain(), IsOkAndHolds(false));
}

TEST(ConfigWatchFaultTest, SaysThatItsEventsCannotBeRead) {
  const TemporaryTree tree;
  MakeFile(tree);
  auto watch = Watch(tree, "etc/config.yaml");
  WithFailingCall({.number = SYS_read,
                   .argument = 0,
                   .value = static_cast<uint32_t>(watch->fd()),
                   .error = EIO},
                  [&] { EXPECT_FALSE(watch->Drain().ok()); });
}

}  // namespace
}  // namespace kipt::testing
