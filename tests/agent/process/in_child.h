// SPDX-License-Identifier: Apache-2.0
//
// Runs what changes the whole process and cannot be undone.
#ifndef KIPT_TESTS_AGENT_PROCESS_IN_CHILD_H_
#define KIPT_TESTS_AGENT_PROCESS_IN_CHILD_H_

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/support/child.h"

namespace kipt::testing {

// Runs `body` in a child, which a filter never leaves; what it returns: what went wrong.
inline std::string InChild(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe";
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    DieWithParent(parent);
    const std::string wrong = body();
    const bool sent =
        write(ends[1], wrong.data(), wrong.size()) == static_cast<ssize_t>(wrong.size());
    _exit(sent ? 0 : 1);
  }
  close(ends[1]);
  std::string wrong;
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    wrong.append(buffer, static_cast<size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? wrong : absl::StrCat(wrong, " wait status ", status);
}

// The last word of the line of /proc/thread-self/status that begins with `key`.
inline std::string OfThread(absl::string_view key) {
  std::ifstream file("/proc/thread-self/status");
  for (std::string line; std::getline(file, line);) {
    if (absl::string_view(line).substr(0, key.size()) == key) return line.substr(key.size() + 1);
  }
  return "";
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_AGENT_PROCESS_IN_CHILD_H_
