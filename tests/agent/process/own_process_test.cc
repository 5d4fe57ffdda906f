// SPDX-License-Identifier: Apache-2.0
//
// This process' origin, and its descriptors, output, heap and usage in a child that may lose them.
#include "agent/process/own_process.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/process/origin.h"
#include "tests/agent/process/in_child.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

// Of the run times that kBuiltWithASanitizer means, what is in this program.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __tsan_init();
[[gnu::weak]] void __msan_init();
[[gnu::weak]] void __llvm_profile_initialize_file();
}
// NOLINTEND(bugprone-reserved-identifier)

namespace kipt::agent {
namespace {

using ::kipt::testing::InChild;

// ---- the build ----

TEST(BuildTest, KnowsWhetherItIsInstrumented) {
  const bool instrumented = __asan_init != nullptr || __tsan_init != nullptr ||
                            __msan_init != nullptr || __llvm_profile_initialize_file != nullptr;
  EXPECT_EQ(kBuiltWithASanitizer, instrumented);
}

// ---- standard descriptors ----

std::string Target(int fd) {
  char target[64] = {};
  if (readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), target, sizeof target - 1) < 0) {
    return "closed";
  }
  return target;
}

size_t OpenDescriptors() {
  std::vector<std::string> fds;
  ListDirectory("/proc/self/fd", fds);
  return fds.size();
}

// What is wrong with the descriptors 0 to 2, of which those in `closed` had been closed.
std::string CheckStandardDescriptors(const std::vector<int>& closed, const std::string& target) {
  std::string wrong;
  for (const int fd : closed) {
    char byte = 'x';
    const ssize_t used = fd == 0 ? read(fd, &byte, 1) : write(fd, &byte, 1);
    if (used >= 0) absl::StrAppend(&wrong, fd, " can be used; ");
    if (Target(fd) != target) absl::StrAppend(&wrong, fd, " is ", Target(fd), "; ");
    if (fcntl(fd, F_GETFD) != 0) absl::StrAppend(&wrong, "programs do not get ", fd, "; ");
  }
  return wrong;
}

TEST(StandardDescriptorsTest, AClosedOneIsTakenSoThatUsingItFails) {
  for (const std::vector<int>& closed :
       std::vector<std::vector<int>>{{}, {0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}}) {
    EXPECT_THAT(InChild([&closed] {
                  std::vector<std::string> before;
                  for (const int fd : {0, 1, 2}) before.push_back(Target(fd));
                  for (const int fd : closed) {
                    close(fd);
                    before[static_cast<size_t>(fd)] = "/dev/null";
                  }
                  const size_t open_before = OpenDescriptors();
                  fcntl(2, F_SETFD, FD_CLOEXEC);
                  std::vector<int> flags;
                  for (const int fd : {0, 1, 2}) flags.push_back(fcntl(fd, F_GETFD));
                  OccupyStandardDescriptors();
                  std::string wrong = CheckStandardDescriptors(closed, "/dev/null");
                  for (const int fd : {0, 1, 2}) {
                    const auto at = static_cast<size_t>(fd);
                    if (Target(fd) != before[at]) wrong += " another";
                    if (std::max(0, flags[at]) != fcntl(fd, F_GETFD)) wrong += " other flags";
                  }
                  if (OpenDescriptors() != open_before + closed.size()) wrong += " one too many";
                  return wrong;
                }),
                IsEmpty())
        << closed.size();
  }
}

TEST(StandardDescriptorsTest, WithoutDevNullADirectoryTakesItsPlace) {
  for (const int fd : {0, 1}) {
    const FailingCall no_null = {.number = SYS_openat,
                                 .argument = 2,
                                 .value = fd == 0 ? uint32_t{O_WRONLY} : uint32_t{O_RDONLY},
                                 .error = ENOENT};
    EXPECT_THAT(InChild([&] {
                  std::string wrong = "not run";
                  WithFailingCall(no_null, [&] {
                    close(fd);
                    OccupyStandardDescriptors();
                    wrong = CheckStandardDescriptors({fd}, "/");
                  });
                  return wrong;
                }),
                IsEmpty())
        << fd;
  }
}

// ---- heap ----

constexpr size_t kLarge = 128 * 1024;

