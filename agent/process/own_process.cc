// SPDX-License-Identifier: Apache-2.0
#include "agent/process/own_process.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <malloc.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

// glibc's default; setting it keeps glibc from raising it to 32 MiB as blocks are freed.
constexpr int kLargeBlock = 128 * 1024;

// Fields of proc_pid_stat(5), counted from the first after the command.
constexpr size_t kUserTime = 11;
constexpr size_t kSystemTime = 12;
constexpr size_t kStartTime = 19;
constexpr size_t kResidentPages = 21;

// When the machine was booted, by the clock's present setting; 0 if that cannot be read.
double BootTime(const std::string& proc) {
  double seconds = 0;
  const std::string text = ReadFile(proc + "/stat").value_or("");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtod(line, &seconds)) break;
  }
  return seconds;
}

constexpr unsigned int kKept[] = {CAP_NET_ADMIN, CAP_NET_RAW};

absl::Status Missing(unsigned int capability, bool keep_net_raw) {
  const absl::string_view all = keep_net_raw ? "CAP_NET_ADMIN CAP_NET_RAW" : "CAP_NET_ADMIN";
  return absl::PermissionDeniedError(absl::StrCat(
      capability == CAP_NET_ADMIN
          ? "CAP_NET_ADMIN is missing, which is needed to read and write netfilter's rules"
          : "CAP_NET_RAW is missing, which is needed for iptables-legacy's socket (not with "
            "--iptables-mode=nft)",
      ": run as root, or grant it; in a systemd unit by CapabilityBoundingSet=", all,
      " and AmbientCapabilities=", all,
      "; in a Kubernetes container by securityContext: {runAsUser: 0, capabilities: {drop: [ALL], "
      "add: [",
      keep_net_raw ? "NET_ADMIN, NET_RAW" : "NET_ADMIN", "]}}"));
}

absl::Status Failure(absl::string_view step) {
  return absl::InternalError(absl::StrCat(step, ": ", ErrorText(errno)));
}
absl::Status Refused(absl::string_view step) {
  return Failure(absl::StrCat("giving up capabilities: ", step));
}
absl::Status LandlockFailure(absl::string_view step) {
  return Failure(absl::StrCat("forbidding writes to files (Landlock): ", step));
}

// Reads the calling thread's capabilities, for capng_have_capability.
absl::Status ReadCapabilities() {
  // ThreadSanitizer has a thread of its own. Without /proc the caller is believed.
  std::vector<std::string> threads;
  if (!kBuiltWithASanitizer && ListDirectory("/proc/self/task", threads) == 0 &&
      threads.size() > 1) {
    return absl::FailedPreconditionError(
        "capabilities are given up before there are other threads: those would keep theirs");
  }
  errno = 0;
  return capng_get_caps_process() == 0 ? absl::OkStatus() : Refused("reading them");
}

// linux/landlock.h of Linux 6.12. Older headers lack most of it; older kernels take zeros.
struct LandlockRuleset {
  uint64_t handled_access_fs;
  uint64_t handled_access_net = 0;
  uint64_t scoped = 0;
};
constexpr uint64_t kTruncate = uint64_t{1} << 14;
constexpr uint64_t kScopeSignal = uint64_t{1} << 1;
constexpr long kAbiOfRefer = 2;
constexpr long kAbiOfTruncate = 3;
constexpr long kAbiOfScopes = 6;

constexpr uint64_t kForbidden = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                                LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;

// A missing path needs no exception.
absl::Status Except(const OwnedFd& ruleset, const std::string& path, uint64_t access) {
  const OwnedFd file(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!file.valid()) return absl::OkStatus();
  landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = file.get()};
  if (syscall(SYS_landlock_add_rule, ruleset.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return LandlockFailure(path);
  }
  return absl::OkStatus();
}

// A status that fills a screen is not read, and a message is one datagram.
constexpr size_t kLongestStatus = 1024;

// "READY" of "READY=1".
absl::string_view KindOf(absl::string_view message) { return message.substr(0, message.find('=')); }

}  // namespace

void OccupyStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // Opened the wrong way round, so that using it fails. The lowest free number is `fd`.
    const int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    // Without /dev, any descriptor will do.
    if (open("/dev/null", flags) < 0) open("/", O_RDONLY | O_DIRECTORY);
  }
}

int FinishOutput(int exit_code, int unwritten) {
  errno = 0;
  if (std::cout.flush().good()) return exit_code;
  const int error = errno;
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  const bool polled = poll(&output, 1, 0) == 1;
  if (error == EPIPE || (polled && (output.revents & (POLLERR | POLLHUP)) != 0)) return exit_code;
  // The error of an earlier write is lost.
  std::cerr << "Error: writing to standard output: "
            << (error == 0 ? "not all of it was written" : ErrorText(error)) << "\n";
  return unwritten;
}

bool LossyOutput::Write(absl::string_view line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string text = absl::StrCat(torn_ ? "\n" : "", line);
  const size_t written = WriteStart(text);
  if (written == text.size()) {
    torn_ = false;
    return true;
  }
  torn_ = torn_ ? written != 1 : written != 0;
  ++dropped_;
  return false;
}

