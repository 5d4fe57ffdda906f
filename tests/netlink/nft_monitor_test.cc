// SPDX-License-Identifier: Apache-2.0
//
// What a monitor of nf_tables keeps of each commit, and which commits are ours.
#include "netlink/nft_monitor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "netlink/backend.h"
#include "tests/support/failing_call.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink {
namespace {

using ::kipt::testing::FailingCall;
using ::kipt::testing::IsOk;
using ::kipt::testing::WithFailingCall;
using ::testing::Not;
using ::testing::SizeIs;

struct RecordRow {
  std::string name;
  RulesetChange change;
  bool has_writer = false;
};
const RecordRow kRecordRows[] = {
    {"nothing is known", {}},
    {"no generation", {.generation = 0, .pid = 42, .command = "nft"}},
    {"no writer", {.generation = 7, .pid = 0, .command = ""}},
    {"a writer", {.generation = 7, .pid = 42, .command = "nft"}, true},
    {"a process without a name", {.generation = 7, .pid = 42, .command = ""}, true},
    {"a name without a process", {.generation = 7, .pid = 0, .command = "nft"}, true},
};

TEST(RecordTest, KeepsTheWriterWhereItIsKnown) {
  for (const RecordRow& row : kRecordRows) {
    RulesetChanges changes;
    Record(row.change, changes);
    EXPECT_EQ(changes.count, 1U) << row.name;
    EXPECT_EQ(changes.others, row.has_writer ? 0U : 1U) << row.name;
    EXPECT_THAT(changes.writers, SizeIs(row.has_writer ? 1 : 0)) << row.name;
  }
}

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
  EXPECT_FALSE(own.Explain(6, 9)) << "somebody else's came before";
  EXPECT_FALSE(own.Explain(7, 8)) << "it has moved on";
  EXPECT_FALSE(own.Explain(7, 10)) << "somebody else's came after";
  own.Add(12);
  EXPECT_TRUE(own.Explain(12, 13));
  EXPECT_FALSE(own.Explain(7, 13));
  // The kernel leaves 0 out.
  own.Add(UINT32_MAX);
  own.Add(1);
  EXPECT_TRUE(own.Explain(UINT32_MAX, 2));
}

// ---- calls that fail ----

FailingCall Option(uint32_t option) {
  return {.number = SYS_setsockopt, .argument = 2, .value = option, .error = EPERM};
}

TEST(EventSocketTest, AnOptionThatIsRefusedIsAnError) {
  for (const uint32_t option : {uint32_t{SO_ATTACH_FILTER}, uint32_t{NETLINK_NO_ENOBUFS},
                                uint32_t{NETLINK_ADD_MEMBERSHIP}}) {
    WithFailingCall(Option(option), [&] {
      const auto socket = EventSocket::Open();
      ASSERT_THAT(socket, IsOk());
      EXPECT_THAT((*socket)->Watch(1).status(), Not(IsOk())) << option;
    });
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
      [&] { EXPECT_THAT(NewPollMonitor(read, own).status(), Not(IsOk())); });
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

TEST(PollMonitorTest, ItsTimerIsItsOwnAndIsClosedWithIt) {
  const OwnCommits own;
  int timer = -1;
  {
    const auto monitor = NewPollMonitor([] { return absl::StatusOr<uint32_t>(7); }, own);
    ASSERT_THAT(monitor, IsOk());
    timer = (*monitor)->fd();
    EXPECT_EQ(fcntl(timer, F_GETFD), FD_CLOEXEC);
    EXPECT_NE(fcntl(timer, F_GETFL) & O_NONBLOCK, 0);
    const int no_timer = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(dup2(no_timer, timer), timer);
    close(no_timer);
    EXPECT_THAT((*monitor)->Drain().status(), Not(IsOk())) << "it cannot be read";
  }
  EXPECT_EQ(fcntl(timer, F_GETFD), -1);
}

}  // namespace
}  // namespace kipt::netlink
