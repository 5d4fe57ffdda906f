// SPDX-License-Identifier: Apache-2.0
//
// Programs, threads, files, and what is waited with.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/faults/layer.h"

namespace kipt::testing {
namespace {

// Reads of one file that are counted. /proc/kallsyms takes a thousand, and the fifth is as the
// fourth.
constexpr int kReadsOfAFile = 4;

std::array<std::atomic<int>, 1024> g_reads;

int NoteOpened(int fd) {
  if (fd >= 0 && static_cast<size_t>(fd) < g_reads.size()) g_reads[static_cast<size_t>(fd)] = 0;
  return fd;
}

bool CountsAsRead(int fd) {
  if (!Armed() || fd < 0 || static_cast<size_t>(fd) >= g_reads.size()) return false;
  struct stat status = {};
  if (syscall(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH) != 0) return false;
  // What timers, signals and inotify are read from cannot fail.
  return S_ISREG(status.st_mode) && g_reads[static_cast<size_t>(fd)]++ < kReadsOfAFile;
}

// Starts the stand-in instead, which runs `path` itself.
int SpawnStandIn(const FaultRow& row, pid_t* pid, const char* path,
                 const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                 char* const argv[], char* const environment[]) {
  static auto* const real =
      Real<int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
               char* const[], char* const[])>("posix_spawn");
  std::vector<std::string> more = {
      std::string(kStandInKind) + "=" + std::to_string(static_cast<uint32_t>(row.kind)),
      std::string(kStandInNumber) + "=" + std::to_string(row.number),
      std::string(kStandInProgram) + "=" + path};
  std::vector<char*> all;
  for (char* const* variable = environment; *variable != nullptr; ++variable) {
    all.push_back(*variable);
  }
  for (std::string& variable : more) all.push_back(variable.data());
  all.push_back(nullptr);
  return real(pid, TheControl()->stand_in, actions, attributes, argv, all.data());
}

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace
}  // namespace kipt::testing

using kipt::testing::FailWith;
using kipt::testing::FaultRow;
using kipt::testing::Kind;
using kipt::testing::Meet;
using kipt::testing::ModeOf;
using kipt::testing::NoteOpened;
using kipt::testing::Point;
using kipt::testing::Real;

extern "C" {

int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const argv[],
                char* const environment[]) {
  static auto* const real =
      Real<int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
               char* const[], char* const[])>("posix_spawn");
  const FaultRow* row = Meet(Point::kProgram);
  if (row == nullptr) return real(pid, path, actions, attributes, argv, environment);
  if (row->kind == Kind::kErrno) return row->number;
  return kipt::testing::SpawnStandIn(*row, pid, path, actions, attributes, argv, environment);
}

pid_t waitpid(pid_t pid, int* status, int options) {
  static auto* const real = Real<pid_t(pid_t, int*, int)>("waitpid");
  const FaultRow* row = Meet(Point::kWaitpid);
  return row != nullptr ? FailWith(*row) : real(pid, status, options);
}

int poll(pollfd* waits, nfds_t count, int milliseconds) {
  static auto* const real = Real<int(pollfd*, nfds_t, int)>("poll");
  const FaultRow* row = Meet(Point::kPoll);
  return row != nullptr ? FailWith(*row) : real(waits, count, milliseconds);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  static auto* const real =
      Real<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  const FaultRow* row = Meet(Point::kThread);
  return row != nullptr ? row->number : real(thread, attributes, start, argument);
}

