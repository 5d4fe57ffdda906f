// SPDX-License-Identifier: Apache-2.0
//
// A table that only its owner can write, or that refuses our chain: the other tables of its family
// are made and repaired all the same.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "agent/process/files.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/failing_call.h"

namespace kipt::testing {
namespace {

// What a BPF LSM such as Azure's iptables guard does, by seccomp: the agent and its programs have
// every capability, and yet cannot write rules (EPERM). All other programs can.
struct WriteGuard {
  std::atomic<bool> refuses = true;
  // Also what only asks nf_tables.
  std::atomic<bool> reads_too = false;
  std::atomic<int> error = EPERM;
  // How often it has refused.
  std::atomic<int> refused = 0;
};

constexpr uint32_t kReplace = 64;  // IPT_SO_SET_REPLACE, IP6T_SO_SET_REPLACE

std::string Line(const std::string& path, const std::string& prefix) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, prefix)) return line.substr(prefix.size());
  }
  return "";
}

// The agent, or a program whose parent it is.
bool IsGuarded(uint32_t thread) {
  const std::string status = absl::StrCat("/proc/", thread, "/status");
  const std::string parent = absl::StrCat("/proc/", Line(status, "PPid:\t"), "/comm");
  // All threads of the agent but its server's are named so.
  return absl::StartsWith(Line(status, "Name:\t"), "kube-iptables-a") ||
         absl::StartsWith(Line(parent, ""), "kube-iptables-a");
}

// Whether one of the messages makes a rule.
bool MakesRule(uint32_t thread, uint64_t address, size_t size) {
  std::vector<char> bytes(size);
  const agent::OwnedFd memory(open(absl::StrCat("/proc/", thread, "/mem").c_str(), O_RDONLY));
  if (pread(memory.get(), bytes.data(), size, static_cast<off_t>(address)) !=
      static_cast<ssize_t>(size)) {
    return true;
  }
  for (size_t at = 0; at + sizeof(nlmsghdr) <= size;) {
    nlmsghdr header;
    std::memcpy(&header, &bytes[at], sizeof(header));
    if (header.nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE)) return true;
    if (header.nlmsg_len < sizeof(header)) return false;
    at += NLMSG_ALIGN(header.nlmsg_len);
  }
  return false;
}

bool Refuses(const WriteGuard& guard, const seccomp_notif& call) {
  if (!guard.refuses || !IsGuarded(call.pid)) return false;
  return call.data.nr == SYS_setsockopt || guard.reads_too ||
         MakesRule(call.pid, call.data.args[1], call.data.args[2]);
}

int Install() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 2),
      // Only to an address of netlink's.
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LowHalfOfArgument(5)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, sizeof(sockaddr_nl), 3, 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LowHalfOfArgument(2)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kReplace, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
  return static_cast<int>(
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}

// Runs `body` on a thread of its own; what it starts is guarded as long as it runs.
void WithWriteGuard(WriteGuard& guard, const std::function<void()>& body) {
  std::atomic<int> listener = -2;
  std::atomic<bool> ended = false;
  std::thread guarded([&] {
    listener = Install();
    if (listener >= 0) body();
    ended = true;
  });
  while (listener == -2) std::this_thread::yield();
  EXPECT_GE(listener, 0) << "a filter needs CAP_SYS_ADMIN";
  while (!ended && listener >= 0) {
    pollfd readable = {.fd = listener, .events = POLLIN, .revents = 0};
    seccomp_notif call = {};
    if (poll(&readable, 1, 50) <= 0 || ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) {
      continue;
    }
    const bool refused = Refuses(guard, call);
    if (refused) ++guard.refused;
    seccomp_notif_resp answer = {.id = call.id, .val = 0, .error = 0, .flags = 0};
    answer.error = refused ? -guard.error : 0;
    answer.flags = refused ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
  guarded.join();
  close(listener);
}

constexpr char kHint[] = "KUBE-IPTABLES-HINT";

struct Refusal {
  std::string name;
  IptablesMode iptables = IptablesMode::kNft;
  // The table that is refused, and one whose rules must be there.
  std::string refused;
  std::string other_table;
  std::string other_chain;
  // A base chain is found before anything is written.
  int sync_exit = kExitFailed;
};

void PrintTo(const Refusal& row, std::ostream* out) { *out << row.name; }

class RefusedTableTest : public DaemonTest, public ::testing::WithParamInterface<Refusal> {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    if (HasFatalFailure()) return;
    if (GetParam().iptables == IptablesMode::kLegacy) {
      // As where the kernel refuses table nat of IPv4.
      replaced_ = PutBeforeLegacyPrograms(directory_, R"(
          if [ $name = iptables-legacy-restore ]; then
            text=$(cat)
            case $text in *'*nat'*) echo refused >&2; exit 1;; esac
            printf '%s\n' "$text" | exec "$dir/real/$name" "$@"
          fi)");
    } else if (GetParam().refused == "nat") {
      owner_ = std::make_unique<BackgroundProgram>(
          std::vector<std::string>{"/bin/bash", "-c",
                                   "exec nft -i < <(echo 'add table ip nat { flags owner; }'; exec "
                                   "tail --pid=$$ -f /dev/null)"});
      ASSERT_TRUE(WaitUntil([] {
        return RunProgram({"/usr/sbin/nft", "list", "table", "ip", "nat"}).exit_code == 0;
      })) << owner_->Output();
    } else {
      Output({"/usr/sbin/nft",
              "add table ip filter; add chain ip filter KUBE-FIREWALL { type filter "
              "hook input priority 10; }"});
    }
  }

  static AgentSettings Settings() {
    return {.ownership_cleanup = false, .iptables = GetParam().iptables};
  }
  static Iptables Ipv4() { return {.mode = GetParam().iptables}; }
  static std::string Saved(const std::string& table) { return Ipv4().Save(table).out; }
  static void ExpectTheOthers() {
    EXPECT_THAT(Saved("mangle"), HasSubstr(kHint));
    EXPECT_THAT(Saved(GetParam().other_table),
                HasSubstr(absl::StrCat(":", GetParam().other_chain)));
    const Iptables ipv6 = {.family = IpFamily::kIpv6, .mode = GetParam().iptables};
    EXPECT_THAT(ipv6.Save("nat").out, HasSubstr(":KUBE-MARK-DROP"));
  }

  const TemporaryTree directory_;
  std::unique_ptr<InPlaceOf> replaced_;
  std::unique_ptr<BackgroundProgram> owner_;
};

