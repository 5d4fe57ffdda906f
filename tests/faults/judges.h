// SPDX-License-Identifier: Apache-2.0
//
// What is in the kernel before a fault and after it, and whether the program did right.
#ifndef KIPT_TESTS_FAULTS_JUDGES_H_
#define KIPT_TESTS_FAULTS_JUDGES_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/interop/agent_fixture.h"

namespace kipt::testing {

// Tables by "ip filter" and what nft has besides, as iptables-save and nft print them: the rules of
// each chain in their order, without counters.
using KernelText = std::map<std::string, std::string>;
// Of the calling thread's network namespace.
KernelText ReadKernel(IptablesMode mode);
// Where two differ, for people.
std::string Difference(const KernelText& is, const KernelText& desired);

// What is written at once. iptables-legacy writes a table at once, and the agent gives it a family.
enum class Unit { kKernel, kFamily, kTable };
// Empty where each unit is as in `before` or as in `desired`.
std::string HalfDone(const KernelText& now, const KernelText& before, const KernelText& desired,
                     Unit unit);

// How a run may end.
enum class End { kInPlace, kClearError };

struct SyncEnd {
  // -1 where it did not end.
  int exit_code = kExitOk;
  std::string output;
  KernelText now;
};
absl::StatusOr<End> JudgeSync(const SyncEnd& end, const KernelText& before,
                              const KernelText& desired, Unit unit);

struct DaemonEnd {
  // It ended before it was asked to.
  bool ended = false;
  // That happened while it started, which is allowed.
  bool at_start = false;
  // -1 where it did not end.
  int exit_code = kExitOk;
  std::string log;
  // Of the kernel's rules at the end.
  std::string difference;
  // From the damage until all was in place.
  absl::Duration missing;
};
absl::StatusOr<End> JudgeDaemon(const DaemonEnd& end);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_JUDGES_H_
