// SPDX-License-Identifier: Apache-2.0
//
// The node, and streams of packets through it.
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
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/process/files.h"
#include "tests/skew/probes/packets.h"
#include "tests/skew/probes/stream.h"
#include "tests/skew/selftest/node_fixture.h"
#include "tests/support/background_program.h"
#include "tests/support/child.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using testing::InNetns;
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

// ---- streams ----

constexpr int kPerSecond = 500;

class StreamTest : public NodeTest {
 protected:
  void Start(const std::vector<Probe>& probes, int per_second = kPerSecond) {
    absl::StatusOr<std::unique_ptr<Streams>> streams = Streams::Start(*node_, probes,
                                                                      {{Place::kPodA, {9000, 9001}},
                                                                       {Place::kRemotePod, {9000}},
                                                                       {Place::kNode, {9000}},
                                                                       {Place::kBeyond, {9000}}},
                                                                      per_second);
    ASSERT_TRUE(streams.ok()) << streams.status();
    streams_ = *std::move(streams);
  }

  static Probe To(const std::string& name, Place from, const std::string& address, IpFamily of,
                  int port = 9000) {
    return {.name = name,
            .family = of,
            .protocol = Protocol::kUdp,
            .from = from,
            .address = address,
            .port = port};
  }

  std::unique_ptr<Streams> streams_;
};

INSTANTIATE_TEST_SUITE_P(All, StreamTest, EveryModeAndFamily(), NameOfRow);

uint64_t Received(const StreamCount& count) {
  return count.served + count.served_masqueraded + count.reached_host + count.forwarded;
}

std::string Shown(const StreamCount& count) {
  return absl::StrCat(count.probe, ": sent ", count.sent, ", served ", count.served,
                      ", masqueraded ", count.served_masqueraded, ", reached host ",
                      count.reached_host, ", forwarded ", count.forwarded, ", longest gap ",
                      count.longest_gap);
}

TEST_P(StreamTest, CountsWhatBecameOfEveryPacket) {
  Load(absl::StrReplaceAll(
      "*nat\n-A POSTROUTING -s CLIENT -d POD -j MASQUERADE --random-fully\nCOMMIT\n",
      {{"CLIENT", AddressOf(Place::kAllowedClient, family())},
       {"POD", AddressOf(Place::kPodA, family())}}));
  const std::string pod = AddressOf(Place::kPodA, family());
  Start({To("served", Place::kRefusedClient, pod, family()),
         To("of the node", Place::kNode, pod, family()),
         To("masqueraded", Place::kAllowedClient, pod, family()),
         To("host", Place::kRefusedClient, BoundVip(family()), family()),
         To("forwarded", Place::kRefusedClient, RoutedVip(family()), family()),
         To("nobody", Place::kRefusedClient, pod, family(), 9999)});
  for (int i = 0; i < 2; ++i) {
    absl::SleepFor(absl::Milliseconds(400));
    const std::vector<StreamCount> counts = streams_->Take();
    ASSERT_EQ(counts.size(), 6U);
    for (const StreamCount& count : counts) {
      SCOPED_TRACE(Shown(count));
      EXPECT_GT(count.sent, 50U);
      EXPECT_LT(count.sent, 1000U);
      const bool served = count.probe == "served" || count.probe == "of the node";
      EXPECT_EQ(count.served, served ? count.sent : 0);
      EXPECT_EQ(count.served_masqueraded, count.probe == "masqueraded" ? count.sent : 0);
      EXPECT_EQ(count.reached_host, count.probe == "host" ? count.sent : 0);
      EXPECT_EQ(count.forwarded, count.probe == "forwarded" ? count.sent : 0);
      EXPECT_EQ(count.longest_gap, served || count.probe == "masqueraded" ? 0 : count.sent);
    }
  }
}

TEST_P(StreamTest, CountsWhatIsLostWhileARuleStands) {
  Start(
      {To("pod", Place::kRefusedClient, AddressOf(Place::kPodA, family()), family()),
       To("other port", Place::kRefusedClient, AddressOf(Place::kPodA, family()), family(), 9001)});
  absl::SleepFor(absl::Milliseconds(200));
  const StreamCount before = streams_->Take()[0];
  EXPECT_EQ(before.served, before.sent) << Shown(before);
  Load("*filter\n-A FORWARD -p udp --dport 9000 -j DROP\nCOMMIT\n");
  absl::SleepFor(absl::Milliseconds(200));
  Load("*filter\n-F FORWARD\nCOMMIT\n");
  absl::SleepFor(absl::Milliseconds(200));
  const std::vector<StreamCount> counts = streams_->Take();
  EXPECT_GT(counts[0].longest_gap, 50U) << Shown(counts[0]);
  // One gap, and all of it.
  EXPECT_EQ(counts[0].longest_gap, counts[0].sent - counts[0].served) << Shown(counts[0]);
  EXPECT_GT(counts[0].served, 20U) << Shown(counts[0]);
  EXPECT_EQ(counts[1].served, counts[1].sent) << Shown(counts[1]);
  absl::SleepFor(absl::Milliseconds(100));
  const StreamCount after = streams_->Take()[0];
  EXPECT_EQ(after.served, after.sent) << Shown(after);
}

// A stream's dropped packets do not prove that a probe's was.
TEST_P(StreamTest, LendsItsDropsToNoProbe) {
  const std::string pod = AddressOf(Place::kPodA, family());
  Load(R"(*filter
-A FORWARD -p udp -j DROP
COMMIT
*raw
-A PREROUTING -p udp --dport 9100 -j DROP
COMMIT
)");
  absl::StatusOr<std::unique_ptr<Battery>> battery =
      Battery::Create(*node_, {{Place::kPodA, {9100, 9101}}});
  ASSERT_TRUE(battery.ok()) << battery.status();
  // So many that some are dropped between any two readings of the counters.
  Start({To("stream", Place::kRefusedClient, pod, family())}, /*per_second=*/8000);
  for (int i = 0; i < 5; ++i) {
    const absl::StatusOr<std::vector<ProbeResult>> results =
        (*battery)->Ask({To("by raw", Place::kRefusedClient, pod, family(), 9100),
                         To("by filter", Place::kRefusedClient, pod, family(), 9101)},
                        mode());
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_EQ((*results)[0].outcome, Outcome::kLost) << (*results)[0].dropped_by;
    EXPECT_EQ((*results)[1].outcome, Outcome::kDropped);
  }
  EXPECT_EQ(Received(streams_->Take()[0]), 0U);
}

TEST_P(StreamTest, CountsMartians) {
  Probe martian = To("martian", Place::kRefusedClient, "127.0.0.1", IpFamily::kIpv4);
  martian.kind = ProbeKind::kMartian;
  Start({martian});
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_EQ(Received(streams_->Take()[0]), 0U);
  SetRouteLocalnet();
  streams_->Take();
  absl::SleepFor(absl::Milliseconds(100));
  const StreamCount open = streams_->Take()[0];
  EXPECT_GT(open.sent, 20U);
  EXPECT_EQ(open.reached_host, open.sent) << Shown(open);
  Load("*filter\n-A INPUT -d 127.0.0.0/8 -j DROP\nCOMMIT\n", IpFamily::kIpv4);
  streams_->Take();
  absl::SleepFor(absl::Milliseconds(100));
  const StreamCount shut = streams_->Take()[0];
  EXPECT_GT(shut.sent, 20U);
  EXPECT_EQ(Received(shut), 0U) << Shown(shut);
}

}  // namespace
}  // namespace kipt::skew
