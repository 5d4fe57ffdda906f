// SPDX-License-Identifier: Apache-2.0
//
// `kube-iptables-agent run` as it is measured: everything of kubelet's in place, both families.
#ifndef KIPT_TESTS_BENCH_BENCH_DAEMON_H_
#define KIPT_TESTS_BENCH_BENCH_DAEMON_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/background_program.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

// Starts it in the calling thread's network namespace and waits until it is ready.
// DeadlineExceeded, with what it printed, where it does not become so.
absl::StatusOr<std::unique_ptr<BackgroundProgram>> StartDaemon(
    IptablesMode mode, const std::vector<std::string>& more_flags = {});

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_BENCH_DAEMON_H_
