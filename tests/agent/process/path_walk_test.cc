// SPDX-License-Identifier: Apache-2.0
//
// WalkPath follows a path as the kernel does.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/process/files.h"
#include "tests/agent/process/without_capabilities.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using agent::OwnedFd;
using agent::ReadFile;
using agent::WalkedPath;
using agent::WalkPath;

// What is at a path of this tree:
//   f, d/f                 files
//   d/abs -> /d/f          up -> ../../f
//   sbin -> usr/sbin       usr/sbin/tool -> ../sbin/other, usr/sbin/other
struct WalkCase {
  std::string name;
  std::string path;
  int error = 0;
  std::string text = {};  // of the file that is found
  std::vector<std::string> names = {};
  std::string root = "";
};
void PrintTo(const WalkCase& c, std::ostream* out) { *out << c.name; }

class PathWalk : public ::testing::TestWithParam<WalkCase> {};

TEST_P(PathWalk, EndsAsTheKernelsDoes) {
  const TemporaryTree tree;
  for (const char* file : {"f", "d/f", "usr/sbin/other"}) tree.Write(file, file);
  tree.Link("d/abs", "/d/f");
  tree.Link("up", "../../f");
  tree.Link("sbin", "usr/sbin");
  tree.Link("usr/sbin/tool", "../sbin/other");
  const WalkedPath walked = WalkPath(tree.Path(GetParam().root), GetParam().path);
  EXPECT_EQ(walked.error, GetParam().error);
  if (!GetParam().names.empty()) EXPECT_EQ(walked.names, GetParam().names);
  EXPECT_EQ(walked.file.valid(), walked.error == 0);
  if (walked.error != 0) return;
  EXPECT_THAT(ReadFile(absl::StrCat("/proc/self/fd/", walked.file.get())),
              IsOkAndHolds(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    , PathWalk,
    ::testing::Values(
        WalkCase{.name = "AFile", .path = "/d//./f", .text = "d/f", .names = {"/d//./f", "/d/f"}},
        WalkCase{.name = "AFileThatIsNotThere", .path = "/d/g", .error = ENOENT},
        WalkCase{.name = "AFileInPlaceOfADirectory", .path = "/f/f", .error = ENOTDIR},
        WalkCase{.name = "NothingIsAboveTheRoot", .path = "/../d/../../f", .text = "f"},
        WalkCase{.name = "NoLinkLeavesTheRoot", .path = "/up", .text = "f"},
        WalkCase{.name = "AnAbsoluteLinkBeginsAtTheRoot",
                 .path = "/d/abs",
                 .text = "d/f",
                 .names = {"/d/abs", "/d/f"}},
        WalkCase{.name = "TheWholeWayOfALinkIsNamed",
                 .path = "/sbin/tool",
                 .text = "usr/sbin/other",
                 .names = {"/sbin/tool", "/usr/sbin/tool", "/usr/sbin/../sbin/other",
                           "/usr/sbin/other"}},
        WalkCase{.name = "LinksOfDirectoriesAreNotNamed",
                 .path = "/sbin/other",
                 .text = "usr/sbin/other",
                 .names = {"/sbin/other", "/usr/sbin/other"}},
        WalkCase{.name = "ARootThatIsNotThere", .path = "/f", .error = ENOENT, .root = "none"},
        WalkCase{.name = "ARootThatIsAFile", .path = "/", .error = ENOTDIR, .root = "f"}),
    [](const auto& of) { return of.param.name; });

TEST(PathWalkTest, LeavesTheCurrentDirectoryByARelativePath) {
  const TemporaryTree tree;
  tree.Write("f", "above");
  tree.Directory("d");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(tree.Path("d"));
  const WalkedPath walked = WalkPath("/", "../f");
  std::filesystem::current_path(before);
  EXPECT_EQ(walked.error, 0);
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

TEST(PathWalkTest, EndsWhereItIsToldTo) {
  const TemporaryTree tree;
  tree.Write("d/f", "text");
  std::vector<std::string> asked;
  const WalkedPath walked =
      WalkPath(tree.root(), "/d/f", [&](const OwnedFd&, const std::string& name) {
        asked.push_back(name);
        return false;
      });
  EXPECT_EQ(walked.error, ECANCELED);
  EXPECT_THAT(asked, ::testing::ElementsAre("d"));
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
TEST(PathWalkTest, SaysWhyALinkCannotBeRead) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(WalkPath("/", absl::StrCat("/proc/", child, "/exe")).error, ENOENT);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(PathWalkTest, HoldsNoDescriptorOfAWayThatAnAbsoluteLinkHasLeft) {
  const TemporaryTree tree;
  tree.Write("end", "text");
  tree.Link("a/b/c/link", "/end");
  std::vector<std::ptrdiff_t> held;
  WalkPath(tree.root(), "/a/b/c/link", [&](const OwnedFd&, const std::string&) {
    held.push_back(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
    return true;
  });
  ASSERT_EQ(held.size(), 5U);
  EXPECT_LT(held.front(), held[3]);
  EXPECT_EQ(held.back(), held.front());
}

}  // namespace
}  // namespace kipt::testing
