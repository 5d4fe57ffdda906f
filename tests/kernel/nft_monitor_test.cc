// SPDX-License-Identifier: Apache-2.0
//
// Other writers to nf_tables: the programs of an administrator, another backend, another namespace.
#include <linux/sock_diag.h>
#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "absl/strings/numbers.h"
#include "tests/kernel/nft_fixture.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

const ChainId kChain{Family::kIPv4, Table::kFilter, "WATCHED"};

bool IsReadable(const Monitor& monitor) {
  pollfd file = {.fd = monitor.fd(), .events = POLLIN, .revents = 0};
  return poll(&file, 1, 0) == 1;
}

class NftMonitorTest : public NftBackendTest {
 protected:
  void SetUp() override {
    NftBackendTest::SetUp();
    if (HasFatalFailure()) return;
    auto other = netlink::NewNftBackend();
    ASSERT_THAT(other, IsOk());
    other_ = *std::move(other);
  }

  std::unique_ptr<Monitor> Watch(WatchMode mode = WatchMode::kEvents) {
    auto monitor = backend_->Watch(mode);
    EXPECT_THAT(monitor, IsOk());
    return monitor.ok() ? *std::move(monitor) : nullptr;
  }

  static RulesetChanges Drain(Monitor& monitor) {
    absl::StatusOr<RulesetChanges> changes = monitor.Drain();
    EXPECT_THAT(changes, IsOk());
    return changes.ok() ? *std::move(changes) : RulesetChanges();
  }

  // The other backend makes and removes one chain, as fast as possible.
  void CommitOtherwise(int times) {
    uint32_t generation = other_->Read({})->generation;
    for (int i = 0; i < times; ++i, ++generation) {
      const Operation operation =
          i % 2 == 0 ? Operation(CreateChain{kChain}) : Operation(DeleteChain{kChain});
      ASSERT_THAT(other_->Apply(Transaction{.generation = generation, .operations = {operation}}),
                  IsOk());
    }
  }

  std::unique_ptr<Backend> other_;
};

TEST_F(NftMonitorTest, NamesNftAndIptablesNftWithTheirProcessAndGeneration) {
  const std::unique_ptr<Monitor> monitor = Watch();
  const std::pair<const char*, const char*> programs[] = {
      {"nft", "nft add table ip watched"},
      {"iptables-nft", "iptables-nft -N WATCHED"},
      {"ip6tables-nft", "ip6tables-nft -N WATCHED"},
  };
  for (const auto& [command, line] : programs) {
    EXPECT_FALSE(IsReadable(*monitor));
    const ProgramResult result = Shell(absl::StrCat("echo $$; exec ", line));
    ASSERT_EQ(result.exit_code, 0) << result;
    uint32_t pid = 0;
    ASSERT_TRUE(absl::SimpleAtoi(result.out, &pid)) << result;
    EXPECT_TRUE(IsReadable(*monitor));
    const RulesetChanges changes = Drain(*monitor);
    EXPECT_EQ(changes, (RulesetChanges{.count = 1,
                                       .writers = {RulesetChange{
                                           .generation = Read({}).generation,
                                           .first_generation = Read({}).generation,
                                           .pid = pid,
                                           .command = command,
                                       }}}))
        << command;
  }
}

TEST_F(NftMonitorTest, HearsOneEventOfATransactionOfThousandsOfRules) {
  const std::unique_ptr<Monitor> monitor = Watch();
  std::string rules = "*filter\n:WATCHED - [0:0]\n";
  for (int i = 0; i < 5000; ++i) {
    absl::StrAppend(&rules, "-A WATCHED -s 10.0.", i / 256, ".", i % 256, " -j DROP\n");
  }
  MustRun({"iptables-nft-restore"}, rules + "COMMIT\n");
  std::array<uint32_t, SK_MEMINFO_VARS> queued = {};
  socklen_t size = sizeof(queued);
  ASSERT_EQ(getsockopt(monitor->fd(), SOL_SOCKET, SO_MEMINFO, queued.data(), &size), 0);
  EXPECT_LE(queued[SK_MEMINFO_RMEM_ALLOC], 2048) << "rules are in the queue";
  const RulesetChanges changes = Drain(*monitor);
  EXPECT_EQ(changes.count, 1);
  EXPECT_THAT(changes.writers, SizeIs(1));
  EXPECT_EQ(changes.lost, 0) << "what the filter leaves out is not lost";
}

