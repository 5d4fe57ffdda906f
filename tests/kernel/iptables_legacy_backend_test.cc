// SPDX-License-Identifier: Apache-2.0
//
// The legacy backend on the real iptables-legacy, with other programs beside it that use the same
// lock. Each test has a network namespace and a /run of its own: the machine's lock is never
// touched.
#include "agent/xtables/iptables_legacy_backend.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agent/process/command.h"
#include "tests/support/lock_holder.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/private_run.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using agent::CommandRequest;
using agent::CommandResult;
using netlink::AddRule;
using netlink::Backend;
using netlink::ChainId;
using netlink::CreateChain;
using netlink::Drop;
using netlink::Family;
using netlink::Rule;
using netlink::Snapshot;
using netlink::Table;
using netlink::Transaction;

constexpr char kLock[] = "/run/xtables.lock";
const ChainId kUser{Family::kIPv4, Table::kFilter, "USER"};
const ChainId kUser6{Family::kIPv6, Table::kFilter, "USER"};
const ChainId kNat{Family::kIPv4, Table::kNat, "NATUSER"};

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string TableNames() {
  return Contents("/proc/thread-self/net/ip_tables_names") + "/" +
         Contents("/proc/thread-self/net/ip6_tables_names");
}

// The names of the modules only: their use counts move with everything.
std::string Modules() {
  std::ifstream file("/proc/modules");
  std::string names;
  std::string name;
  for (std::string rest; file >> name && std::getline(file, rest);) names += name + "\n";
  return names;
}

// The real programs, and something else that happens just before each write.
class DisturbedRunner : public agent::CommandRunner {
 public:
  absl::StatusOr<CommandResult> Run(const CommandRequest& request) override {
    if (disturb && !request.input.empty()) disturb();
    return real_->Run(request);
  }
  std::function<void()> disturb;

 private:
  std::unique_ptr<agent::CommandRunner> real_ = agent::NewCommandRunner();
};

class LegacyBackendKernelTest : public NetnsTest {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (HasFatalFailure()) return;
    private_run_.emplace();
  }

  std::unique_ptr<Backend> Open(absl::Duration lock_wait = absl::Seconds(20)) {
    auto backend = agent::NewIptablesLegacyBackend(&runner_, {.lock_wait = lock_wait});
    EXPECT_THAT(backend, IsOk());
    return backend.ok() ? *std::move(backend) : nullptr;
  }

  static Snapshot Read(Backend& backend) {
    absl::StatusOr<Snapshot> snapshot =
        backend.Read({{.chain = kUser}, {.chain = kUser6}, {.chain = kNat}});
    EXPECT_THAT(snapshot, IsOk());
    return snapshot.ok() ? *std::move(snapshot) : Snapshot{};
  }
  static Transaction Adding(Backend& backend, const std::string& comment) {
    return {.generation = Read(backend).generation,
            .operations = {
                CreateChain{kUser},
                AddRule{.chain = kUser, .rule = Rule{.comment = comment, .target = Drop{}}}}};
  }

  DisturbedRunner runner_;

 private:
  std::optional<PrivateRun> private_run_;
};

TEST_F(LegacyBackendKernelTest, ReadingCreatesNoTableAndLoadsNoModule) {
  auto backend = Open();
  const std::string tables = TableNames();
  const std::string modules = Modules();
  EXPECT_THAT(Read(*backend).chains, IsEmpty());
  EXPECT_EQ(TableNames(), tables);
  ASSERT_EQ(RunProgram({"iptables-legacy", "-t", "mangle", "-N", "X"}).exit_code, 0);
  EXPECT_THAT(Read(*backend).chains, IsEmpty());
  EXPECT_EQ(TableNames(), "mangle\n/");
  EXPECT_EQ(Modules(), modules);
}