// Blocks that glibc takes from the kernel one by one, more than before, after one of `size` bytes.
size_t MappedBlocks(size_t size) {
  const size_t before = mallinfo2().hblks;
  void* const block = std::malloc(size);
  const size_t mapped = mallinfo2().hblks - before;
  std::free(block);
  return mapped;
}

TEST(HeapTest, KeptSmallGivesEveryLargeBlockBack) {
  if (kBuiltWithASanitizer) return;  // which has a heap of its own
  EXPECT_THAT(InChild([]() -> std::string {
                // Once one is freed, glibc raises its limit to its size.
                MappedBlocks(16 * kLarge);
                KeepHeapSmall();
                if (MappedBlocks(32 * kLarge) != 1) return "a large block";
                // malloc adds 8 bytes and rounds up to 16.
                if (MappedBlocks(kLarge - 8) != 1) return "the smallest large block";
                return MappedBlocks(kLarge - 24) == 0 ? "" : "the largest small block";
              }),
              IsEmpty());
}

TEST(HeapTest, GivesFreePagesBackFromTheMiddle) {
  if (kBuiltWithASanitizer) return;
  EXPECT_THAT(InChild([]() -> std::string {
                constexpr size_t kBlocks = 4096;
                std::vector<std::unique_ptr<std::string>> blocks;
                for (size_t i = 0; i < kBlocks; ++i) {
                  blocks.push_back(std::make_unique<std::string>(16 * 1024, 'x'));
                }
                const double full = ReadProcessUsage()->resident_bytes;
                blocks.erase(blocks.begin(), blocks.end() - 1);
                GiveBackFreePages();
                const double given = full - ReadProcessUsage()->resident_bytes;
                return given > 48 * 1024 * 1024 ? "" : absl::StrCat("only ", given, " bytes");
              }),
              IsEmpty());
}

// ---- usage ----

// Fields 3 (state) to 24 (rss) of proc_pid_stat(5).
constexpr char kFields[] = "S 1 2 3 4 5 6 7 8 9 10 250 150 13 14 15 16 17 18 300 20 7";

TEST(ProcessUsageTest, IsReadFromProcOrNotAtAll) {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  const auto read = [](const std::string& process, const std::string& system, bool lists_fds) {
    const TemporaryTree proc;
    proc.Write("self/stat", process);
    proc.Write("stat", system);
    for (const char* fd : {"0", "1", "2", "17"}) {
      if (lists_fds) proc.Write(absl::StrCat("self/fd/", fd), "");
    }
    return ReadProcessUsage(proc.root());
  };
  const std::string whole = absl::StrCat("12 (sync) ", kFields, " 22 23\n");
  for (const std::string& process : {whole, absl::StrCat("12 (a) S 1 (b) ", kFields, "\n")}) {
    const std::optional<ProcessUsage> usage = read(process, "cpu 1 2\nbtime 1000\nctxt 5\n", true);
    ASSERT_TRUE(usage.has_value()) << process;
    EXPECT_DOUBLE_EQ(usage->start_time_seconds, 1000 + 300 / ticks);
    EXPECT_DOUBLE_EQ(usage->cpu_seconds, 400 / ticks);
    EXPECT_DOUBLE_EQ(usage->resident_bytes, 7 * page);
    EXPECT_DOUBLE_EQ(usage->open_fds, 3) << "without the one that lists them";
  }
  EXPECT_FALSE(read(kFields, "btime 1000\n", true)) << "no command";
  EXPECT_FALSE(read("12 (sync) S 1 2 3 4 5 6 7 8 9 10 250 150 13 x 15 16 17 18 300 20 7",
                    "btime 1000\n", true));
  EXPECT_FALSE(read(whole, "btime x\n", true)) << "no time of boot";
  EXPECT_FALSE(read(whole, "btime 1000\n", false)) << "no descriptors";
}

// ---- passed sockets ----

