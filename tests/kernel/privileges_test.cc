// SPDX-License-Identifier: Apache-2.0
//
// What the agent can do, and what it can no longer do, after it has given up its privileges. Each
// attempt is made in a child with a network namespace and a /run of its own, because nothing that
// was given up comes back.
#include <cap-ng.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <map>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agent/process/own_process.h"
#include "agent/process/syscall_filter.h"
#include "netlink/backend.h"
#include "tests/agent/process/in_child.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/private_run.h"

namespace {

// A step of libcap-ng's that fails with EPERM; each child has its own.
capng_select_t& Failing() {
  static capng_select_t step{};
  return step;
}

}  // namespace

// The linker redirects the product's calls here (--wrap), because libcap-ng reports no error when
// the kernel keeps the bounding set.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl50-cpp)
extern "C" {
int __real_capng_apply(capng_select_t set);
int __wrap_capng_apply(capng_select_t set) {
  if (set != Failing()) return __real_capng_apply(set);
  errno = EPERM;
  return -1;
}
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl50-cpp)

namespace kipt::testing {
namespace {

using namespace ::kipt::agent;  // NOLINT(google-build-using-namespace): its vocabulary

constexpr uint64_t kAdmin = uint64_t{1} << CAP_NET_ADMIN;
constexpr uint64_t kAdminAndRaw = kAdmin | uint64_t{1} << CAP_NET_RAW;

// Makes this process run as user and group 65534, without any capability but `capability`, which is
// ambient, as systemd starts a service with User= and AmbientCapabilities=. What went wrong.
std::string BecomeNobodyWith(int capability) {
  const auto wrong = [](const char* step) { return absl::StrCat(step, ": ", strerror(errno)); };
  constexpr uid_t kNobody = 65534;
  if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return wrong("PR_SET_KEEPCAPS");
  if (setgroups(0, nullptr) != 0 || setresgid(kNobody, kNobody, kNobody) != 0 ||
      setresuid(kNobody, kNobody, kNobody) != 0) {
    return wrong("becoming nobody");
  }
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  const uint32_t bit = uint32_t{1} << capability;
  sets[0] = {bit, bit, bit};
  if (syscall(SYS_capset, &header, sets) != 0) return wrong("capset");
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) != 0) return wrong("ambient");
  // The /proc of a process that is not dumpable belongs to root. A service is executed as its user,
  // and so is dumpable.
  if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) return wrong("PR_SET_DUMPABLE");
  return "";
}

// proc_pid_status(5).
class ThreadStatus {
 public:
  explicit ThreadStatus(const std::string& path = "/proc/thread-self/status") {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      lines_[line.substr(0, colon)] =
          std::string(absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1)));
    }
  }

  // Empty where there is no such line.
  std::string Text(const std::string& key) const {
    const auto line = lines_.find(key);
    return line == lines_.end() ? "" : line->second;
  }
  uint64_t Hex(const std::string& key) const {
    return std::strtoull(Text(key).c_str(), nullptr, 16);
  }

 private:
  std::map<std::string, std::string> lines_;
};

// Which of the two agents, and as whom.
struct Variant {
  std::string name;
  bool may_run_programs = false;
  bool as_nobody = false;  // with nothing but an ambient CAP_NET_ADMIN, as a service would be
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

struct Sets {
  uint64_t own = 0;
  uint64_t inherited = 0;
  uint64_t bounding = 0;
};

class PrivilegesTest : public NetnsTest, public ::testing::WithParamInterface<Variant> {
 protected:
  // What went wrong.
  static std::string GiveUpCapabilities() {
    if (GetParam().as_nobody) {
      if (std::string wrong = BecomeNobodyWith(CAP_NET_ADMIN); !wrong.empty()) return wrong;
    }
    const absl::Status dropped = DropCapabilities(GetParam().may_run_programs);
    return dropped.ok() ? "" : dropped.ToString();
  }
  static std::string InstallFilter() {
    const absl::Status filtered = InstallSyscallFilter({.programs = GetParam().may_run_programs});
    if (kBuiltWithASanitizer && absl::IsUnimplemented(filtered)) return "";
    return filtered.ok() ? "" : filtered.ToString();
  }

