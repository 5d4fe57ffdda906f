// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/process_usage.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "agent/process/read_file.h"

namespace kipt::agent {
namespace {

// Fields of proc_pid_stat(5), numbered from the first behind the command.
constexpr size_t kUserTime = 11;
constexpr size_t kSystemTime = 12;
constexpr size_t kStartTime = 19;
constexpr size_t kResidentPages = 21;

std::string TextOf(const std::string& path) { return ReadFile(path).value_or(""); }

// When the machine was booted, by the clock as it is set now.
std::optional<double> BootTime(const std::string& proc) {
  const std::string text = TextOf(proc + "/stat");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    int64_t seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtoi(line, &seconds)) {
      return static_cast<double>(seconds);
    }
  }
  return std::nullopt;
}

std::optional<double> CountFds(const std::string& proc) {
  std::error_code error;
  std::filesystem::directory_iterator entry(proc + "/self/fd", error);
  // One of them is the directory itself, open for as long as it is read.
  double count = -1;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
  if (error) return std::nullopt;
  return count;
}

}  // namespace

std::optional<ProcessUsage> ReadProcessUsage(const std::string& proc) {
  const std::string text = TextOf(proc + "/self/stat");
  // The command, in parentheses, may itself contain any character.
  const size_t command_end = text.rfind(") ");
  if (command_end == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(command_end + 2), ' ');
  if (fields.size() <= kResidentPages) return std::nullopt;
  double user = 0;
  double system = 0;
  double start = 0;
  double pages = 0;
  if (!absl::SimpleAtod(fields[kUserTime], &user) ||
      !absl::SimpleAtod(fields[kSystemTime], &system) ||
      !absl::SimpleAtod(fields[kStartTime], &start) ||
      !absl::SimpleAtod(fields[kResidentPages], &pages)) {
    return std::nullopt;
  }
  const std::optional<double> boot_time = BootTime(proc);
  const std::optional<double> open_fds = CountFds(proc);
  if (!boot_time || !open_fds) return std::nullopt;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return ProcessUsage{.start_time_seconds = *boot_time + start / ticks,
                      .cpu_seconds = (user + system) / ticks,
                      .resident_bytes = pages * static_cast<double>(sysconf(_SC_PAGESIZE)),
                      .open_fds = *open_fds};
}

}  // namespace kipt::agent
