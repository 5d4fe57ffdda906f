// SPDX-License-Identifier: Apache-2.0
//
// malloc() and its kin, counted: in a program that links allocation_count.cc, and in programs that
// are started with it, built as a shared object, in LD_PRELOAD.
#ifndef KIPT_TESTS_BENCH_ALLOCATION_COUNT_H_
#define KIPT_TESTS_BENCH_ALLOCATION_COUNT_H_

#include <atomic>
#include <cstdint>

namespace kipt::testing {

struct AllocationCounters {
  std::atomic<uint64_t> count;
  // As asked for; realloc() counts as one allocation of its whole new size.
  std::atomic<uint64_t> bytes;
};

// A preloaded program adds to counters that lie in the file this variable names, from its
// constructors on.
inline constexpr char kAllocationsVariable[] = "KIPT_ALLOCATIONS";

// This process's own, which count from the first call on. Under a sanitizer, which brings its own
// malloc(), they stay zero.
const AllocationCounters& CountOwnAllocations();

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_ALLOCATION_COUNT_H_