  // The thread's capability sets once all that are not needed were given up.
  static Sets Kept(uint64_t bounding_before) {
    const bool programs = GetParam().may_run_programs;
    const uint64_t own = programs ? kAdminAndRaw : kAdmin;
    // A process without CAP_SETPCAP cannot make its bounding set smaller.
    return {.own = own,
            .inherited = programs ? own : 0,
            .bounding = GetParam().as_nobody ? bounding_before : own};
  }

  // Never destroyed, because going back is no longer possible.
  static void LeaveMounts() {
    static const auto* const run = new PrivateRun;
    EXPECT_NE(run, nullptr);
  }
};

// One line of proc_pid_status(5) for each thread.
std::string CheckThreads(const Sets& sets, bool filtered) {
  std::string wrong;
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    ++threads;
    const ThreadStatus status(task.path() / "status");
    for (const auto& [key, expected] : std::vector<std::pair<std::string, uint64_t>>{
             {"CapEff", sets.own},
             {"CapPrm", sets.own},
             {"CapInh", sets.inherited},
             {"CapAmb", sets.inherited},
             {"CapBnd", sets.bounding},
             {"NoNewPrivs", 1},
             {"Seccomp", filtered && !kBuiltWithASanitizer ? 2 : 0}}) {
      if (status.Hex(key) == expected) continue;
      absl::StrAppend(&wrong, task.path().string(), ": ", key, " is ", status.Text(key), "; ");
    }
  }
  return threads >= 2 ? wrong : absl::StrCat(wrong, "only ", threads, " threads");
}

// Checks all threads while there are two.
std::string CheckTwoThreads(const Sets& sets, bool filtered) {
  std::latch checked(1);
  const std::jthread later([&checked] { checked.wait(); });
  const std::string wrong = CheckThreads(sets, filtered);
  checked.count_down();
  return wrong;
}

// Calls that such an agent must not get through, made so that nothing would happen to the machine
// if it did. Which arguments the filter refuses is in tests/agent/process/syscall_table_test.cc.
struct Forbidden {
  const char* name;
  // Negative, and errno, where it fails.
  long (*make)(int network_namespace);
  bool by_capabilities = false;  // the filter refuses all of them
};
constexpr bool kByCapabilitiesToo = true;
constexpr Forbidden kForbidden[] = {
    {"mount", [](int) -> long { return mount("none", "/proc", "tmpfs", 0, nullptr); },
     kByCapabilitiesToo},
    {"umount2", [](int) -> long { return umount2("/no/such/place", 0); }},
    {"chroot", [](int) -> long { return chroot("/"); }, kByCapabilitiesToo},
    {"setns", [](int fd) -> long { return setns(fd, CLONE_NEWNET); }, kByCapabilitiesToo},
    {"unshare", [](int) -> long { return unshare(CLONE_NEWNET); }, kByCapabilitiesToo},
    // No such process.
    {"ptrace", [](int) -> long { return ptrace(PTRACE_ATTACH, 1 << 30, nullptr, nullptr); }},
    {"bpf", [](int) -> long { return syscall(SYS_bpf, -1, nullptr, 0); }},
    {"init_module", [](int) -> long { return syscall(SYS_init_module, "", 0, ""); }},
    {"kexec_load", [](int) -> long { return syscall(SYS_kexec_load, 0, 0, nullptr, ~0UL); }},
    // Neither magic number is right.
    {"reboot", [](int) -> long { return syscall(SYS_reboot, 1, 2, 3, nullptr); },
     kByCapabilitiesToo},
    {"io_uring_setup", [](int) -> long { return syscall(SYS_io_uring_setup, 1, nullptr); }},
    {"userfaultfd", [](int) -> long { return syscall(SYS_userfaultfd, 0); }},
    {"setuid", [](int) -> long { return setuid(1234); }, kByCapabilitiesToo},
    // Too long, which the kernel checks last.
    {"sethostname", [](int) -> long { return syscall(SYS_sethostname, "x", 65); },
     kByCapabilitiesToo},
    {"settimeofday", [](int) -> long { return syscall(SYS_settimeofday, nullptr, nullptr); }},
    {"unlink", [](int) -> long { return unlink("/no/such/file"); }},
    {"connect", [](int) -> long { return connect(-1, nullptr, 0); }},
};

