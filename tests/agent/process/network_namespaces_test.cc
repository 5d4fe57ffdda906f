// SPDX-License-Identifier: Apache-2.0
//
// The list of network namespaces from a /proc of files, in which inodes represent namespaces.
// EveryCommandTest has real ones.
#include "agent/process/network_namespaces.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing::network_namespaces_test {
namespace {

using namespace ::kipt::agent;  // NOLINT(google-build-using-namespace): its vocabulary

class NetworkNamespacesTest : public ::testing::Test {
 protected:
  void SetUp() override { tree_.Write("own", ""); }

  uint64_t Inode(const std::string& name) const {
    struct stat status = {};
    EXPECT_EQ(stat(tree_.Path(name).c_str(), &status), 0) << name;
    return status.st_ino;
  }
  // A process in the namespace that the file `netns` represents.
  void Process(const std::string& pid, const std::string& command, const std::string& netns) const {
    tree_.Write("proc/" + pid + "/comm", command + "\n");
    tree_.Directory("proc/" + pid + "/ns");
    if (access(tree_.Path(netns).c_str(), F_OK) != 0) tree_.Write(netns, "");
    ASSERT_EQ(link(tree_.Path(netns).c_str(), tree_.Path("proc/" + pid + "/ns/net").c_str()), 0);
  }
  NetworkNamespaces List() const {
    return ListNetworkNamespaces(
        {.proc = tree_.Path("proc"), .names = tree_.Path("names"), .own = tree_.Path("own")});
  }

  TemporaryTree tree_;
};

TEST_F(NetworkNamespacesTest, ListsEachOnceByItsFirstProcess) {
  Process("10", "init", "own");
  Process("9", "nginx", "a");
  Process("100", "worker", "a");
  Process("20", "redis", "b");
  tree_.Write("proc/meminfo", "");
  tree_.Directory("proc/self");
  const NetworkNamespaces list = List();
  EXPECT_THAT(
      list.found,
      ElementsAre(
          NetworkNamespace{Inode("own"), "pid 10 (init)", tree_.Path("own"), true},
          NetworkNamespace{Inode("a"), "pid 9 (nginx)", tree_.Path("proc/9/ns/net"), false},
          NetworkNamespace{Inode("b"), "pid 20 (redis)", tree_.Path("proc/20/ns/net"), false}));
  EXPECT_THAT(list.problems, IsEmpty());
}

TEST_F(NetworkNamespacesTest, LeavesOutProcessesThatEnd) {
  tree_.Write("proc/7/comm", "gone\n");
  EXPECT_THAT(List().found,
              ElementsAre(NetworkNamespace{Inode("own"), "", tree_.Path("own"), true}));
  EXPECT_THAT(List().problems, IsEmpty());
}

TEST_F(NetworkNamespacesTest, ReportsWhatItCannotRead) {
  Process("10", "init", "own");
  tree_.Link("proc/11/ns/net", "net");
  tree_.Link("proc/12/ns/net", "net");
  tree_.Write("names/stale", "");
  ASSERT_EQ(mkfifo(tree_.Path("names/fifo").c_str(), 0600), 0);
  EXPECT_THAT(List().problems, ElementsAre(HasSubstr("names/fifo is no network namespace"),
                                           HasSubstr("names/stale is no network namespace"),
                                           HasSubstr("of 2 processes cannot be seen")));
  EXPECT_THAT(
      ListNetworkNamespaces(
          {.proc = tree_.Path("none"), .names = tree_.Path("own"), .own = tree_.Path("none")})
          .problems,
      ElementsAre(HasSubstr("cannot read"), HasSubstr("cannot list"), HasSubstr("cannot list")));
}

}  // namespace
}  // namespace kipt::testing::network_namespaces_test
