// SPDX-License-Identifier: Apache-2.0
//
// What a monitor of nf_tables keeps of each commit, and which commits are ours.
#include "netlink/nft_monitor.h"

#include <fcntl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/config.h"
#include "netlink/backend.h"
#include "tests/fuzz/scripted_kernel.h"
#include "tests/netlink/kernel_script.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink::nft_monitor_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary
using Code = absl::StatusCode;

TEST(RecordTest, KeepsOfEachWriterItsFirstAndItsLastCommit) {
  RulesetChanges changes;
  for (uint32_t generation = 7; generation < 10; ++generation) {
    Record({.generation = generation, .pid = 42, .command = "nft"}, changes);
  }
  Record({.generation = 10, .pid = 43, .command = "nft"}, changes);
  Record({.generation = 11, .pid = 42, .command = "iptables"}, changes);
  EXPECT_EQ(changes.count, 5U);
  EXPECT_EQ(changes.others, 0U);
  ASSERT_THAT(changes.writers, SizeIs(3));
  EXPECT_EQ(changes.writers[0].first_generation, 7U);
  EXPECT_EQ(changes.writers[0].generation, 9U);
}

TEST(RecordTest, CountsTheWritersThatAreTooMany) {
  RulesetChanges changes;
  for (uint32_t i = 0; i < RulesetChanges::kMaxWriters + 2; ++i) {
    Record({.generation = 7 + i, .pid = 100 + i, .command = "nft"}, changes);
  }
  EXPECT_THAT(changes.writers, SizeIs(RulesetChanges::kMaxWriters));
  EXPECT_EQ(changes.others, 2U);
}

TEST(OwnCommitsTest, ExplainOnlyWhatIsOursFromBeginningToEnd) {
  OwnCommits own;
  EXPECT_FALSE(own.Explain(7, 8));
  own.Add(7);
  own.Add(8);
  EXPECT_TRUE(own.Explain(7, 9));
  EXPECT_TRUE(own.Explain(8, 9));
  EXPECT_FALSE(own.Explain(6, 9)) << "another's came before";
  EXPECT_FALSE(own.Explain(7, 8)) << "it has moved on";
  EXPECT_FALSE(own.Explain(7, 10)) << "another's came after";
  own.Add(12);
  EXPECT_TRUE(own.Explain(12, 13));
  EXPECT_FALSE(own.Explain(7, 13));
  // The kernel leaves 0 out.
  own.Add(UINT32_MAX);
  own.Add(1);
  EXPECT_TRUE(own.Explain(UINT32_MAX, 2));
}

FailingCall Option(uint32_t option) {
  return {.number = SYS_setsockopt, .argument = 2, .value = option, .error = EPERM};
}

constexpr uint32_t kOwnPort = 4711;

Bytes Event(const Bytes& attributes) { return NftMessage(NFT_MSG_NEWGEN, 0, 0, attributes); }

Bytes EventOf(uint32_t generation, uint32_t pid, const std::string& command) {
  return Event(Join({Attr(NFTA_GEN_ID, generation), Attr(NFTA_GEN_PROC_PID, pid),
                     Attr(NFTA_GEN_PROC_NAME, Text(command))}));
}

Bytes OurOwn(Bytes event) {
  const Bytes port = HostU32(kOwnPort);
  std::copy(port.begin(), port.end(), event.begin() + offsetof(nlmsghdr, nlmsg_pid));
  return event;
}

class EventMonitorTest : public ::testing::Test {
 protected:
  std::unique_ptr<Monitor> Watch() {
    auto monitor = socket_->Watch(kOwnPort);
    EXPECT_THAT(monitor, IsOk());
    return monitor.ok() ? *std::move(monitor) : nullptr;
  }
  std::unique_ptr<EventSocket> socket_ = *EventSocket::Open();
};

struct EventRow {
  std::string name;
  std::vector<Frame> frames;
  RulesetChanges changes;
};

RulesetChanges OneBy(uint32_t pid, const std::string& command) {
  return {.count = 1,
          .writers = {{.generation = 8, .first_generation = 8, .pid = pid, .command = command}}};
}

TEST_F(EventMonitorTest, NamesTheWriterOfACommit) {
  const Bytes nft = EventOf(8, 42, "nft");
  const Bytes generation = Attr(NFTA_GEN_ID, 8);
  const RulesetChanges unknown = {.count = 1, .others = 1};
  RulesetChanges many = OneBy(42, "nft");
  many.count = Receiver::kAtOnce + 1;
  const EventRow rows[] = {
      {"nothing", {}, {}},
      {"a commit", Sent(nft), OneBy(42, "nft")},
      {"our own", Sent(OurOwn(nft)), {}},
      {"ours and another's in one datagram", Sent(Join({OurOwn(nft), nft})), OneBy(42, "nft")},
      {"no event of a commit", Sent(ChainMessage("TEST")), {}},
      {"without a writer", Sent(Event(generation)), unknown},
      {"without a generation", Sent(Event(Attr(NFTA_GEN_PROC_PID, 42))), unknown},
      {"without a name", Sent(Event(Join({generation, Attr(NFTA_GEN_PROC_PID, 42)}))),
       OneBy(42, "")},
      {"without a process", Sent(Event(Join({generation, Attr(NFTA_GEN_PROC_NAME, Text("nft"))}))),
       OneBy(0, "nft")},
      {"more than one call receives", std::vector<Frame>(Receiver::kAtOnce + 1, FromKernel(nft)),
       many},
  };
  for (const EventRow& row : rows) {
    const ScriptedKernel kernel(row.frames);
    const absl::StatusOr<RulesetChanges> changes = Watch()->Drain();
    ASSERT_THAT(changes, IsOk()) << row.name;
    EXPECT_EQ(*changes, row.changes) << row.name;
  }
}