// Every one that did not fail as it should, with what it did.
std::string TryForbidden(bool capabilities_only, int network_namespace) {
  std::string wrong;
  for (const Forbidden& call : kForbidden) {
    if (capabilities_only && !call.by_capabilities) continue;
    errno = 0;
    const long result = call.make(network_namespace);
    if (result < 0 && (errno == EPERM || errno == EACCES)) continue;
    absl::StrAppend(&wrong, call.name, " returned ", result, " (", std::strerror(errno), "); ");
  }
  return wrong;
}

// On a kernel without filters the capabilities are all there is.
TEST_P(PrivilegesTest, AreGivenUpWhollyWithoutTheFilterToo) {
  EXPECT_THAT(InChild([]() -> std::string {
                LeaveMounts();
                const int netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
                const uint64_t bounding_before = ThreadStatus().Hex("CapBnd");
                if (std::string wrong = GiveUpCapabilities(); !wrong.empty()) return wrong;
                std::string wrong = CheckTwoThreads(Kept(bounding_before), /*filtered=*/false);
                return wrong + TryForbidden(/*capabilities_only=*/true, netns);
              }),
              IsEmpty());
}

// A process that regains capabilities gains nothing by it.
TEST_P(PrivilegesTest, AreNoneForWhatTheFilterRefusesHoweverManyThereAre) {
  if (kBuiltWithASanitizer) {
    EXPECT_EQ(InstallSyscallFilter({}).code(), absl::StatusCode::kUnimplemented);
    return;
  }
  EXPECT_THAT(InChild([]() -> std::string {
                LeaveMounts();
                const int netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
                const ThreadStatus before;
                const Sets all = {.own = before.Hex("CapEff"),
                                  .inherited = before.Hex("CapInh"),
                                  .bounding = before.Hex("CapBnd")};
                if (std::string wrong = InstallFilter(); !wrong.empty()) return wrong;
                std::string wrong = CheckTwoThreads(all, /*filtered=*/true);
                return wrong + TryForbidden(/*capabilities_only=*/false, netns);
              }),
              IsEmpty());
}

// Every interop test shows it for the daemon as root.
TEST_P(PrivilegesTest, AreEnoughForNftables) {
  EXPECT_THAT(
      InChild([]() -> std::string {
        if (std::string wrong = GiveUpCapabilities(); !wrong.empty()) return wrong;
        if (std::string wrong = InstallFilter(); !wrong.empty()) return wrong;
        const auto backend = netlink::NewNftBackend();
        if (!backend.ok()) return backend.status().ToString();
        const auto before = (*backend)->Read({});
        if (!before.ok()) return before.status().ToString();
        const netlink::ChainId chain{netlink::Family::kIPv6, netlink::Table::kNat, "C"};
        return (*backend)
            ->Apply({.generation = before->generation, .operations = {netlink::CreateChain{chain}}})
            .ToString();
      }),
      "OK");
}

INSTANTIATE_TEST_SUITE_P(Variants, PrivilegesTest,
                         ::testing::Values(Variant{"Nft"},
                                           Variant{.name = "NftAsNobody", .as_nobody = true},
                                           Variant{.name = "Legacy", .may_run_programs = true}),
                         [](const auto& row) { return row.param.name; });

