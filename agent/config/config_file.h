// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/config_file.h
//
// What a configuration file says, checked for its form but not yet for its sense (config.h does
// that). Two kinds are read:
//
//   apiVersion: kube-iptables-agent/v1alpha1    our own: an unknown field is an error
//   kind: KubeIPTablesAgentConfiguration
//   emulatedVersion: "1.27"
//   featureGates: {IPTablesOwnershipCleanup: false}
//   makeIPTablesUtilChains: true
//   iptablesMasqueradeBit: 14
//   iptablesDropBit: 15
//   ipFamilies: ipv4,ipv6
//   iptablesMode: auto
//   iptablesSyncPeriod: 1m0s
//   watch: events
//   observe: false
//   healthzBindAddress: 127.0.0.1:10270
//   metricsBindAddress: 127.0.0.1:10271
//   staleChains: keep
//   hintPolicy: usable
//   cniConfDir: /etc/cni/net.d
//
// and kubelet's own file (kubelet.config.k8s.io/v1beta1, KubeletConfiguration), so that a node has
// one place to say which bits and gates it uses. Of that one, featureGates, iptablesMasqueradeBit
// and iptablesDropBit are read and everything else is skipped, however it looks:
// makeIPTablesUtilChains among it, which says what *kubelet* does. An operator who lets the agent
// take over sets it to false, and that must not switch the agent off.
#ifndef KIPT_AGENT_CONFIG_CONFIG_FILE_H_
#define KIPT_AGENT_CONFIG_CONFIG_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "featuregates/feature_gates.h"

namespace kipt::agent {

// A value and the line, from 1, that it was written in.
template <typename T>
struct FromLine {
  T value;
  int line = 1;

  bool operator==(const FromLine&) const = default;
};

struct ConfigFile {
  enum class Kind : uint8_t { kAgent, kKubelet };

  std::string path;
  // A warning if others than root and this process's user can write the file.
  std::string writable = {};
  Kind kind = Kind::kAgent;
  // Empty where the field is missing. A KubeletConfiguration has none of them but the two bits and
  // feature_gates.
  std::optional<FromLine<std::string>> emulated_version;
  std::optional<FromLine<bool>> make_iptables_util_chains;
  std::optional<FromLine<int>> iptables_masquerade_bit;
  std::optional<FromLine<int>> iptables_drop_bit;
  std::optional<FromLine<int>> iptables_masquerade_label;
  std::optional<FromLine<int>> iptables_drop_label;
  std::optional<FromLine<std::string>> ip_families;
  std::optional<FromLine<std::string>> iptables_mode;
  std::optional<FromLine<absl::Duration>> iptables_sync_period;
  std::optional<FromLine<std::string>> watch;
  std::optional<FromLine<bool>> observe;
  std::optional<FromLine<std::string>> healthz_bind_address;
  std::optional<FromLine<std::string>> metrics_bind_address;
  std::optional<FromLine<std::string>> stale_chains;
  std::optional<FromLine<std::string>> hint_policy;
  std::optional<FromLine<std::string>> cni_conf_dir;
  featuregates::GateValues feature_gates;
};

// Parses `text`, which came from `path`. InvalidArgument "PATH:LINE: ..." for a text that is not
// well-formed YAML, another kind or apiVersion, a field that is read and has the wrong type, and,
// in our own kind, an unknown field or a field without a value. In a KubeletConfiguration a field
// without a value is a field that is not set, as kubelet reads it.
absl::StatusOr<ConfigFile> ParseConfigFile(absl::string_view path, absl::string_view text);

// Reads and parses the regular file `path`. InvalidArgument, with what to do, also for a file that
// is missing, cannot be read, is not a regular file or is larger than kMaxYamlBytes: they are
// mistakes in the flags as far as the caller is concerned.
absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path);

// As ReadConfigFile, but a missing file is no file: for the default path.
absl::StatusOr<std::optional<ConfigFile>> ReadConfigFileIfPresent(const std::string& path);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_CONFIG_FILE_H_
