// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/node/test_node.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/process/files.h"
#include "tests/skew/probes/packets.h"
#include "tests/support/background_program.h"
#include "tests/support/child.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using testing::InNetns;
using testing::IpFamily;
using testing::RunProgram;

std::string Name(const ::testing::TestParamInfo<IpFamily>& info) {
  return info.param == IpFamily::kIpv6 ? "Ipv6" : "Ipv4";
}

class TestNodeTest : public testing::NetnsTest {
 protected:
  static std::unique_ptr<TestNode> MustCreate() {
    absl::StatusOr<std::unique_ptr<TestNode>> node = TestNode::Create();
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? *std::move(node) : nullptr;
  }

  // The names of the interfaces here.
  static std::vector<std::string> Interfaces() {
    std::vector<std::string> names;
    struct if_nameindex* all = if_nameindex();
    for (struct if_nameindex* one = all; one != nullptr && one->if_index != 0; ++one) {
      names.emplace_back(one->if_name);
    }
    if_freenameindex(all);
    return names;
  }

  // A pair of interfaces of which one is here, and is gone when that namespace is.
  static void WatchEndOf(const std::string& netns_path, const std::string& name) {
    const testing::ProgramResult made = RunProgram(
        {"ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", netns_path});
    ASSERT_EQ(made.exit_code, 0) << made;
    ASSERT_NE(if_nametoindex(name.c_str()), 0U);
  }
};

class TestNodeFamilyTest : public TestNodeTest, public ::testing::WithParamInterface<IpFamily> {};
INSTANTIATE_TEST_SUITE_P(Both, TestNodeFamilyTest,
                         ::testing::Values(IpFamily::kIpv4, IpFamily::kIpv6), Name);

// What a socket at `to` gets of one packet from `from`: the first that is sent there must come.
bool OnePacketComes(const TestNode& node, Place from, Place to, const std::string& address,
                    IpFamily family) {
  constexpr int kPort = 7;
  const auto open_at = [&](Place place) {
    const InNetns inside(node.At(place));
    return agent::OwnedFd(socket(DomainOf(family), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  };
  const agent::OwnedFd receiver = open_at(to);
  const agent::OwnedFd sender = open_at(from);
  const absl::StatusOr<SocketAddress> here = AddressAt(family, address, kPort);
  EXPECT_TRUE(here.ok()) << here.status();
  if (!here.ok() || bind(receiver.get(), here->get(), here->size) != 0 ||
      sendto(sender.get(), "?", 1, 0, here->get(), here->size) != 1) {
    ADD_FAILURE() << std::strerror(errno);
    return false;
  }
  pollfd waiting = {receiver.get(), POLLIN, 0};
  return poll(&waiting, 1, 2000) == 1;
}

TEST_P(TestNodeFamilyTest, LetsEveryPlaceReachEveryOtherAtOnce) {
  const IpFamily family = GetParam();
  const std::unique_ptr<TestNode> node = MustCreate();
  ASSERT_NE(node, nullptr);
  for (const Place from : kAllPlaces) {
    for (const Place to : kAllPlaces) {
      EXPECT_TRUE(OnePacketComes(*node, from, to, AddressOf(to, family), family))
          << NameOf(from) << " to " << NameOf(to);
    }
    EXPECT_TRUE(OnePacketComes(*node, from, Place::kNode, BoundVip(family), family))
        << NameOf(from) << " to the bound address";
    const Place beyond = Place::kBeyond;
    EXPECT_TRUE(OnePacketComes(*node, from, beyond, RoutedVip(family), family))
        << NameOf(from) << " to the routed address";
  }
}

TEST_F(TestNodeTest, LeavesNothingBehindWhenItsProcessIsKilled) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t parent = getpid();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    testing::DieWithParent(parent);
    const absl::StatusOr<std::unique_ptr<TestNode>> node = TestNode::Create();
    if (!node.ok()) _exit(1);
    std::string paths;
    for (const Place place : kAllPlaces) absl::StrAppend(&paths, (*node)->At(place).Path(), "\n");
    if (write(ready[1], paths.data(), paths.size()) < 0) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  char buffer[4096];
  const ssize_t size = read(ready[0], buffer, sizeof(buffer));
  close(ready[0]);
  EXPECT_GT(size, 0) << "the child made no node";
  const std::vector<std::string> paths = absl::StrSplit(
      std::string(buffer, size > 0 ? static_cast<size_t>(size) : 0), '\n', absl::SkipEmpty());
  EXPECT_EQ(paths.size(), std::size(kAllPlaces));
  for (size_t i = 0; i < paths.size(); ++i) WatchEndOf(paths[i], absl::StrCat("w", i));
  kill(child, SIGKILL);
  EXPECT_TRUE(testing::WaitUntil([] { return Interfaces() == std::vector<std::string>{"lo"}; }));
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace kipt::skew