TEST_F(EventMonitorTest, StopsWhereTheQueueIsEmptyAndAnErrorIsItsOwn) {
  const ScriptedKernel kernel({Fails(ENOMEM), Fails(EAGAIN), FromKernel(EventOf(8, 42, "nft"))});
  const auto monitor = Watch();
  EXPECT_THAT(monitor->Drain().status(), StatusIs(Code::kResourceExhausted));
  EXPECT_EQ(monitor->Drain().value().count, 0U);
  EXPECT_EQ(monitor->Drain().value().count, 1U);
}

TEST_F(EventMonitorTest, OnlyTheNewestHasTheSocket) {
  const ScriptedKernel kernel(Sent(EventOf(8, 42, "nft")));
  auto older = Watch();
  const auto newer = Watch();
  EXPECT_THAT(older->Drain().status(), StatusIs(Code::kFailedPrecondition));
  older.reset();
  EXPECT_EQ(newer->Drain().value().count, 1U);
  WithFailingCall(Option(SO_ATTACH_FILTER),
                  [&] { EXPECT_THAT(socket_->Watch(kOwnPort).status(), Not(IsOk())); });
  EXPECT_THAT(newer->Drain().status(), StatusIs(Code::kFailedPrecondition)) << "nor has it then";
}

// A sanitizer maps such memory for itself.
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
TEST_F(EventMonitorTest, WithoutMemoryForEventsThereIsNone) {
  WithFailingCall({.number = SYS_mmap, .argument = 1, .value = 16 * 256, .error = ENOMEM}, [&] {
    EXPECT_THAT(socket_->Watch(kOwnPort).status(),
                StatusIs(Code::kResourceExhausted, HasSubstr("receive buffer")));
  });
}
#endif

TEST_F(EventMonitorTest, AnOptionThatIsRefusedIsAnError) {
  for (const uint32_t option : {uint32_t{SO_ATTACH_FILTER}, uint32_t{NETLINK_NO_ENOBUFS},
                                uint32_t{NETLINK_ADD_MEMBERSHIP}}) {
    WithFailingCall(Option(option),
                    [&] { EXPECT_THAT(socket_->Watch(1).status(), Not(IsOk())) << option; });
  }
}

TEST(NftBackendOpenTest, WithoutASocketThereIsNoBackend) {
  const FailingCall no_socket = {
      .number = SYS_socket, .argument = 2, .value = NETLINK_NETFILTER, .error = EPROTONOSUPPORT};
  WithFailingCall(no_socket, [&] {
    EXPECT_THAT(NewNftBackend().status(), Not(IsOk()));
    EXPECT_THAT(EventSocket::Open().status(), Not(IsOk()));
  });
  const FailingCall no_events = {.number = SYS_socket,
                                 .argument = 1,
                                 .value = SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
                                 .error = EMFILE};
  WithFailingCall(no_events, [&] { EXPECT_THAT(NewNftBackend().status(), Not(IsOk())); });
}

TEST(PollMonitorTest, ATimerThatFailsIsAnError) {
  const OwnCommits own;
  const auto read = [] { return absl::StatusOr<uint32_t>(7); };
  WithFailingCall(
      {.number = SYS_timerfd_create, .argument = 0, .value = CLOCK_MONOTONIC, .error = EMFILE},
      [&] {
        EXPECT_THAT(NewPollMonitor(read, own),
                    StatusIs(Code::kResourceExhausted, HasSubstr("making a timer")));
      });
  WithFailingCall({.number = SYS_timerfd_settime, .argument = 1, .value = 0, .error = EINVAL},
                  [&] { EXPECT_THAT(NewPollMonitor(read, own).status(), Not(IsOk())); });
  EXPECT_THAT(
      NewPollMonitor([] { return absl::StatusOr<uint32_t>(absl::InternalError("no")); }, own)
          .status(),
      Not(IsOk()));
}

TEST(PollMonitorTest, CountsEachGenerationThatIsNotOurs) {
  OwnCommits own;
  uint32_t now = 7;
  bool fails = false;
  const auto monitor = NewPollMonitor(
      [&]() -> absl::StatusOr<uint32_t> {
        if (fails) return absl::InternalError("no");
        return now;
      },
      own);
  ASSERT_THAT(monitor, IsOk());
  const auto count = [&] {
    const auto changes = (*monitor)->Drain();
    EXPECT_THAT(changes, IsOk());
    return changes.ok() ? changes->count : 99;
  };
  EXPECT_EQ(count(), 0U);
  now = 8;
  EXPECT_EQ(count(), 1U);
  EXPECT_EQ(count(), 0U);
  own.Add(8);
  now = 9;
  EXPECT_EQ(count(), 0U);
  fails = true;
  EXPECT_THAT((*monitor)->Drain().status(), Not(IsOk()));
}

TEST(PollMonitorTest, ItsTimerFiresTenTimesASecond) {
  const OwnCommits own;
  const auto monitor = NewPollMonitor([] { return absl::StatusOr<uint32_t>(7); }, own);
  ASSERT_THAT(monitor, IsOk());
  EXPECT_EQ(fcntl((*monitor)->fd(), F_GETFD), FD_CLOEXEC);
  itimerspec period = {};
  ASSERT_EQ(timerfd_gettime((*monitor)->fd(), &period), 0);
  EXPECT_EQ(period.it_interval.tv_sec, 0);
  EXPECT_EQ(period.it_interval.tv_nsec, 100'000'000);
}

}  // namespace
}  // namespace kipt::netlink::nft_monitor_test
