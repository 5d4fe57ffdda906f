// SPDX-License-Identifier: Apache-2.0
//
// Real network namespaces: of processes, and of names.
#include "agent/process/network_namespaces.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/background_program.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/private_run.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using agent::ListNetworkNamespaces;
using agent::NetworkNamespace;
using agent::NetworkNamespaces;

uint64_t InodeAt(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_ino;
}

std::vector<NetworkNamespace> Of(const NetworkNamespaces& list, uint64_t inode) {
  std::vector<NetworkNamespace> found;
  for (const NetworkNamespace& each : list.found) {
    if (each.inode == inode) found.push_back(each);
  }
  return found;
}

// In a mount namespace with a /run of the test's own.
class NetworkNamespacesKernelTest : public NetnsTest {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (!HasFatalFailure()) private_run_.emplace();
  }

  std::optional<PrivateRun> private_run_;
};

TEST_F(NetworkNamespacesKernelTest, NamesTheCallingThreadsOwnFirst) {
  const NetworkNamespaces list = ListNetworkNamespaces();
  ASSERT_FALSE(list.found.empty());
  EXPECT_TRUE(list.found.front().own);
  EXPECT_EQ(list.found.front().inode, InodeAt("/proc/thread-self/ns/net"));
  EXPECT_EQ(std::count_if(list.found.begin(), list.found.end(),
                          [](const NetworkNamespace& each) { return each.own; }),
            1);
  EXPECT_THAT(list.found.front().name, StartsWith(absl::StrCat("pid ", getpid(), " (")));
}

TEST_F(NetworkNamespacesKernelTest, FindsThatOfAProcessAndEntersIt) {
  const Netns other = NewNetns();
  std::optional<BackgroundProgram> program;
  {
    const InNetns inside(other);
    program.emplace(std::vector<std::string>{"sleep", "60"});
  }
  const std::vector<NetworkNamespace> found = Of(ListNetworkNamespaces(), InodeAt(other.Path()));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].name, HasSubstr("pid "));
  EXPECT_FALSE(found[0].own);
  EXPECT_THAT(agent::EnterNetworkNamespace(found[0].path), IsOk());
  EXPECT_EQ(InodeAt("/proc/thread-self/ns/net"), found[0].inode);
  EXPECT_TRUE(ListNetworkNamespaces().found.front().own);
  EXPECT_EQ(ListNetworkNamespaces().found.front().inode, found[0].inode);
}

TEST_F(NetworkNamespacesKernelTest, PrefersANameAndFindsWhatNoProcessIsIn) {
  const Netns named = NewNetns();
  ASSERT_EQ(mkdir("/run/netns", 0755), 0);
  std::ofstream("/run/netns/pod1").close();
  ASSERT_EQ(mount(named.Path().c_str(), "/run/netns/pod1", "none", MS_BIND, nullptr), 0);
  std::ofstream("/run/netns/stale").close();
  const NetworkNamespaces list = ListNetworkNamespaces();
  const std::vector<NetworkNamespace> found = Of(list, InodeAt("/run/netns/pod1"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "/run/netns/pod1");
  EXPECT_EQ(found[0].path, "/run/netns/pod1");
  EXPECT_THAT(list.problems, Contains(HasSubstr("/run/netns/stale")));
  EXPECT_EQ(umount("/run/netns/pod1"), 0);
}

}  // namespace
}  // namespace kipt::testing
