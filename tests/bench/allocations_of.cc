// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/allocation_count.h"
#include "tests/bench/call_trace.h"

namespace kipt::testing {
namespace {

constexpr int kFailed = 3;

// In the child. What the programs count arrives in `shared` by itself; what the process itself
// counted is put there at the end.
int CountIn(AllocationCounters& shared, int fd, const std::function<absl::Status()>& work,
            Counted counted) {
  if (counted == Counted::kProgramsOnly) {
    setenv(kAllocationsVariable, absl::StrCat("/proc/", getpid(), "/fd/", fd).c_str(), 1);
    setenv("LD_PRELOAD", KIPT_ALLOCATION_PRELOAD, 1);
  }
  const AllocationCounters& own = CountOwnAllocations();
  const absl::Status status = work();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return kFailed;
  }
  if (counted == Counted::kAll) {
    shared.count = own.count.load();
    shared.bytes = own.bytes.load();
  }
  return 0;
}

}  // namespace

absl::StatusOr<AllocationCounts> CountAllocations(const std::function<absl::Status()>& work,
                                                  Counted counted) {
  const int fd = memfd_create("allocations", MFD_CLOEXEC);
  const absl::Cleanup close_it = [fd] { close(fd); };
  if (fd < 0 || ftruncate(fd, sizeof(AllocationCounters)) != 0) {
    return absl::InternalError(absl::StrCat("memfd_create: ", std::strerror(errno)));
  }
  void* memory =
      mmap(nullptr, sizeof(AllocationCounters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return absl::InternalError("mmap failed");
  auto* shared = new (memory) AllocationCounters{};
  const pid_t child = fork();
  if (child == 0) _exit(CountIn(*shared, fd, work, counted));
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    munmap(memory, sizeof(AllocationCounters));
    return absl::InternalError("what was counted failed");
  }
  const AllocationCounts counts = {.count = shared->count, .bytes = shared->bytes};
  munmap(memory, sizeof(AllocationCounters));
  return counts;
}

}  // namespace kipt::testing
