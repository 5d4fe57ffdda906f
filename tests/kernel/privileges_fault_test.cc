// SPDX-License-Identifier: Apache-2.0
//
// Privileges where a step of giving them up fails.
#include <cap-ng.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/process/own_process.h"
#include "gtest/gtest.h"
#include "tests/kernel/unprivileged_child.h"

namespace {

// A call of libcap-ng or the kernel that fails with EPERM; each child has its own.
std::string& Failing() {
  static std::string call;
  return call;
}
bool Fails(const std::string& call) {
  if (Failing() != call) return false;
  errno = EPERM;
  return true;
}

}  // namespace

// The linker leads the product's calls here (--wrap), and calls of __real_* to the libraries.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl50-cpp)
extern "C" {
int __real_prctl(int option, ...);
int __real_capng_get_caps_process();
int __real_capng_apply(capng_select_t set);

// It takes as many arguments as there can be, so it reads beyond those that were given.
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
  if (Failing() == "get, without a reason") return -1;
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

namespace kipt::testing {
namespace {

TEST(CapabilityFaultTest, EachStepThatFailsIsNamed) {
  struct Row {
    std::string failing;
    std::string step;
    std::string reason = "Operation not permitted";
  };
  for (const Row& row :
       {Row{"get", "reading them"}, Row{"get, without a reason", "reading them", "Success"},
        Row{"bounds", "the bounding set"}, Row{"caps", "the thread's sets"},
        Row{"ambient", "the ambient set"}, Row{"no_new_privs", "PR_SET_NO_NEW_PRIVS"}}) {
    EXPECT_EQ(InChild([&row] {
                Failing() = row.failing;
                errno = EACCES;  // another call's
                return agent::DropCapabilities(/*keep_net_raw=*/true).ToString();
              }),
              absl::StrCat("INTERNAL: giving up capabilities: ", row.step, ": ", row.reason));
  }
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

}  // namespace
}  // namespace kipt::testing