TEST_F(LegacyBackendKernelTest, StaysInItsThreadsNamespace) {
  auto here = Open();
  ASSERT_THAT(here->Apply(Adding(*here, "here")), IsOk());
  const std::string tables = TableNames();
  std::thread([&] {
    const absl::StatusOr<Netns> other = Netns::Create();
    ASSERT_THAT(other, IsOk());
    ASSERT_THAT(other->Enter(), IsOk());
    EXPECT_THAT(here->Read({}), StatusIs(absl::StatusCode::kFailedPrecondition));
    auto there = Open();
    EXPECT_THAT(Read(*there).chains, IsEmpty());
    EXPECT_EQ(TableNames(), "/");
    EXPECT_THAT(
        there->Apply({.generation = Read(*there).generation, .operations = {CreateChain{kNat}}}),
        IsOk());
    EXPECT_EQ(TableNames(), "nat\n/");
  }).join();
  EXPECT_EQ(TableNames(), tables);
  EXPECT_EQ(Read(*here).Find(kNat), nullptr);
}

// Both namespaces are empty: nothing but the check could tell that it is the wrong one.
TEST_F(LegacyBackendKernelTest, RefusesEverythingFromAThreadInAnotherNamespace) {
  auto here = Open();
  const Transaction transaction = Adding(*here, "here");
  std::thread([&] {
    const absl::StatusOr<Netns> other = Netns::Create();
    ASSERT_THAT(other, IsOk());
    ASSERT_THAT(other->Enter(), IsOk());
    const auto refused =
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another network namespace"));
    EXPECT_THAT(here->Apply(transaction), refused);
    EXPECT_EQ(TableNames(), "/");
    EXPECT_THAT(here->Read({}), refused);
    EXPECT_THAT(here->TakeSurvey(nullptr), refused);
    EXPECT_THAT(here->Watch(netlink::WatchMode::kEvents), refused);
  }).join();
  EXPECT_THAT(here->Apply(transaction), IsOk()) << "nothing was done";
}

TEST_F(LegacyBackendKernelTest, WritesWhatIptablesItselfFinds) {
  auto backend = Open();
  ASSERT_THAT(backend->Apply(Adding(*backend, "it's \"quoted\"")), IsOk());
  const ProgramResult found = RunProgram({"iptables-legacy", "-C", "USER", "-m", "comment",
                                          "--comment", "it's \"quoted\"", "-j", "DROP"});
  EXPECT_EQ(found.exit_code, 0) << found;
  EXPECT_THAT(TableNames(), HasSubstr("filter\n/")) << "nothing of IPv6";
}

TEST_F(LegacyBackendKernelTest, WaitsForAnotherProcessThatHoldsTheLock) {
  auto backend = Open();
  const Transaction transaction = Adding(*backend, "a");
  const absl::Time start = absl::Now();
  const LockHolder holder(kLock, absl::Seconds(1));
  EXPECT_THAT(backend->Apply(transaction), IsOk());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(900));
  EXPECT_NE(Read(*backend).Find(kUser), nullptr);
}

TEST_F(LegacyBackendKernelTest, GivesUpInTimeAndNamesWhoHoldsTheLockForEver) {
  auto backend = Open(absl::Milliseconds(500));
  const Transaction transaction = Adding(*backend, "a");
  const LockHolder holder(kLock, absl::InfiniteDuration());
  const absl::Time start = absl::Now();
  EXPECT_THAT(backend->Apply(transaction),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(absl::StrCat("process ", holder.pid(), " (lock-holder)")),
                             HasSubstr("nothing was done"))));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_EQ(Read(*backend).Find(kUser), nullptr) << "reading needs no lock";
}