size_t LossyOutput::WriteStart(absl::string_view text) {
  constexpr int kPatienceMs = 10;
  size_t written = 0;
  while (written < text.size()) {
    pollfd output{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (poll(&output, 1, kPatienceMs) != 1) break;
    // A pipe that poll calls writable takes as much.
    const absl::string_view part = text.substr(written, PIPE_BUF);
    ssize_t count = send(fd_, part.data(), part.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == ENOTSOCK) count = write(fd_, part.data(), part.size());
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  return written;
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
  std::vector<double> fields;
  for (const absl::string_view field : absl::StrSplit(text.substr(command_end + 2), ' ')) {
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
      // Without the descriptor that listed the directory.
      .open_fds = static_cast<double>(fds.size()) - 1};
}

absl::Status DropCapabilities(bool keep_net_raw) {
  if (absl::Status status = ReadCapabilities(); !status.ok()) return status;
  const absl::Span<const unsigned int> kept(kKept, keep_net_raw ? 2 : 1);
  for (const unsigned int capability : kept) {
    if (capng_have_capability(CAPNG_PERMITTED, capability) == 0) {
      return Missing(capability, keep_net_raw);
    }
  }
  return LimitCapabilities(kept, keep_net_raw);
}

absl::Status LimitCapabilities(absl::Span<const unsigned int> most, bool for_programs) {
  if (absl::Status status = ReadCapabilities(); !status.ok()) return status;
  std::vector<unsigned int> kept;
  for (const unsigned int capability : most) {
    if (capng_have_capability(CAPNG_PERMITTED, capability) != 0) kept.push_back(capability);
  }
  capng_clear(CAPNG_SELECT_ALL);
  const auto sets =
      static_cast<capng_type_t>(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET |
                                (for_programs ? CAPNG_INHERITABLE | CAPNG_AMBIENT : 0));
  for (const unsigned int capability : kept) capng_update(CAPNG_ADD, sets, capability);
  // First, as the next step takes CAP_SETPCAP away. Without it, as a service with an ambient
  // CAP_NET_ADMIN is, libcap-ng leaves the bounding set; no_new_privs below keeps programs from
  // gaining anything from it.
  if (capng_apply(CAPNG_SELECT_BOUNDS) != 0) return Refused("the bounding set");
  if (capng_apply(CAPNG_SELECT_CAPS) != 0) return Refused("the thread's sets");
  if (capng_apply(CAPNG_SELECT_AMBIENT) != 0) return Refused("the ambient set");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Refused("PR_SET_NO_NEW_PRIVS");
  return absl::OkStatus();
}

absl::Status ForbidFileWrites(const std::string& may_be_made) {
  if (kBuiltWithASanitizer) {
    return absl::UnimplementedError("an instrumented build writes files of its own");
  }
  const long abi =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 1) {
    return absl::UnimplementedError(
        absl::StrCat("this kernel, or the container, has no Landlock: ", ErrorText(errno)));
  }
  LandlockRuleset rules = {.handled_access_fs = kForbidden};
  if (abi >= kAbiOfRefer) rules.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
  if (abi >= kAbiOfTruncate) rules.handled_access_fs |= kTruncate;
  if (abi >= kAbiOfScopes) rules.scoped = kScopeSignal;
  const OwnedFd ruleset(
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0)));
  if (!ruleset.valid()) return LandlockFailure("making the rules");
  // A shell script in a program's place redirects to it.
  absl::Status status = Except(ruleset, "/dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE);
  if (status.ok() && !may_be_made.empty()) {
    const std::string directory = std::filesystem::path(may_be_made).parent_path().string();
    status = Except(ruleset, directory, LANDLOCK_ACCESS_FS_MAKE_REG);
  }
  if (!status.ok()) return status;
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) {
    return LandlockFailure("applying them");
  }
  return absl::OkStatus();
}

bool NotifyServiceManager(const std::string& message) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  const size_t length = path == nullptr ? 0 : std::strlen(path);
  if (length < 2 || length >= sizeof(address.sun_path)) return true;
  std::memcpy(address.sun_path, path, length);
  // An abstract address.
  if (path[0] == '@') address.sun_path[0] = '\0';
  const OwnedFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return true;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  return sendto(fd.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL, to, size) >=
             0 ||
         errno != EAGAIN;
}

void ServiceManager::Notify(std::string message) {
  std::erase_if(untold_,
                [&](const std::string& older) { return KindOf(older) == KindOf(message); });
  untold_.push_back(std::move(message));
  NotifyRest();
}

void ServiceManager::NotifyRest() {
  const auto first_untold = absl::c_find_if_not(untold_, NotifyServiceManager);
  untold_.erase(untold_.begin(), first_untold);
}

void ServiceManager::Ready() { Notify("READY=1"); }

void ServiceManager::Status(absl::string_view text) {
  const std::string line = Printable(text);
  size_t end = std::min(line.size(), kLongestStatus);
  // Not within a UTF-8 sequence: systemd drops a status that is not UTF-8. A NUL follows the last.
  while ((static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
  Notify(absl::StrCat("STATUS=", line.substr(0, end)));
}

void ServiceManager::Reloading() {
  // CLOCK_MONOTONIC in libstdc++. systemd compares it with the moment at which it sent the signal.
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
  Notify(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", now.count()));
}

void ServiceManager::Stopping() { Notify("STOPPING=1"); }

std::vector<OwnedFd> TakePassedSockets() {
  constexpr int kFirst = 3;
  const char* const process = std::getenv("LISTEN_PID");
  const char* const text = std::getenv("LISTEN_FDS");
  const bool ours = process != nullptr && absl::StrCat(getpid()) == process;
  int count = 0;
  if (!ours || text == nullptr || !absl::SimpleAtoi(text, &count)) count = 0;
  std::vector<OwnedFd> sockets;
  for (int fd = kFirst; fd - kFirst < count; ++fd) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) break;
    sockets.emplace_back(fd);
  }
  for (const char* const name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(name);
  return sockets;
}

}  // namespace kipt::agent