#define KIPT_OPEN(name)                                                \
  int name(const char* path, int flags, ...) {                         \
    static auto* const real = Real<int(const char*, int, ...)>(#name); \
    va_list arguments;                                                 \
    va_start(arguments, flags);                                        \
    const mode_t mode = ModeOf(flags, arguments);                      \
    va_end(arguments);                                                 \
    const FaultRow* row = Meet(Point::kOpen);                          \
    if (row != nullptr) return FailWith(*row);                         \
    return NoteOpened(real(path, flags, mode));                        \
  }
KIPT_OPEN(open)
KIPT_OPEN(open64)

#define KIPT_OPENAT(name)                                                   \
  int name(int directory, const char* path, int flags, ...) {               \
    static auto* const real = Real<int(int, const char*, int, ...)>(#name); \
    va_list arguments;                                                      \
    va_start(arguments, flags);                                             \
    const mode_t mode = ModeOf(flags, arguments);                           \
    va_end(arguments);                                                      \
    const FaultRow* row = Meet(Point::kOpen);                               \
    if (row != nullptr) return FailWith(*row);                              \
    return NoteOpened(real(directory, path, flags, mode));                  \
  }
KIPT_OPENAT(openat)
KIPT_OPENAT(openat64)

// open() of who is compiled with _FORTIFY_SOURCE and gives no mode.
int __open_2(const char* path, int flags) { return open(path, flags); }

#define KIPT_FOPEN(name)                                                    \
  FILE* name(const char* path, const char* mode) {                          \
    static auto* const real = Real<FILE*(const char*, const char*)>(#name); \
    if (const FaultRow* row = Meet(Point::kOpen)) {                         \
      errno = row->number;                                                  \
      return nullptr;                                                       \
    }                                                                       \
    FILE* file = real(path, mode);                                          \
    if (file != nullptr) NoteOpened(fileno(file));                          \
    return file;                                                            \
  }
KIPT_FOPEN(fopen)
KIPT_FOPEN(fopen64)

ssize_t read(int fd, void* bytes, size_t size) {
  static auto* const real = Real<ssize_t(int, void*, size_t)>("read");
  const FaultRow* row = kipt::testing::CountsAsRead(fd) ? Meet(Point::kRead) : nullptr;
  if (row != nullptr && row->kind == Kind::kErrno) return FailWith(*row);
  return real(fd, bytes, row != nullptr ? std::min<size_t>(size, 1) : size);
}

// What std::filesystem::directory_iterator opens a directory with.
DIR* fdopendir(int fd) {
  static auto* const real = Real<DIR*(int)>("fdopendir");
  if (const FaultRow* row = Meet(Point::kDirectory)) {
    errno = row->number;
    return nullptr;
  }
  return real(fd);
}

int stat(const char* path, struct stat* status) noexcept {
  static auto* const real = Real<int(const char*, struct stat*)>("stat");
  const FaultRow* row = Meet(Point::kStat);
  return row != nullptr ? FailWith(*row) : real(path, status);
}

int fstat(int fd, struct stat* status) noexcept {
  static auto* const real = Real<int(int, struct stat*)>("fstat");
  const FaultRow* row = Meet(Point::kStat);
  return row != nullptr ? FailWith(*row) : real(fd, status);
}

int access(const char* path, int mode) noexcept {
  static auto* const real = Real<int(const char*, int)>("access");
  const FaultRow* row = Meet(Point::kAccess);
  return row != nullptr ? FailWith(*row) : real(path, mode);
}

int flock(int fd, int operation) noexcept {
  static auto* const real = Real<int(int, int)>("flock");
  const FaultRow* row = Meet(Point::kFlock);
  return row != nullptr ? FailWith(*row) : real(fd, operation);
}

int epoll_wait(int fd, epoll_event* events, int room, int milliseconds) {
  static auto* const real = Real<int(int, epoll_event*, int, int)>("epoll_wait");
  const FaultRow* row = Meet(Point::kEpollWait);
  return row != nullptr ? FailWith(*row) : real(fd, events, room, milliseconds);
}

int epoll_ctl(int fd, int operation, int target, epoll_event* event) noexcept {
  static auto* const real = Real<int(int, int, int, epoll_event*)>("epoll_ctl");
  const FaultRow* row = Meet(Point::kEpollCtl);
  return row != nullptr ? FailWith(*row) : real(fd, operation, target, event);
}

int timerfd_create(clockid_t clock, int flags) noexcept {
  static auto* const real = Real<int(clockid_t, int)>("timerfd_create");
  const FaultRow* row = Meet(Point::kTimer);
  return row != nullptr ? FailWith(*row) : real(clock, flags);
}

int inotify_init1(int flags) noexcept {
  static auto* const real = Real<int(int)>("inotify_init1");
  const FaultRow* row = Meet(Point::kInotify);
  return row != nullptr ? FailWith(*row) : real(flags);
}

int inotify_add_watch(int fd, const char* path, uint32_t mask) noexcept {
  static auto* const real = Real<int(int, const char*, uint32_t)>("inotify_add_watch");
  const FaultRow* row = Meet(Point::kInotify);
  return row != nullptr ? FailWith(*row) : real(fd, path, mask);
}

}  // extern "C"
