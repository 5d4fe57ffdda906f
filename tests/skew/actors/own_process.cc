// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/actors/own_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/child.h"

namespace kipt::skew {
namespace {

// No text of an act has a NUL.
constexpr char kEnd = '\0';

std::string TextOf(const Act& act) {
  std::vector<std::string> parts = {act.ok ? "1" : "0", act.error, absl::StrCat(act.done.size())};
  parts.insert(parts.end(), act.done.begin(), act.done.end());
  parts.insert(parts.end(), act.calls.begin(), act.calls.end());
  return absl::StrJoin(parts, std::string(1, kEnd));
}

Act ActOf(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, kEnd);
  size_t done = 0;
  if (parts.size() < 3 || !absl::SimpleAtoi(parts[2], &done) || parts.size() < 3 + done) {
    return {.ok = false, .error = "the process of the act died"};
  }
  const auto calls = parts.begin() + 3 + static_cast<ptrdiff_t>(done);
  return {.ok = parts[0] == "1",
          .error = parts[1],
          .done = {parts.begin() + 3, calls},
          .calls = {calls, parts.end()}};
}

[[noreturn]] void Run(const char* name, const std::function<Act()>& act, int output, pid_t parent) {
  testing::DieWithParent(parent);
  prctl(PR_SET_NAME, name);
  const std::string text = TextOf(act());
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = write(output, text.data() + at, text.size() - at);
    if (written <= 0) _exit(1);
    at += static_cast<size_t>(written);
  }
  _exit(0);
}

}  // namespace

Act InProcess(const char* name, const std::function<Act()>& act) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {.ok = false, .error = "pipe2 failed"};
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) Run(name, act, ends[1], parent);
  close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t size = 0; (size = read(ends[0], part, sizeof(part))) > 0;) {
    text.append(part, static_cast<size_t>(size));
  }
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return ActOf(text);
}

}  // namespace kipt::skew