TEST_F(LegacyBackendKernelTest, SaysWhatIsWrongWithTheLockFile) {
  auto backend = Open();
  const Transaction transaction = Adding(*backend, "a");
  ASSERT_EQ(mkdir(kLock, 0755), 0);
  EXPECT_THAT(backend->Apply(transaction),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("FileOrCreate")));
  ASSERT_EQ(rmdir(kLock), 0);
  ASSERT_EQ(mount(nullptr, "/run", nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  EXPECT_THAT(backend->Apply(transaction),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("mount the host's file")));
  ASSERT_EQ(mount(nullptr, "/run", nullptr, MS_REMOUNT, "mode=755"), 0);
  EXPECT_EQ(Read(*backend).Find(kUser), nullptr);
  EXPECT_THAT(backend->Apply(transaction), IsOk()) << "a missing file is made";
  // A file that stands on a read-only file system can be locked.
  ASSERT_EQ(mount(nullptr, "/run", nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  EXPECT_THAT(backend->Apply(Adding(*backend, "b")), IsOk());
}

TEST_F(LegacyBackendKernelTest, AbortsWhereSomebodyWroteSinceTheRead) {
  auto backend = Open();
  const Transaction transaction = Adding(*backend, "a");
  ASSERT_EQ(RunProgram({"iptables-legacy", "-N", "FOREIGN"}).exit_code, 0);
  EXPECT_THAT(backend->Apply(transaction), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(Read(*backend).Find(kUser), nullptr);
}

TEST_F(LegacyBackendKernelTest, LetsNobodyWriteBetweenTheSecondLookAndTheWrite) {
  auto backend = Open();
  ProgramResult other;
  runner_.disturb = [&] { other = RunProgram({"iptables-legacy", "-w", "1", "-N", "FOREIGN"}); };
  EXPECT_THAT(backend->Apply(Adding(*backend, "a")), IsOk());
  EXPECT_EQ(other.exit_code, 4) << other;
  EXPECT_NE(RunProgram({"iptables-legacy", "-S", "FOREIGN"}).exit_code, 0);
}

TEST_F(LegacyBackendKernelTest, KeepsTheRulesOfTwoWhoApplyAtOnce) {
  constexpr int kEach = 10;
  const absl::StatusOr<Netns> netns = Netns::Current();
  ASSERT_THAT(netns, IsOk());
  auto setup = Open();
  ASSERT_THAT(
      setup->Apply({.generation = Read(*setup).generation, .operations = {CreateChain{kUser}}}),
      IsOk());
  std::atomic<int> aborted = 0;
  const auto apply = [&](const std::string& name) {
    ASSERT_THAT(netns->Enter(), IsOk());
    auto backend = Open();
    for (int i = 0; i < kEach;) {
      const absl::Status status = backend->Apply(Adding(*backend, absl::StrCat(name, i)));
      if (status.ok()) {
        ++i;
      } else {
        ASSERT_THAT(status, StatusIs(absl::StatusCode::kAborted));
        ++aborted;
      }
    }
  };
  std::thread first(apply, "first");
  std::thread second(apply, "second");
  first.join();
  second.join();
  EXPECT_EQ(Read(*setup).Find(kUser)->rules.size(), 2U * kEach) << aborted << " aborted";
}

TEST_F(LegacyBackendKernelTest, LeavesPoliciesAndOtherPeoplesRulesAndCountersAlone) {
  ASSERT_EQ(RunProgram({"iptables-legacy-restore", "--counters"},
                       "*filter\n:INPUT DROP [5:500]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
                       ":FOREIGN - [0:0]\n[3:300] -A FOREIGN -s 10.0.0.0/8 -j ACCEPT\nCOMMIT\n")
                .exit_code,
            0);
  auto backend = Open();
  ASSERT_THAT(backend->Apply(Adding(*backend, "a")), IsOk());
  // The counters of policies are lost with whatever iptables-legacy writes, so not by us.
  const ProgramResult saved = RunProgram({"iptables-legacy-save", "--counters"});
  EXPECT_THAT(saved.out, AllOf(HasSubstr(":INPUT DROP ["),
                               HasSubstr("[3:300] -A FOREIGN -s 10.0.0.0/8 -j ACCEPT\n")));
}

}  // namespace
}  // namespace kipt::testing
