// SPDX-License-Identifier: Apache-2.0
#include "tests/support/process_cost.h"

#include <sys/resource.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/background_program.h"

namespace kipt::testing {
namespace {

namespace fs = std::filesystem;

// The number after "NAME:" in a file like /proc/PID/status.
int64_t StatusNumber(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    int64_t number = 0;
    if (word == name + ":" && file >> number) return number;
  }
  return 0;
}

int64_t WakeupsOf(const std::map<pid_t, ThreadCost>& costs, pid_t thread) {
  const auto found = costs.find(thread);
  return found == costs.end() ? 0 : found->second.wakeups;
}

}  // namespace

absl::Duration CpuOfThisThread() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

absl::Duration CpuOfChildren() {
  rusage usage = {};
  getrusage(RUSAGE_CHILDREN, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
}

std::map<pid_t, ThreadCost> ThreadCosts(pid_t process) {
  std::map<pid_t, ThreadCost> costs;
  std::error_code error;
  for (const auto& task : fs::directory_iterator(absl::StrCat("/proc/", process, "/task"), error)) {
    pid_t thread = 0;
    if (!absl::SimpleAtoi(task.path().filename().string(), &thread)) continue;
    int64_t nanoseconds = 0;
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    costs[thread] = {
        .wakeups = StatusNumber((task.path() / "status").string(), "voluntary_ctxt_switches"),
        .cpu = absl::Nanoseconds(nanoseconds)};
  }
  return costs;
}

ThreadCost Spent(const std::map<pid_t, ThreadCost>& before,
                 const std::map<pid_t, ThreadCost>& after) {
  ThreadCost spent;
  for (const auto& [thread, cost] : after) {
    spent.wakeups += cost.wakeups - WakeupsOf(before, thread);
    const auto found = before.find(thread);
    spent.cpu += cost.cpu - (found == before.end() ? absl::ZeroDuration() : found->second.cpu);
  }
  return spent;
}

std::string WakeupsText(const std::map<pid_t, ThreadCost>& before,
                        const std::map<pid_t, ThreadCost>& after) {
  std::string text;
  for (const auto& [thread, cost] : after) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", thread, ": ",
                    cost.wakeups - WakeupsOf(before, thread));
  }
  return text;
}

bool ComesToRest(pid_t process) {
  std::map<pid_t, ThreadCost> last = ThreadCosts(process);
  absl::Time since = absl::Now();
  return WaitUntil([&] {
    std::map<pid_t, ThreadCost> now = ThreadCosts(process);
    if (Spent(last, now).wakeups != 0 || now.size() != last.size()) {
      last = std::move(now);
      since = absl::Now();
    }
    return absl::Now() - since >= absl::Milliseconds(300);
  });
}

Memory MemoryOf(pid_t process) {
  const std::string status = absl::StrCat("/proc/", process, "/status");
  return {.anonymous_kib = StatusNumber(status, "RssAnon"),
          .resident_kib = StatusNumber(status, "VmRSS"),
          .peak_kib = StatusNumber(status, "VmHWM")};
}

int DescriptorsOf(pid_t process) {
  int count = 0;
  std::error_code error;
  for (const auto& descriptor :
       fs::directory_iterator(absl::StrCat("/proc/", process, "/fd"), error)) {
    if (!descriptor.path().empty()) ++count;
  }
  return count;
}

}  // namespace kipt::testing
