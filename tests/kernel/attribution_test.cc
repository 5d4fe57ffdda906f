// SPDX-License-Identifier: Apache-2.0
//
// From an event of nf_tables to the program that an administrator has to look at.
#include <fcntl.h>
#include <poll.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/loop/writer.h"
#include "agent/loop/writer_watch.h"
#include "netlink/backend.h"
#include "tests/kernel/nft_fixture.h"
#include "tests/support/child.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using netlink::Monitor;
using netlink::RulesetChanges;

class AttributionTest : public NftBackendTest {
 protected:
  void SetUp() override {
    NftBackendTest::SetUp();
    if (HasFatalFailure()) return;
    auto monitor = backend_->Watch(netlink::WatchMode::kEvents);
    ASSERT_THAT(monitor, IsOk());
    monitor_ = *std::move(monitor);
  }
  // The monitor before its backend.
  void TearDown() override { monitor_.reset(); }

  bool IsReadableSoon() const {
    pollfd file = {.fd = monitor_->fd(), .events = POLLIN, .revents = 0};
    return poll(&file, 1, 30'000) == 1;
  }

  RulesetChanges Drain() {
    absl::StatusOr<RulesetChanges> changes = monitor_->Drain();
    EXPECT_THAT(changes, IsOk());
    return changes.ok() ? *std::move(changes) : RulesetChanges();
  }

  std::unique_ptr<Monitor> monitor_;
};

// A shell that waits for its standard input to end.
class Child {
 public:
  explicit Child(const std::string& line) {
    std::array<int, 2> ends = {};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    input_ = ends[1];
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      DieWithParent(parent);
      dup2(ends[0], STDIN_FILENO);
      execlp("sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    close(ends[0]);
  }
  ~Child() {
    Close();
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Say(const std::string& text) const {
    EXPECT_EQ(write(input_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void Close() {
    if (input_ >= 0) close(std::exchange(input_, -1));
  }
  uint32_t pid() const { return static_cast<uint32_t>(pid_); }

 private:
  int input_ = -1;
  pid_t pid_ = -1;
};

TEST_F(AttributionTest, LeadsToTheProgramThatRanIptablesRestore) {
  // Commits at the last line, and waits for more.
  Child manager("iptables-nft-restore --noflush; true");
  manager.Say("*filter\n:WATCHED - [0:0]\nCOMMIT\n");
  ASSERT_TRUE(IsReadableSoon());
  const RulesetChanges changes = Drain();
  ASSERT_THAT(changes.writers, SizeIs(1));
  const agent::Writer writer = agent::IdentifyWriter(changes.writers[0]);
  EXPECT_EQ(writer.command, "iptables-nft-re");
  EXPECT_EQ(writer.command_line, "iptables-nft-restore --noflush");
  EXPECT_EQ(writer.parent_command, "sh");
  EXPECT_EQ(writer.parent_pid, manager.pid());
  EXPECT_NE(writer.pid, writer.parent_pid);
}

// Such a command ends some 100 us behind its commit: often it is a zombie by the time this thread
// gets a CPU, without arguments, and sometimes it is gone.
TEST_F(AttributionTest, IsRightAboutAShortCommandOrSaysNothing) {
  bool caught = false;
  for (int i = 0; i < 300 && !caught; ++i) {
    const std::string chain = absl::StrCat("WATCHED", i);
    const Child child(absl::StrCat("iptables-nft -N ", chain, "; true"));
    ASSERT_TRUE(IsReadableSoon());
    const RulesetChanges changes = Drain();
    ASSERT_THAT(changes.writers, SizeIs(1));
    const agent::Writer writer = agent::IdentifyWriter(changes.writers[0]);
    EXPECT_EQ(writer.command, "iptables-nft");
    EXPECT_THAT(writer.command_line, AnyOf("", absl::StrCat("iptables-nft -N ", chain)));
    EXPECT_THAT(writer.parent_pid, AnyOf(0U, child.pid()));
    EXPECT_THAT(writer.parent_command, AnyOf("", "sh"));
    caught = !writer.command_line.empty() && !writer.parent_command.empty();
  }
  EXPECT_TRUE(caught);
}

}  // namespace
}  // namespace kipt::testing
