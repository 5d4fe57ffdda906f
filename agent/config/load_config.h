// SPDX-License-Identifier: Apache-2.0
//
// The configuration of the program: flags over a file over defaults. Two kinds of file are read:
//
//   apiVersion: kube-iptables-agent/v1alpha1    our own: an unknown field is an error
//   kind: KubeIPTablesAgentConfiguration
//   featureGates: {IPTablesOwnershipCleanup: false}
//   iptablesMasqueradeBit: 14                   and the other fields of settings.h
//
// and kubelet's (kubelet.config.k8s.io/v1beta1, KubeletConfiguration), of which only featureGates,
// iptablesMasqueradeBit and iptablesDropBit are read. makeIPTablesUtilChains is not: an operator
// who lets the agent take over from kubelet sets it to false, which must not switch the agent off.
#ifndef KIPT_AGENT_CONFIG_LOAD_CONFIG_H_
#define KIPT_AGENT_CONFIG_LOAD_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/config/config.h"
#include "agent/config/settings.h"

namespace kipt::agent {

// Parses the file's `text`. InvalidArgument "PATH:LINE: ..." for malformed YAML, another kind or
// apiVersion, a read field of the wrong type, and, in our own kind, a field that is unknown or has
// no value. In a KubeletConfiguration such a field is not set.
absl::StatusOr<ConfigFile> ParseConfigFile(absl::string_view path, absl::string_view text);

// Reads and parses a regular file of at most kMaxYamlBytes. Every error is InvalidArgument, with
// what to do. `may_be_missing`: a missing file is an empty ConfigFile.
absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path, bool may_be_missing = false);

// The files that decide, for tests to set.
struct ConfigSources {
  std::string default_config_path = kDefaultConfigPath;
  std::string if_inet6_path = kIfInet6Path;
};

// ReadConfigFile and ResolveConfig; feature gates are merged gate by gate. Enter the namespace of
// --netns first. An unknown gate is an error in a flag and in our own kind, and ignored in a
// KubeletConfiguration.
absl::StatusOr<Config> LoadConfig(const Flags& flags, const ConfigSources& sources = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_LOAD_CONFIG_H_