class MissingPrivilegesTest : public NetnsTest {};

TEST_F(MissingPrivilegesTest, AreNamedWithWhatToDo) {
  EXPECT_THAT(InChild([]() -> std::string {
                if (std::string wrong = BecomeNobodyWith(CAP_NET_RAW); !wrong.empty()) return wrong;
                return DropCapabilities(/*keep_net_raw=*/true).ToString();
              }),
              AllOf(HasSubstr("PERMISSION_DENIED: CAP_NET_ADMIN is missing"),
                    HasSubstr("AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW"),
                    HasSubstr("add: [NET_ADMIN, NET_RAW]")));
  EXPECT_THAT(InChild([]() -> std::string {
                if (std::string wrong = BecomeNobodyWith(CAP_NET_ADMIN); !wrong.empty()) {
                  return wrong;
                }
                return DropCapabilities(/*keep_net_raw=*/true).ToString();
              }),
              AllOf(HasSubstr("PERMISSION_DENIED: CAP_NET_RAW is missing"),
                    HasSubstr("not with --iptables-mode=nft")));
}

TEST_F(MissingPrivilegesTest, AreNotGivenUpWhereAnotherThreadWouldKeepThem) {
  if (kBuiltWithASanitizer) {
    // Which may have threads of its own.
    EXPECT_THAT(InChild([] { return DropCapabilities(false).ToString(); }), "OK");
    return;
  }
  EXPECT_THAT(InChild([]() -> std::string {
                std::latch done(1);
                const std::jthread other([&done] { done.wait(); });
                const uint64_t before = ThreadStatus().Hex("CapEff");
                const absl::Status status = DropCapabilities(false);
                done.count_down();
                if (ThreadStatus().Hex("CapEff") != before) return "given up all the same";
                return status.ToString();
              }),
              HasSubstr("FAILED_PRECONDITION"));
}

TEST(CapabilityFaultTest, EachStepThatFailsIsNamed) {
  const auto failure = [](const std::string& step) {
    return absl::StrCat("INTERNAL: giving up capabilities: ", step, ": Operation not permitted");
  };
  for (const auto& [failing, step] : {std::pair(CAPNG_SELECT_BOUNDS, "the bounding set"),
                                      {CAPNG_SELECT_CAPS, "the thread's sets"},
                                      {CAPNG_SELECT_AMBIENT, "the ambient set"}}) {
    EXPECT_EQ(InChild([failing = failing] {
                Failing() = failing;
                return DropCapabilities(/*keep_net_raw=*/true).ToString();
              }),
              failure(step));
  }
  for (const auto& [call, step] :
       {std::pair(FailingCall{SYS_capget, 0, 0, EPERM, /*any=*/true}, "reading them"),
        {FailingCall{SYS_prctl, 0, PR_SET_NO_NEW_PRIVS, EPERM}, "PR_SET_NO_NEW_PRIVS"}}) {
    EXPECT_EQ(InChild([&call = call] {
                FailFromNowOn(call);
                return DropCapabilities(/*keep_net_raw=*/true).ToString();
              }),
              failure(step));
  }
}

TEST(CapabilityFaultTest, OfThoseAllowedOnlyThoseThatItHasAreKept) {
  EXPECT_EQ(InChild([]() -> std::string {
              if (std::string wrong = BecomeNobodyWith(CAP_NET_ADMIN); !wrong.empty()) return wrong;
              const unsigned int most[] = {CAP_SYS_ADMIN, CAP_NET_ADMIN};
              const absl::Status status = agent::LimitCapabilities(most, /*for_programs=*/false);
              const uint64_t admin = uint64_t{1} << CAP_NET_ADMIN;
              if (ThreadStatus().Hex("CapEff") != admin) return "another effective set";
              return status.ToString();
            }),
            "OK");
}

}  // namespace
}  // namespace kipt::testing