TEST_P(RefusedTableTest, ASyncMakesAndRepairsTheOthersAndReportsIt) {
  for (int i = 0; i < 2; ++i) {
    const ProgramResult sync = Agent("sync", Settings());
    EXPECT_EQ(sync.exit_code, GetParam().sync_exit) << sync;
    ExpectTheOthers();
    Change(Ipv4(), {"-t", "mangle", "-X", kHint});
    const std::string& chain = GetParam().other_chain;
    Change(Ipv4(), {"-t", GetParam().other_table, "-F", chain});
  }
}

TEST_P(RefusedTableTest, ADaemonRepairsTheOthersAtOnceAndIsNotReady) {
  std::vector<std::string> flags = Settings().Flags();
  flags.push_back("--iptables-sync-period=60s");
  StartOnly(flags);
  ASSERT_TRUE(daemon().Prints("ip is failed: ")) << daemon().Output();
  ASSERT_TRUE(daemon().Prints("ip6 is in place")) << daemon().Output();
  for (int i = 1; i <= 3; ++i) {
    Change(Ipv4(), {"-t", "mangle", "-X", kHint});
    ASSERT_TRUE(WaitUntil([] { return Saved("mangle").find(kHint) != std::string::npos; },
                          absl::Seconds(5)))
        << i << daemon().Output();
  }
  EXPECT_FALSE(IsReady());
  ExpectTheOthers();
  EXPECT_GE(Metric("kube_iptables_agent_drift_detected_total", "chain=\"KUBE-IPTABLES-HINT\""), 3);
}

INSTANTIATE_TEST_SUITE_P(
    Refusals, RefusedTableTest,
    ::testing::Values(Refusal{"OwnedNat", IptablesMode::kNft, "nat", "filter", "KUBE-FIREWALL"},
                      Refusal{"FirewallIsABaseChain", IptablesMode::kNft, "filter", "nat",
                              "KUBE-MARK-DROP", kExitDifferences},
                      Refusal{"LegacyNat", IptablesMode::kLegacy, "nat", "filter",
                              "KUBE-FIREWALL"}),
    [](const auto& row) { return row.param.name; });

// A node on which a security module refuses what the agent writes, although no capability is
// missing: that is WriteRefused, reported once and retried less and less often.

constexpr char kFinding[] = "kube_iptables_agent_findings";
constexpr char kRefused[] = "condition=\"WriteRefused\"";

// What to do, and not what is not the reason.
auto NamesTheGuard() {
  return AllOf(HasSubstr("a security module (SELinux, a BPF LSM)"),
               Not(HasSubstr("needs CAP_NET_ADMIN")), Not(HasSubstr("missing")));
}

class WriteRefusedTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static AgentSettings Settings() { return {.ownership_cleanup = false, .iptables = GetParam()}; }
  void StartRefused(WriteGuard& guard) {
    StartOnly(Settings().Flags());
    ASSERT_TRUE(daemon().Prints("ip is failed: WriteRefused: ")) << daemon().Output();
    ASSERT_TRUE(daemon().Prints("ip6 is failed: WriteRefused: ")) << daemon().Output();
    EXPECT_GT(guard.refused, 0);
  }
};

TEST_P(WriteRefusedTest, ADaemonReportsItOnceAndWritesWhenItMay) {
  WriteGuard guard;
  WithWriteGuard(guard, [&] {
    StartRefused(guard);
    // The log comes before what the endpoints show.
    EXPECT_TRUE(MetricReaches(kFinding, 2, kRefused)) << "in each family";
    EXPECT_THAT(Readyz(), AllOf(HasSubstr("[-]ip failed: "), NamesTheGuard()));
    EXPECT_THAT(HttpGet(kMetricsPort, "/statusz").body, HasSubstr("[critical] WriteRefused in ip"));
    guard.refuses = false;
    EXPECT_TRUE(BecomesReady()) << Readyz();
    EXPECT_EQ(Metric(kFinding, kRefused), 0);
    ExpectNothingPlanned(Settings());
  });
}

TEST_P(WriteRefusedTest, ASyncEndsWithAnErrorThatNamesTheGuard) {
  for (const int error : {EPERM, EACCES}) {
    WriteGuard guard;
    guard.error = error;
    WithWriteGuard(guard, [&] {
      const ProgramResult sync = Agent("sync", Settings());
      EXPECT_EQ(sync.exit_code, kExitFailed) << sync;
      EXPECT_THAT(sync.err, NamesTheGuard());
      EXPECT_THAT(sync.out, HasSubstr("WriteRefused"));
    });
    EXPECT_GT(guard.refused, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, WriteRefusedTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& test) { return TestNameOf(test.param); });

}  // namespace
}  // namespace kipt::testing
