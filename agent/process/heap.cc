// SPDX-License-Identifier: Apache-2.0
#include "agent/process/heap.h"

#include <malloc.h>

namespace kipt::agent {
namespace {

// glibc's own default, which grows to 32 MiB with the blocks that are freed unless it is set.
constexpr int kLargeBlock = 128 * 1024;

}  // namespace

void KeepHeapSmall() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, kLargeBlock);
}

void GiveBackFreePages() { malloc_trim(0); }

}  // namespace kipt::agent
