// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/sanitizer.h
//
// Whether this build has the run time of a sanitizer in it, which has threads and makes system
// calls that the program itself has not; or that of line coverage, which writes files at the end.
#ifndef KIPT_AGENT_PROCESS_SANITIZER_H_
#define KIPT_AGENT_PROCESS_SANITIZER_H_

namespace kipt::agent {

// g++ says so by macros, clang by __has_feature, and our preset for coverage by KIPT_COVERAGE.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(KIPT_COVERAGE)
inline constexpr bool kBuiltWithASanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
inline constexpr bool kBuiltWithASanitizer = true;
#else
inline constexpr bool kBuiltWithASanitizer = false;
#endif
#else
inline constexpr bool kBuiltWithASanitizer = false;
#endif

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_SANITIZER_H_
