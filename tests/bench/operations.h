// SPDX-License-Identifier: Apache-2.0
//
// The rows of the table: what is measured, whoever does it.
#ifndef KIPT_TESTS_BENCH_OPERATIONS_H_
#define KIPT_TESTS_BENCH_OPERATIONS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/bench/call_trace.h"
#include "tests/bench/kernel_floor.h"
#include "tests/bench/world.h"

namespace kipt::testing {

struct Operation {
  // "cold", "check", "repair nat/KUBE-POSTROUTING": the same for all who do the same.
  std::string name;
  // "agent" (in process), "agent program", "kubelet", "restore", "nft", "kernel".
  std::string contender;
  // Untimed, before every sample.
  std::function<absl::Status()> prepare;
  std::function<absl::Status()> run;
  // Whose system calls and allocations are the contender's: a yardstick made of programs is not
  // charged with this process starting them.
  Counted counted = Counted::kProgramsOnly;
  // How often `run` runs for one sample; what takes microseconds is too short for the clock's own
  // cost.
  int times = 1;
  // Samples in one round.
  int samples = 1;
};

// In the order in which one round does them. Both arguments must outlive the result; `floor` is
// null for legacy iptables.
std::vector<Operation> Operations(World& world, KernelFloor* floor);

// What is left out in this world because of how long it takes, each as one sentence.
std::vector<std::string> LeftOut(const World& world);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_OPERATIONS_H_
