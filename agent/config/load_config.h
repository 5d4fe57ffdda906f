// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/load_config.h
//
// The configuration of the program: flags over a file over defaults. Two kinds of file are read:
//
//   apiVersion: kube-iptables-agent/v1alpha1    our own: an unknown field is an error
//   kind: KubeIPTablesAgentConfiguration
//   featureGates: {IPTablesOwnershipCleanup: false}
//   iptablesMasqueradeBit: 14                   and the other fields of settings.h
//
// and kubelet's own file (kubelet.config.k8s.io/v1beta1, KubeletConfiguration), so that a node has
// one place to say which bits and gates it uses. Of that one, featureGates, iptablesMasqueradeBit
// and iptablesDropBit are read and everything else is skipped, whatever it holds. That includes
// makeIPTablesUtilChains, which controls *kubelet*: an operator who lets the agent take over sets
// it to false, and that must not switch the agent off.
#ifndef KIPT_AGENT_CONFIG_LOAD_CONFIG_H_
#define KIPT_AGENT_CONFIG_LOAD_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/config/config.h"
#include "agent/config/settings.h"

namespace kipt::agent {

// Parses `text`, which came from `path`. InvalidArgument "PATH:LINE: ..." for a text that is not
// well-formed YAML, another kind or apiVersion, a field that is read and has the wrong type, and,
// in our own kind, an unknown field or a field without a value. In a KubeletConfiguration a field
// without a value is a field that is not set, as kubelet reads it.
absl::StatusOr<ConfigFile> ParseConfigFile(absl::string_view path, absl::string_view text);

// Reads and parses the regular file `path`. InvalidArgument, with what to do, also for a file that
// is missing, cannot be read, is not a regular file or is larger than kMaxYamlBytes: they are
// mistakes in the flags as far as the caller is concerned. `may_be_missing`: then a missing file is
// an empty ConfigFile.
absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path, bool may_be_missing = false);

// The files that decide, for tests to set.
struct ConfigSources {
  std::string default_config_path = kDefaultConfigPath;
  std::string if_inet6_path = kIfInet6Path;
};

// Reads the configuration file and merges. Enter the namespace of --netns first.
//
// Precedence: flags, file, defaults; feature gates gate by gate. makeIPTablesUtilChains of a
// KubeletConfiguration is not read. A gate that nobody knows is an error in a flag and in our own
// kind, and ignored in a KubeletConfiguration.
//
// InvalidArgument as ResolveConfig (config.h), and for a file that cannot be read or is wrong;
// fields of a KubeletConfiguration that the emulated release does not have are not looked at.
absl::StatusOr<Config> LoadConfig(const Flags& flags, const ConfigSources& sources = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_LOAD_CONFIG_H_
