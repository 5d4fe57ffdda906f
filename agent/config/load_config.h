// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/load_config.h
//
// The configuration of the program: flags over file over defaults.
#ifndef KIPT_AGENT_CONFIG_LOAD_CONFIG_H_
#define KIPT_AGENT_CONFIG_LOAD_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "agent/config/config.h"
#include "agent/config/config_inputs.h"

namespace kipt::agent {

// Read where no --config is given, and may be absent.
inline constexpr char kDefaultConfigPath[] = "/etc/kube-iptables-agent/config.yaml";

// The files that decide, for tests to set.
struct ConfigSources {
  std::string default_config_path = kDefaultConfigPath;
  std::string if_inet6_path = kIfInet6Path;
};

// Reads the configuration file and merges. Enter the namespace of --netns first.
//
// Precedence: flags, file, defaults; feature gates gate by gate. makeIPTablesUtilChains of a
// KubeletConfiguration is not read (config_file.h). A gate that nobody knows is an error in a flag
// and in our own kind, and ignored in a KubeletConfiguration.
//
// InvalidArgument as ResolveConfig (config.h), and for a file that cannot be read or is wrong;
// fields of a KubeletConfiguration that the emulated release does not have are not looked at.
absl::StatusOr<Config> LoadConfig(const Flags& flags, const ConfigSources& sources = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_LOAD_CONFIG_H_
