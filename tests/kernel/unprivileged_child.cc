// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel/unprivileged_child.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tests/support/child.h"

namespace kipt::testing {

std::string InChild(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe";
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    DieWithParent(parent);
    close(ends[0]);
    const std::string said = body();
    const bool told = write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    said.append(buffer, static_cast<size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? said : absl::StrCat(said, " wait status ", status);
}

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
  // What is not dumpable has a /proc that belongs to root. A service is executed as its user, and
  // so is dumpable.
  if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) return wrong("PR_SET_DUMPABLE");
  return "";
}

ThreadStatus::ThreadStatus(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    lines_[line.substr(0, colon)] =
        std::string(absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1)));
  }
}

std::string ThreadStatus::Text(const std::string& key) const {
  const auto line = lines_.find(key);
  return line == lines_.end() ? "" : line->second;
}

uint64_t ThreadStatus::Hex(const std::string& key) const {
  return std::strtoull(Text(key).c_str(), nullptr, 16);
}

}  // namespace kipt::testing
