// SPDX-License-Identifier: Apache-2.0
#include "agent/process/files.h"

#include <fcntl.h>
#include <seccomp.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/agent/process/without_capabilities.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::agent;  // NOLINT(google-build-using-namespace): its vocabulary

TEST(OwnedFdTest, ClosesNothingIfItHoldsNone) {
  errno = 0;
  { const OwnedFd none; }
  EXPECT_EQ(errno, 0) << "an error that the caller has yet to read";
}

// Runs `body` on a thread of its own, which can open a file only with at least one flag of each of
// `needed`.
void WhereOpeningNeeds(const std::vector<int>& needed, const std::function<void()>& body) {
  std::thread([&] {
    const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    for (const int flags : needed) {
      const auto none_of = [&](unsigned argument) {
        return scmp_arg_cmp{.arg = argument,
                            .op = SCMP_CMP_MASKED_EQ,
                            .datum_a = static_cast<uint64_t>(flags),
                            .datum_b = 0};
      };
      ASSERT_EQ(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(openat), 1, none_of(2)),
                0);
    }
    ASSERT_EQ(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(inotify_init1), 1,
                               SCMP_A0(SCMP_CMP_MASKED_EQ, IN_CLOEXEC, 0)),
              0);
    ASSERT_EQ(seccomp_load(filter), 0);
    seccomp_release(filter);
    body();
  }).join();
}

TEST(FilesTest, OpenNothingThatAProgramInheritsOrThatBlocksOrBecomesTheTerminal) {
  const TemporaryTree tree;
  tree.Write("d/f", "text");
  const NodeFiles node(tree.root());
  const int lookup = O_PATH | O_DIRECTORY;
  WhereOpeningNeeds({O_CLOEXEC, lookup | O_NONBLOCK, lookup | O_NOCTTY}, [&] {
    EXPECT_THAT(ReadFile(tree.Path("d/f")), IsOkAndHolds("text"));
    EXPECT_THAT(node.Read("d/f", 100), IsOkAndHolds("text"));
    EXPECT_THAT(Inotify::Create(), IsOk());
  });
}

TEST(FilesTest, AreHiddenWhereNoPartOfTheNodeIsMounted) {
  const TemporaryTree tree;
  tree.Write("host/usr/f", "");
  tree.Write("host/own", "");
  tree.Link("host/usr/out", "/opt/out");
  const std::string host = std::filesystem::canonical(tree.Path("host"));
  const NodeFiles node(host);
  const auto hidden = [&](const std::string& mounts) {
    tree.Write("mounts", absl::StrCat("overlay / overlay rw 0 0\n", mounts));
    return node.Hidden({"/usr/none", "usr/f", "usrlocal/f", "/etc/f", "own", "usr/out"},
                       tree.Path("mounts"));
  };
  EXPECT_THAT(hidden(""), IsEmpty()) << "a copy of a node, as of a test";
  EXPECT_THAT(hidden(absl::StrCat("/dev/sda1 ", host, "/usr ext4 ro 0 0\n")),
              ElementsAre(host + "/usrlocal/f", host + "/etc/f", host + "/usr/out"))
      << "a link leads out of the mount";
  const std::string all =
      absl::StrCat("/dev/sda1 ", host, " ext4 ro 0 0\n/dev/sdb1 ", host, "/usr ext4 ro 0 0\n");
  EXPECT_THAT(hidden(all), ElementsAre(host + "/usrlocal/f", host + "/etc/f", host + "/usr/out"))
      << "a volume for mounts";
  EXPECT_THAT(hidden(absl::StrCat("tmpfs ", host, " tmpfs rw 0 0\n")), SizeIs(4)) << "an empty one";
  tree.Link("host/bin", "usr/bin");
  tree.Directory("host/tmp");
  EXPECT_THAT(hidden(all), SizeIs(3)) << "an image, without the node's /proc";
  tree.Link("host/proc/self", "1");
  EXPECT_THAT(hidden(all), IsEmpty()) << "the whole node";
  EXPECT_THAT(node.Hidden({"usr/f", "/etc/f"}, tree.Path("none")), ElementsAre(host + "/etc/f"));
  EXPECT_THAT(NodeFiles("/").Hidden({"/etc/none"}, tree.Path("none")), IsEmpty());
}

