// SPDX-License-Identifier: Apache-2.0
//
// What the tests of LoadConfig share: a directory in place of a node's files, and short ways to
// write flags and files.
#ifndef KIPT_TESTS_AGENT_CONFIG_CONFIG_FILES_H_
#define KIPT_TESTS_AGENT_CONFIG_CONFIG_FILES_H_

#include <string>
#include <vector>

#include "agent/config/load_config.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {

inline constexpr char kOn[] = "IPTablesOwnershipCleanup=true";
inline constexpr char kOff[] = "IPTablesOwnershipCleanup=false";

inline std::string Agent(const std::string& fields) {
  return "apiVersion: kube-iptables-agent/v1alpha1\nkind: KubeIPTablesAgentConfiguration\n" +
         fields;
}
inline std::string Kubelet(const std::string& fields) {
  return "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields;
}

// A directory that holds what LoadConfig reads; removed by the destructor.
class ConfigFiles {
 public:
  ConfigFiles() {
    Write("dev", "");
    SetIPv6(true);
  }

  std::string Path(const std::string& name) const { return tree_.Path(name); }
  std::string Write(const std::string& name, const std::string& text) const {
    tree_.Write(name, text);
    return Path(name);
  }
  void SetIPv6(bool present) const {
    if (present) {
      Write("if_inet6", "");
    } else {
      tree_.Remove("if_inet6");
    }
  }
  absl::StatusOr<Config> Load(const Flags& flags) const {
    return LoadConfig(
        flags, {.default_config_path = Path("config.yaml"), .if_inet6_path = Path("if_inet6")});
  }
  // As Load, with `file` as what --config names; empty for none.
  absl::StatusOr<Config> Load(Flags flags, const std::string& file) const {
    if (!file.empty()) flags.config = Write("f.yaml", file);
    return Load(flags);
  }

 private:
  TemporaryTree tree_;
};

inline Flags At(const std::string& version, const std::vector<std::string>& gates = {}) {
  return {.feature_gates = gates, .emulated_version = version};
}
inline Flags WithBits(Flags flags, int masquerade, int drop) {
  flags.iptables_masquerade_bit = masquerade;
  flags.iptables_drop_bit = drop;
  return flags;
}

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_CONFIG_CONFIG_FILES_H_
