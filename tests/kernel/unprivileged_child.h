// SPDX-License-Identifier: Apache-2.0
//
// A child process that gives up privileges, and what the kernel reports about a thread.
#ifndef KIPT_TESTS_KERNEL_UNPRIVILEGED_CHILD_H_
#define KIPT_TESTS_KERNEL_UNPRIVILEGED_CHILD_H_

#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/strings/ascii.h"
#include "tests/agent/process/in_child.h"

namespace kipt::testing {

// Makes this process run as user and group 65534, without any capability but `capability`, which is
// ambient, as systemd starts a service with User= and AmbientCapabilities=. What went wrong.
inline std::string BecomeNobodyWith(int capability) {
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

}  // namespace kipt::testing

#endif  // KIPT_TESTS_KERNEL_UNPRIVILEGED_CHILD_H_
