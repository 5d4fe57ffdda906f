// SPDX-License-Identifier: Apache-2.0
#include "agent/process/own_process.h"

#include <fcntl.h>
#include <malloc.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "agent/process/files.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

// glibc's own default, which grows to 32 MiB with the blocks that are freed unless it is set.
constexpr int kLargeBlock = 128 * 1024;

// Fields of proc_pid_stat(5), numbered from the first behind the command.
constexpr size_t kUserTime = 11;
constexpr size_t kSystemTime = 12;
constexpr size_t kStartTime = 19;
constexpr size_t kResidentPages = 21;

// When the machine was booted, by the clock as it is set now; 0 where that cannot be read.
double BootTime(const std::string& proc) {
  double seconds = 0;
  const std::string text = ReadFile(proc + "/stat").value_or("");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtod(line, &seconds)) break;
  }
  return seconds;
}

// A message is one datagram, and a status that fills a screen tells less than one that does not.
constexpr size_t kLongestStatus = 1024;

void Send(const std::string& message) { sd_notify(/*unset_environment=*/0, message.c_str()); }

}  // namespace

void OccupyStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The wrong way round, so that reading and writing fail. The lowest free number is `fd`.
    const int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    // Where there is no /dev, any descriptor does.
    if (open("/dev/null", flags) < 0 && open("/", O_RDONLY | O_DIRECTORY) < 0) return;
  }
}

int FinishOutput(int exit_code) {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (flushed && std::cout.good() && std::ferror(stdout) == 0) return exit_code;
  // The error of an earlier write is lost.
  std::cerr << "Error: writing to standard output: "
            << (error == 0 ? "not all of it was written" : std::generic_category().message(error))
            << "\n";
  return 1;
}

void KeepHeapSmall() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, kLargeBlock);
}

void GiveBackFreePages() { malloc_trim(0); }

std::optional<ProcessUsage> ReadProcessUsage(const std::string& proc) {
  const std::string text = ReadFile(proc + "/self/stat").value_or("");
  // The command, in parentheses, may itself contain any character.
  const size_t command_end = text.rfind(") ");
  if (command_end == std::string::npos) return std::nullopt;
  const absl::string_view rest = absl::string_view(text).substr(command_end + 2);
  std::vector<double> fields;
  for (const absl::string_view field : absl::StrSplit(rest, ' ')) {
    double value = 0;
    // The state comes first, and is a letter.
    if (!absl::SimpleAtod(field, &value) && !fields.empty()) break;
    fields.push_back(value);
  }
  const double boot_time = BootTime(proc);
  std::vector<std::string> fds;
  const bool listed = ListDirectory(proc + "/self/fd", fds) == 0;
  if (fields.size() <= kResidentPages || boot_time == 0 || !listed) return std::nullopt;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return ProcessUsage{
      .start_time_seconds = boot_time + fields[kStartTime] / ticks,
      .cpu_seconds = (fields[kUserTime] + fields[kSystemTime]) / ticks,
      .resident_bytes = fields[kResidentPages] * static_cast<double>(sysconf(_SC_PAGESIZE)),
      // Without the directory itself, open for as long as it was read.
      .open_fds = static_cast<double>(fds.size()) - 1};
}

void ServiceManager::Ready() const { Send("READY=1"); }

void ServiceManager::Status(absl::string_view text) const {
  const std::string line = featuregates::Printable(text);
  size_t end = std::min(line.size(), kLongestStatus);
  // Not in the middle of a UTF-8 sequence: systemd drops a status that is not UTF-8.
  while (end > 0 && end < line.size() && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) {
    --end;
  }
  Send(absl::StrCat("STATUS=", line.substr(0, end)));
}

void ServiceManager::Reloading() const {
  // CLOCK_MONOTONIC in libstdc++. systemd compares it with the moment at which it sent the signal.
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
  Send(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", now.count()));
}

void ServiceManager::Stopping() const { Send("STOPPING=1"); }

std::vector<OwnedFd> TakePassedSockets() {
  std::vector<OwnedFd> sockets;
  // Below 0: they cannot be taken over.
  const int count = std::max(sd_listen_fds(/*unset_environment=*/1), 0);
  sockets.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) sockets.emplace_back(SD_LISTEN_FDS_START + i);
  return sockets;
}

}  // namespace kipt::agent
