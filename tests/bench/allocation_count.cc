// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/allocation_count.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace kipt::testing {
namespace {

// Nothing in here may allocate, or be constructed late.
constinit AllocationCounters own = {};
constinit AllocationCounters* counters = &own;
// Off where time is taken, so that nothing gets dearer for being counted.
constinit bool counting = false;

// In a preloaded program, before its main().
[[gnu::constructor]] void ShareCounters() {
  const char* path = getenv(kAllocationsVariable);
  if (path == nullptr) return;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* shared =
      mmap(nullptr, sizeof(AllocationCounters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (shared == MAP_FAILED) return;
  counters = static_cast<AllocationCounters*>(shared);
  counting = true;
}

[[maybe_unused]] void Note(size_t bytes) {
  if (!counting) return;
  counters->count.fetch_add(1, std::memory_order_relaxed);
  counters->bytes.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace

const AllocationCounters& CountOwnAllocations() {
  counting = true;
  return own;
}

}  // namespace kipt::testing

// clang says so by __has_feature, g++ by macros.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KIPT_MALLOC_IS_TAKEN
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KIPT_MALLOC_IS_TAKEN
#endif
#ifndef KIPT_MALLOC_IS_TAKEN

// What glibc keeps for those who stand in front of its functions.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  kipt::testing::Note(size);
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  kipt::testing::Note(count * size);
  return __libc_calloc(count, size);
}

void* realloc(void* old, size_t size) {
  kipt::testing::Note(size);
  return __libc_realloc(old, size);
}

void* memalign(size_t alignment, size_t size) {
  kipt::testing::Note(size);
  return __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  kipt::testing::Note(size);
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** result, size_t alignment, size_t size) {
  kipt::testing::Note(size);
  void* memory = __libc_memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *result = memory;
  return 0;
}
}

#endif
