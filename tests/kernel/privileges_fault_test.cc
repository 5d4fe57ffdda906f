// SPDX-License-Identifier: Apache-2.0
//
// Privileges where a step of giving them up fails, and Landlock as kernels of any age have it.
#include <cap-ng.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/process/own_process.h"
#include "tests/kernel/unprivileged_child.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace {

// What the next calls do; each child has its own.
struct Faults {
  // A call of libcap-ng or the kernel that fails with EPERM.
  std::string failing = {};
  // Landlock's version, or the negative errno of asking for it; 0: the real kernel's.
  long abi = 0;
  std::string calls = {};  // of Landlock, one a line
};
Faults& Current() {
  static Faults faults;
  return faults;
}

bool Fails(const std::string& call) {
  if (Current().failing != call) return false;
  errno = EPERM;
  return true;
}

// "/path"; more, where the descriptor is more than a name.
std::string NameOf(int fd) {
  char path[256] = {};
  const std::string link = absl::StrCat("/proc/self/fd/", fd);
  if (readlink(link.c_str(), path, sizeof path - 1) < 0) return "closed";
  const bool is_only_a_name = (fcntl(fd, F_GETFL) & O_PATH) != 0;
  const bool programs_get_it = (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
  return absl::StrCat(path, is_only_a_name ? "" : " opened", programs_get_it ? " kept" : "");
}

long Landlock(long number, const std::vector<long>& arguments) {
  std::string& calls = Current().calls;
  if (number == SYS_landlock_create_ruleset && arguments[2] == LANDLOCK_CREATE_RULESET_VERSION) {
    if (arguments[0] != 0 || arguments[1] != 0) calls += "a wrong question\n";
    if (Current().abi > 0) return Current().abi;
    errno = static_cast<int>(-Current().abi);
    return -1;
  }
  if (number == SYS_landlock_create_ruleset) {
    uint64_t words[3] = {};
    std::memcpy(words, reinterpret_cast<const void*>(arguments[0]), sizeof words);
    absl::StrAppend(&calls, "forbid ", absl::Hex(words[0]), " net ", words[1], " scoped ", words[2],
                    " size ", arguments[1], " flags ", arguments[2], "\n");
    return Fails("create") ? -1 : open("/", O_PATH | O_CLOEXEC);
  }
  if (NameOf(static_cast<int>(arguments[0])) != "/") calls += "another ruleset\n";
  if (number == SYS_landlock_add_rule) {
    const auto* rule = reinterpret_cast<const landlock_path_beneath_attr*>(arguments[2]);
    absl::StrAppend(&calls, "allow ", absl::Hex(rule->allowed_access), " at ",
                    NameOf(rule->parent_fd), " kind ", arguments[1], " flags ", arguments[3], "\n");
    return Fails("add") ? -1 : 0;
  }
  absl::StrAppend(&calls, "apply flags ", arguments[1], "\n");
  return Fails("apply") ? -1 : 0;
}

}  // namespace

// The linker leads the product's calls here (--wrap), and calls of __real_* to the libraries.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl50-cpp)
extern "C" {
long __real_syscall(long number, ...);
int __real_prctl(int option, ...);
int __real_capng_get_caps_process();
int __real_capng_apply(capng_select_t set);

// They take as many arguments as there can be, so they read beyond those that were given.
ABSL_ATTRIBUTE_NO_SANITIZE_ADDRESS long __wrap_syscall(long number, ...) {
  std::vector<long> arguments(6);
  va_list list;
  va_start(list, number);
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (Current().abi != 0 && number >= SYS_landlock_create_ruleset &&
      number <= SYS_landlock_restrict_self) {
    return Landlock(number, arguments);
  }
  return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                        arguments[4], arguments[5]);
}
ABSL_ATTRIBUTE_NO_SANITIZE_ADDRESS int __wrap_prctl(int option, ...) {
  std::vector<unsigned long> arguments(4);
  va_list list;
  va_start(list, option);
  for (unsigned long& argument : arguments) argument = va_arg(list, unsigned long);
  va_end(list);
  if (option == PR_SET_NO_NEW_PRIVS && Fails("no_new_privs")) return -1;
  return __real_prctl(option, arguments[0], arguments[1], arguments[2], arguments[3]);
}
int __wrap_capng_get_caps_process() {
  // libcap-ng does not always leave an errno.
  if (Current().failing == "get, without a reason") return -1;
  return Fails("get") ? -1 : __real_capng_get_caps_process();
}
int __wrap_capng_apply(capng_select_t set) {
  const char* const name = set == CAPNG_SELECT_BOUNDS    ? "bounds"
                           : set == CAPNG_SELECT_CAPS    ? "caps"
                           : set == CAPNG_SELECT_AMBIENT ? "ambient"
                                                         : "others";
  return Fails(name) ? -1 : __real_capng_apply(set);
}
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl50-cpp)

