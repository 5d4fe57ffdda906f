// SPDX-License-Identifier: Apache-2.0
//
// What the daemon is told to do, as values and as its configuration file.
#ifndef KIPT_TESTS_SOAK_AGENT_SETTINGS_H_
#define KIPT_TESTS_SOAK_AGENT_SETTINGS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::soak {

struct AgentSettings {
  // IPTablesOwnershipCleanup.
  bool cleanup = false;
  testing::KubeletBits bits = {};
  int period_seconds = 1;

  std::string FileText() const {
    return absl::StrCat(
        "apiVersion: kube-iptables-agent/v1alpha1\nkind: KubeIPTablesAgentConfiguration\n",
        "featureGates: {IPTablesOwnershipCleanup: ", cleanup ? "true" : "false",
        "}\niptablesMasqueradeBit: ", bits.masquerade, "\niptablesDropBit: ", bits.drop,
        "\niptablesSyncPeriod: ", period_seconds, "s\nstaleChains: retire\n");
  }
  // Of what it makes the agent want.
  std::string Text() const {
    return absl::StrCat(cleanup ? "cleanup" : "legacy", " mode, bits ", bits.masquerade, " and ",
                        bits.drop);
  }
};

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_AGENT_SETTINGS_H_
