// SPDX-License-Identifier: Apache-2.0
//
// Who else can put kubelet's rules in place, in the calling thread's network namespace and both
// families.
#ifndef KIPT_TESTS_BENCH_CONTENDERS_H_
#define KIPT_TESTS_BENCH_CONTENDERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

enum class Expected : uint8_t {
  kNothingToDo,    // everything stands already
  kSomethingToDo,  // something does not
};

// kubelet's whole sequence, program by program. An error where it did not find what was expected.
absl::Status RunKubeletInBothFamilies(IptablesMode mode, Expected expected);
absl::Status RunKubeletIn(IpFamily family, IptablesMode mode, Expected expected);
// What its monitor does once a minute (pkg/util/iptables, Monitor): asks whether the first of the
// canaries, mangle's, is there.
absl::Status TickInBothFamilies(IptablesMode mode);

// kubelet's rules as one input of iptables-restore --noflush for each family. They must not stand.
absl::Status RestoreInBothFamilies(IptablesMode mode);

// The same meaning in nft's own words, both families in one `nft -f`. iptables 1.8.9 cannot read
// what that makes, so it is no way to do kubelet's work: it shows what the tool costs. Tables and
// base chains must stand, the rules not.
absl::Status NftInBothFamilies();

// `kube-iptables-agent sync`, the whole program.
absl::Status RunAgentSync(IptablesMode mode);

// fork, exec and wait of a program that does nothing.
absl::Status RunTrue();

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_CONTENDERS_H_