namespace kipt::testing::privileges_fault_test {
namespace {

// ---- capabilities ----

struct CapabilityFault {
  std::string failing;
  std::string step;
  std::string reason = "Operation not permitted";
};
const CapabilityFault kCapabilityFaults[] = {
    {"get", "reading them"},        {"get, without a reason", "reading them", "Success"},
    {"bounds", "the bounding set"}, {"caps", "the thread's sets"},
    {"ambient", "the ambient set"}, {"no_new_privs", "PR_SET_NO_NEW_PRIVS"},
};

TEST(CapabilityFaultTest, EachStepThatFailsIsNamed) {
  for (const CapabilityFault& row : kCapabilityFaults) {
    EXPECT_EQ(InChild([&row] {
                Current().failing = row.failing;
                errno = EACCES;  // another call's
                return agent::DropCapabilities(/*keep_net_raw=*/true).ToString();
              }),
              absl::StrCat("INTERNAL: giving up capabilities: ", row.step, ": ", row.reason));
  }
}

TEST(CapabilityFaultTest, ACommandThatLimitsThemNamesTheStepToo) {
  EXPECT_EQ(InChild([] {
              Current().failing = "get";
              return agent::LimitCapabilities({}, /*for_programs=*/false).ToString();
            }),
            "INTERNAL: giving up capabilities: reading them: Operation not permitted");
}

TEST(CapabilityFaultTest, SetpcapThatIsNotInEffectShrinksNothing) {
  EXPECT_EQ(InChild([]() -> std::string {
              __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
              __user_cap_data_struct sets[2] = {};
              if (syscall(SYS_capget, &header, sets) != 0) return "capget";
              sets[0].effective &= ~(uint32_t{1} << CAP_SETPCAP);
              if (syscall(SYS_capset, &header, sets) != 0) return "capset";
              return agent::DropCapabilities(/*keep_net_raw=*/false).ToString();
            }),
            "OK");
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

// ---- Landlock ----

// What the kernel is asked for: linux/landlock.h of 6.12, as numbers.
struct LandlockRow {
  long abi;
  std::string forbidden;
  int scoped = 0;
};
const LandlockRow kLandlockRows[] = {
    {.abi = 1, .forbidden = "1ff2"},  // Linux 5.13
    {.abi = 2, .forbidden = "3ff2"},  // LANDLOCK_ACCESS_FS_REFER
    {.abi = 3, .forbidden = "7ff2"},  // LANDLOCK_ACCESS_FS_TRUNCATE
    {.abi = 4, .forbidden = "7ff2"},
    {.abi = 5, .forbidden = "7ff2"},
    {.abi = 6, .forbidden = "7ff2", .scoped = 2},  // LANDLOCK_SCOPE_SIGNAL
    {.abi = 7, .forbidden = "7ff2", .scoped = 2},
};

constexpr char kDevNull[] = "allow 2 at /dev/null kind 1 flags 0\n";

std::string Asked(const LandlockRow& row, const std::string& allowed) {
  return absl::StrCat("forbid ", row.forbidden, " net 0 scoped ", row.scoped, " size 24 flags 0\n",
                      allowed);
}

// The result and the calls of ForbidFileWrites.
std::string Forbidding(const Faults& faults, const std::string& may_be_made) {
  return InChild([&] {
    Current() = faults;
    const absl::Status status = agent::ForbidFileWrites(may_be_made);
    return absl::StrCat(Current().calls, status.ToString());
  });
}

class LandlockTest : public ::testing::Test {
 protected:
  TemporaryTree tree_;
  std::string allowed_at_lock_ =
      absl::StrCat(kDevNull, "allow 100 at ", std::filesystem::canonical(tree_.root()).string(),
                   " kind 1 flags 0\n");
};

TEST_F(LandlockTest, EachKernelIsAskedForWhatItKnows) {
  if (agent::kBuiltWithASanitizer) return;
  for (const LandlockRow& row : kLandlockRows) {
    SCOPED_TRACE(row.abi);
    const Faults faults = {.abi = row.abi};
    const std::string end = "apply flags 0\nOK";
    EXPECT_EQ(Forbidding(faults, ""), Asked(row, kDevNull) + end);
    EXPECT_EQ(Forbidding(faults, "/no/such/directory/lock"), Asked(row, kDevNull) + end);
    EXPECT_EQ(Forbidding(faults, tree_.Path("lock")), Asked(row, allowed_at_lock_) + end);
  }
}

TEST_F(LandlockTest, AStepThatFailsIsNamedAndNothingIsForbidden) {
  if (agent::kBuiltWithASanitizer) return;
  const LandlockRow& row = kLandlockRows[0];
  const auto fails = [](const std::string& step) {
    return absl::StrCat("INTERNAL: forbidding writes to files (Landlock): ", step,
                        ": Operation not permitted");
  };
  const std::string lock = tree_.Path("lock");
  EXPECT_EQ(Forbidding({.failing = "create", .abi = 1}, lock),
            Asked(row, fails("making the rules")));
  EXPECT_EQ(Forbidding({.failing = "add", .abi = 1}, lock),
            Asked(row, kDevNull + fails("/dev/null")));
  EXPECT_EQ(Forbidding({.failing = "apply", .abi = 1}, lock),
            Asked(row, allowed_at_lock_ + "apply flags 0\n" + fails("applying them")));
  EXPECT_EQ(Forbidding({.abi = -EOPNOTSUPP}, lock),
            "UNIMPLEMENTED: this kernel, or the container, has no Landlock: Operation not "
            "supported");
}

}  // namespace
}  // namespace kipt::testing::privileges_fault_test
