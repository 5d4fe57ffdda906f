// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/config_inputs.h
//
// What ResolveConfig merges: flags, and what a configuration file holds.
#ifndef KIPT_AGENT_CONFIG_CONFIG_INPUTS_H_
#define KIPT_AGENT_CONFIG_CONFIG_INPUTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/config/config.h"
#include "agent/config/flags.h"
#include "featuregates/feature_gates.h"

namespace kipt::agent {

// Exists where the kernel has IPv6 in the network namespace of the calling thread (not disabled at
// boot by ipv6.disable=1). The kernel takes ip6 rules all the same, so rules tell nothing.
inline constexpr char kIfInet6Path[] = "/proc/thread-self/net/if_inet6";

// A configuration file, checked for its form but not yet for its sense.
struct ConfigFile {
  enum class Kind : uint8_t { kAgent, kKubelet };

  std::string path = {};  // empty where no file was read
  // A warning if others than root and this process's user can write the file.
  std::string writable = {};
  Kind kind = Kind::kAgent;
  // The fields, except featureGates, as if flags had given them.
  Flags given = {};
  featuregates::GateValues feature_gates = {};
  // The line, from 1, of each field that is in `given`.
  std::map<absl::string_view, int> lines = {};
};

// Merges: flags over file over defaults. InvalidArgument as LoadConfig (load_config.h).
absl::StatusOr<Config> ResolveConfig(const Flags& flags, const ConfigFile& file,
                                     const std::string& if_inet6_path = kIfInet6Path);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_CONFIG_INPUTS_H_