TEST(FilesTest, SayWhyAFileCannotBeRead) {
  const TemporaryTree tree;
  tree.Write("f", "12345");
  EXPECT_THAT(ReadFile(tree.Path("none")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(ReadFile(tree.root()).status().message(), HasSubstr("Is a directory"));
  EXPECT_THAT(ReadFile(tree.Path("f"), 4), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(ReadFile(tree.Path("f"), 5), IsOkAndHolds("12345"));
}

int end_for_the_handler = -1;

TEST(FilesTest, ReadOnAfterASignal) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const OwnedFd reading(ends[0]);
  end_for_the_handler = ends[1];
  struct sigaction interrupting = {};
  interrupting.sa_handler = [](int) {
    if (write(end_for_the_handler, "text", 4) == 4) close(end_for_the_handler);
  };
  struct sigaction before = {};
  ASSERT_EQ(sigaction(SIGALRM, &interrupting, &before), 0);
  const itimerval once = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 50'000}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &once, nullptr), 0);
  EXPECT_THAT(ReadToEnd(reading.get(), "the pipe", 100), IsOkAndHolds("text"));
  sigaction(SIGALRM, &before, nullptr);
}

TEST(InotifyTest, NamesTheLimitThatIsReached) {
  for (const int error : {EMFILE, ENOMEM}) {
    const FailingCall call = {.number = SYS_inotify_init1,
                              .argument = 0,
                              .value = IN_CLOEXEC | IN_NONBLOCK,
                              .error = static_cast<uint32_t>(error)};
    WithFailingCall(call, [&] {
      const absl::Status status = Inotify::Create().status();
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
      EXPECT_EQ(absl::StrContains(status.message(), "raise fs.inotify.max_user_instances"),
                error == EMFILE);
    });
  }
  auto inotify = Inotify::Create();
  ASSERT_THAT(inotify, IsOk());
  const auto hint = HasSubstr("raise fs.inotify.max_user_watches");
  WithFailingCall({.number = SYS_inotify_add_watch,
                   .argument = 0,
                   .value = static_cast<uint32_t>(inotify->fd()),
                   .error = ENOSPC},
                  [&] {
                    const absl::Status status = inotify->Watch("/", IN_CREATE).status();
                    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
                    EXPECT_THAT(status.message(), hint);
                  });
  const absl::Status status = inotify->Watch("/no/such/directory", IN_CREATE).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(status.message(), Not(hint));
}

TEST(InotifyTest, ReportsThatItsEventsCannotBeRead) {
  auto inotify = Inotify::Create();
  ASSERT_THAT(inotify, IsOk());
  for (const int error : {EIO, EINTR}) {
    WithFailingCall({.number = SYS_read,
                     .argument = 0,
                     .value = static_cast<uint32_t>(inotify->fd()),
                     .error = static_cast<uint32_t>(error)},
                    [&] {
                      const absl::Status status = inotify->Take([](const inotify_event&) {});
                      EXPECT_EQ(status.ok(), error == EINTR) << status;
                    });
  }
}

TEST(PathWalkTest, EndsAsTheKernelsDoes) {
  const TemporaryTree tree;
  for (const char* file : {"f", "d/f", "usr/sbin/other"}) tree.Write(file, file);
  tree.Link("d/abs", "/d/f");
  tree.Link("up", "../../f");
  tree.Link("sbin", "usr/sbin");
  tree.Link("usr/sbin/tool", "../sbin/other");
  const auto walk = [&](const std::string& path, const std::string& root = "") {
    return WalkPath(tree.Path(root), path);
  };
  struct Row {
    std::string path;
    std::string text;  // of the file that is found
    std::vector<std::string> names = {};
  };
  for (const Row& row : std::vector<Row>{
           {"/d//./f", "d/f", {"/d//./f", "/d/f"}},
           {"/../d/../../f", "f"},
           {"/up", "f"},
           {"/d/abs", "d/f", {"/d/abs", "/d/f"}},
           {"/sbin/tool",
            "usr/sbin/other",
            {"/sbin/tool", "/usr/sbin/tool", "/usr/sbin/../sbin/other", "/usr/sbin/other"}},
       }) {
    SCOPED_TRACE(row.path);
    const WalkedPath walked = walk(row.path);
    EXPECT_EQ(walked.error, 0);
    if (!row.names.empty()) EXPECT_EQ(walked.names, row.names);
    EXPECT_THAT(ReadFile(absl::StrCat("/proc/self/fd/", walked.file.get())),
                IsOkAndHolds(row.text));
  }
  EXPECT_EQ(walk("/d/g").error, ENOENT);
  EXPECT_EQ(walk("/f/f").error, ENOTDIR);
  EXPECT_EQ(walk("/f", "none").error, ENOENT);
  EXPECT_FALSE(walk("/d/g").file.valid());
}

TEST(PathWalkTest, FollowsAnAbsolutePathFromADirectoryThatMayNotBeSearched) {
  const TemporaryTree tree;
  tree.Write("f", "text");
  tree.Directory("closed");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(tree.Path("closed"));
  ASSERT_EQ(chmod(tree.Path("closed").c_str(), 0), 0);
  WithoutCapabilities([&] {
    EXPECT_EQ(WalkPath("/", tree.Path("f")).error, 0);
    EXPECT_EQ(WalkPath("/", "f").error, EACCES);
  });
  // Only root removes it otherwise.
  ASSERT_EQ(chmod(tree.Path("closed").c_str(), S_IRWXU), 0);
  std::filesystem::current_path(before);
}

TEST(PathWalkTest, EndsWhereTheCallbackStopsIt) {
  const TemporaryTree tree;
  tree.Write("d/f", "text");
  std::vector<std::string> asked;
  const WalkedPath walked =
      WalkPath(tree.root(), "/d/f", [&](const OwnedFd&, const std::string& name) {
        asked.push_back(name);
        return false;
      });
  EXPECT_EQ(walked.error, ECANCELED);
  EXPECT_THAT(asked, ElementsAre("d"));
}

TEST(PathWalkTest, FollowsAsManyLinksAsTheKernelDoes) {
  const TemporaryTree tree;
  tree.Write("0", "end");
  for (int i = 1; i <= 41; ++i) tree.Link(absl::StrCat(i), absl::StrCat(i - 1));
  for (const int links : {40, 41}) {
    const OwnedFd opened(open(tree.Path(absl::StrCat(links)).c_str(), O_PATH | O_CLOEXEC));
    const int kernels = opened.valid() ? 0 : errno;
    EXPECT_EQ(kernels, links == 40 ? 0 : ELOOP);
    EXPECT_EQ(WalkPath(tree.root(), absl::StrCat("/", links)).error, kernels) << links;
  }
}

// The program of a process that has ended is such a link.
TEST(PathWalkTest, ReportsWhyALinkCannotBeRead) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(WalkPath("/", absl::StrCat("/proc/", child, "/exe")).error, ENOENT);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace kipt::testing