TEST_F(NftMonitorTest, CountsLostEventsAndContinues) {
  constexpr int kCommits = 5000;  // about twice what the buffer holds
  const std::unique_ptr<Monitor> monitor = Watch();
  CommitOtherwise(kCommits);
  const RulesetChanges changes = Drain(*monitor);
  EXPECT_GT(changes.lost, 0);
  EXPECT_GE(changes.count, 1000) << "the receive buffer is not what it should be";
  EXPECT_EQ(changes.count + changes.lost, kCommits);
  EXPECT_FALSE(IsReadable(*monitor));
  CommitOtherwise(2);
  const RulesetChanges next = Drain(*monitor);
  EXPECT_EQ(next.count, 2);
  EXPECT_EQ(next.lost, 0);
}

TEST_F(NftMonitorTest, StaysInTheNamespaceOfItsBackendWhereverItIsMade) {
  const Netns elsewhere = NewNetns();
  for (const WatchMode mode : {WatchMode::kEvents, WatchMode::kPoll}) {
    std::unique_ptr<Monitor> monitor;
    {
      const InNetns inside(elsewhere);
      monitor = Watch(mode);
      ASSERT_NE(monitor, nullptr);
      MustRun({"nft", "add", "table", "ip", absl::StrCat("watched", static_cast<int>(mode))});
    }
    EXPECT_EQ(Drain(*monitor).count, 0);
    CommitOtherwise(2);
    EXPECT_GT(Drain(*monitor).count, 0);
  }
}

TEST_F(NftMonitorTest, KnowsAWriterOfAnotherPidNamespaceByOurPid) {
  const std::unique_ptr<Monitor> monitor = Watch();
  // /proc is still ours: what it calls self is our ID.
  const ProgramResult result =
      RunProgram({"unshare", "--pid", "--fork", "sh", "-c",
                  "read pid rest </proc/self/stat; echo $$ $pid; exec nft add table ip watched"});
  ASSERT_EQ(result.exit_code, 0) << result;
  const RulesetChanges changes = Drain(*monitor);
  ASSERT_THAT(changes.writers, SizeIs(1));
  EXPECT_EQ(absl::StrCat("1 ", changes.writers[0].pid, "\n"), result.out);
}

TEST_F(NftMonitorTest, AsksNothingOfOtherWritersOnceItIsGone) {
  const std::unique_ptr<Monitor> first = Watch();
  const int fd = first->fd();
  {
    const std::unique_ptr<Monitor> second = Watch();
    EXPECT_THAT(first->Drain(), StatusIs(absl::StatusCode::kFailedPrecondition));
    CommitOtherwise(1);
    EXPECT_EQ(Drain(*second).count, 1);
    CommitOtherwise(1);
  }
  CommitOtherwise(1);
  pollfd file = {.fd = fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&file, 1, 0), 0) << "still in the group, or its events still in the queue";
  const std::unique_ptr<Monitor> third = Watch();
  EXPECT_EQ(Drain(*third), RulesetChanges()) << "from before it";
  CommitOtherwise(1);
  EXPECT_EQ(Drain(*third).count, 1);
}

// Distinguishing our commits depends on this.
TEST_F(NftMonitorTest, EveryTransactionThatSucceedsLeadsToTheNextGeneration) {
  const ChainId base{Family::kIPv4, Table::kFilter, "INPUT"};
  const auto expect_next = [&](const char* what, const std::vector<Operation>& operations) {
    const uint32_t generation = Read({}).generation;
    EXPECT_THAT(Apply(operations), IsOk()) << what;
    EXPECT_EQ(Read({}).generation, generation + 1) << what;
  };
  expect_next("a chain", {CreateChain{kChain}});
  expect_next("a chain that exists", {CreateChain{kChain}});
  expect_next("a base chain", {CreateChain{base}});
  expect_next("a base chain that exists", {CreateChain{base}});
  expect_next("a rule", {Append(kChain, {.target = netlink::Drop{}})});
  const auto snapshot = Read({kChain});
  expect_next("no rule", {netlink::DeleteRule{.chain = kChain,
                                              .handle = snapshot.Find(kChain)->rules.at(0).handle,
                                              .rule = {}}});
  expect_next("no chain", {DeleteChain{kChain}});
}

}  // namespace
}  // namespace kipt::testing