TEST(PassedSocketsTest, AreTakenOnceAndWithTheirNumbers) {
  // So that 3 and 4 are none that the child needs.
  const OwnedFd low(dup(0));
  const OwnedFd next(dup(0));
  struct Row {
    std::string count;  // $LISTEN_FDS
    bool to_another_process = false;
    size_t taken = 0;
  };
  for (const Row& row : {Row{"2", false, 2}, Row{"0"}, Row{"many"}, Row{"2", true}}) {
    EXPECT_THAT(InChild([&row]() -> std::string {
                  dup2(0, 3);
                  dup2(0, 4);
                  const int owner = row.to_another_process ? getppid() : getpid();
                  setenv("LISTEN_PID", std::to_string(owner).c_str(), 1);
                  setenv("LISTEN_FDS", row.count.c_str(), 1);
                  const std::vector<OwnedFd> sockets = TakePassedSockets();
                  if (sockets.size() != row.taken) return absl::StrCat(sockets.size(), " taken");
                  for (size_t i = 0; i < sockets.size(); ++i) {
                    if (sockets[i].get() != static_cast<int>(i) + 3) return "another number";
                    if (fcntl(sockets[i].get(), F_GETFD) != FD_CLOEXEC) return "programs get it";
                  }
                  if (getenv("LISTEN_FDS") != nullptr) return "the variable is still set";
                  return TakePassedSockets().empty() ? "" : "taken twice";
                }),
                IsEmpty())
        << row.count;
  }
}

// ---- unread output; last, because its large strings change the heap ----

// Fills `writer`; what is read of `reader` afterwards, without the filling.
std::string WhatComes(int reader, int writer, LossyOutput& output) {
  fcntl(writer, F_SETFL, O_NONBLOCK);
  while (write(writer, "....", 4) > 0) {
  }
  fcntl(writer, F_SETFL, 0);
  std::string read_all;
  const auto drain = [&] {
    std::string buffer(1 << 20, ' ');
    fcntl(reader, F_SETFL, O_NONBLOCK);
    for (ssize_t size = 0; (size = read(reader, buffer.data(), buffer.size())) > 0;) {
      read_all.append(buffer, 0, static_cast<size_t>(size));
    }
  };
  EXPECT_FALSE(output.Write("lost\n"));
  drain();
  // It ends within this one.
  EXPECT_FALSE(output.Write(std::string(1 << 20, '.') + "lost, too\n"));
  drain();
  EXPECT_TRUE(output.Write("one\n"));
  EXPECT_TRUE(output.Write("two\n"));
  EXPECT_EQ(output.dropped(), 2U);
  drain();
  return read_all.substr(read_all.find_last_of('.') + 1);
}

TEST(LossyOutputTest, DropsUnreadOutputAndContinuesOnANewLine) {
  std::array<int, 2> pipe_ends = {};
  ASSERT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
  LossyOutput pipe_output(pipe_ends[1]);
  EXPECT_EQ(WhatComes(pipe_ends[0], pipe_ends[1], pipe_output), "\none\ntwo\n");
  std::array<int, 2> sockets = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
  LossyOutput socket_output(sockets[1]);
  EXPECT_EQ(WhatComes(sockets[0], sockets[1], socket_output), "\none\ntwo\n");
  for (const int fd : {pipe_ends[0], pipe_ends[1], sockets[0], sockets[1]}) close(fd);
}

TEST(OriginTest, IsTheBootAndTheNetworkNamespaceOfThisThread) {
  struct stat about = {};
  ASSERT_EQ(stat("/proc/thread-self/ns/net", &about), 0);
  const absl::StatusOr<Origin> origin = ReadOrigin();
  ASSERT_THAT(origin, IsOk());
  EXPECT_EQ(origin->boot_id.size(), 36) << origin->boot_id;
  EXPECT_EQ(origin->network_namespace.device, about.st_dev);
  EXPECT_EQ(origin->network_namespace.inode, about.st_ino);
  EXPECT_EQ(*ReadOrigin(), *origin);
}

TEST(OriginTest, IsUnknownWhereAPartCannotBeRead) {
  const TemporaryTree tree;
  const std::string none = tree.Path("none");
  EXPECT_THAT(ReadOrigin({.boot_id = none}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(none)));
  EXPECT_THAT(ReadOrigin({.netns = none}), StatusIs(absl::StatusCode::kNotFound, HasSubstr(none)));
  tree.Write("empty", "\n");
  const std::string empty = tree.Path("empty");
  EXPECT_THAT(ReadOrigin({.boot_id = empty}),
              StatusIs(absl::StatusCode::kNotFound, absl::StrCat(empty, " is empty")));
}

}  // namespace
}  // namespace kipt::agent
