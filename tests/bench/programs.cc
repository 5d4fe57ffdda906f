// SPDX-License-Identifier: Apache-2.0
//
// kipt_bench_programs load|kubelet-makes|kubelet-finds|remove MODE [SERVICES]: what tests/bench/run
// times with hyperfine next to `kube-iptables-agent sync`, and what it does in between. In the
// calling process' network namespace.
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/bench/node.h"

namespace kipt::testing {

absl::Status Main(const std::string& what, IptablesMode mode, int services) {
  if (what == "load") return LoadBenchServices(mode, services);
  if (what == "remove") return RemoveKubelets(mode);
  if (what == "kubelet-makes") return RunKubeletPrograms(mode, /*makes=*/true);
  if (what == "kubelet-finds") return RunKubeletPrograms(mode, /*makes=*/false);
  return absl::InvalidArgumentError("there is no " + what);
}

}  // namespace kipt::testing

int main(int argc, char** argv) {
  using kipt::testing::IptablesMode;
  if (argc < 3) return 64;
  const IptablesMode mode =
      std::string(argv[2]) == "legacy" ? IptablesMode::kLegacy : IptablesMode::kNft;
  const absl::Status status = kipt::testing::Main(argv[1], mode, argc > 3 ? std::atoi(argv[3]) : 0);
  if (!status.ok()) std::cerr << argv[1] << ": " << status << "\n";
  return status.ok() ? 0 : 1;
}
