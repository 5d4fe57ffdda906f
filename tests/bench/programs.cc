// SPDX-License-Identifier: Apache-2.0
//
// kipt_bench_programs load MODE SERVICES
// kipt_bench_programs kubelet-makes|kubelet-finds|remove MODE GATE
// is what tests/bench/run times with hyperfine next to `kube-iptables-agent sync`, and what it does
// in between. GATE is true or false. In the calling process' network namespace.
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/bench/node.h"

namespace kipt::testing {

absl::Status Main(const std::string& what, IptablesMode mode, const std::string& last) {
  const KubeletForm kubelet = last == "true" ? kBenchKubeletGateOn : kBenchKubelet;
  if (what == "load") return LoadBenchServices(mode, std::atoi(last.c_str()));
  if (what == "remove") return RemoveKubelets(mode, kubelet);
  if (what == "kubelet-makes") return RunKubeletPrograms(mode, kubelet, /*makes=*/true);
  if (what == "kubelet-finds") return RunKubeletPrograms(mode, kubelet, /*makes=*/false);
  return absl::InvalidArgumentError("there is no " + what);
}

}  // namespace kipt::testing

int main(int argc, char** argv) {
  using kipt::testing::IptablesMode;
  if (argc != 4) return 64;
  const IptablesMode mode =
      std::string(argv[2]) == "legacy" ? IptablesMode::kLegacy : IptablesMode::kNft;
  const absl::Status status = kipt::testing::Main(argv[1], mode, argv[3]);
  if (!status.ok()) std::cerr << argv[1] << ": " << status << "\n";
  return status.ok() ? 0 : 1;
}
