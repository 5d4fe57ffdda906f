// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/config_inputs.h
//
// What ResolveConfig merges, for the files that do the merging: config.cc, mark_settings.cc,
// daemon_settings.cc and ownership_settings.cc.
#ifndef KIPT_AGENT_CONFIG_CONFIG_INPUTS_H_
#define KIPT_AGENT_CONFIG_CONFIG_INPUTS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/config/config.h"
#include "agent/config/config_file.h"
#include "agent/config/flags.h"

namespace kipt::agent {

// Exists where the kernel has IPv6 in the network namespace of the calling thread (not disabled at
// boot by ipv6.disable=1). The kernel takes ip6 rules all the same, so rules tell nothing.
inline constexpr char kIfInet6Path[] = "/proc/thread-self/net/if_inet6";

// Flags over file over defaults.
struct ConfigInputs {
  const Flags& flags;
  ConfigFile file = {};  // its path is empty where none was read

  // The flag's value, else the file's, else the default.
  template <typename T>
  static T Choose(const std::optional<T>& flag, const std::optional<FromLine<T>>& field,
                  T fallback) {
    return flag ? *flag : field ? field->value : fallback;
  }

  template <typename T>
  absl::Status InFile(const FromLine<T>& field, absl::string_view message) const {
    return absl::InvalidArgumentError(absl::StrCat(file.path, ":", field.line, ": ", message));
  }

  // Whoever gave the value that Choose chose: "--FLAG: message", or "FILE:LINE: FIELD: message".
  template <typename T>
  absl::Status Blame(absl::string_view flag_name, const std::optional<T>& flag,
                     absl::string_view field_name, const std::optional<FromLine<T>>& field,
                     absl::string_view message) const {
    if (!flag && field) return InFile(*field, absl::StrCat(field_name, ": ", message));
    return absl::InvalidArgumentError(absl::StrCat("--", flag_name, ": ", message));
  }
};

// Merges. InvalidArgument as LoadConfig (load_config.h).
absl::StatusOr<Config> ResolveConfig(const ConfigInputs& inputs,
                                     const std::string& if_inet6_path = kIfInet6Path);

// InvalidArgument, with kubelet's words, where a flag is given that release `emulated` no longer
// has: the command line knows the flags of every release, and only here the release is known.
absl::Status RefuseRemovedBitFlags(const ConfigInputs& inputs, featuregates::Version emulated);
// config.bits and config.labels, from its release, gates and mode. InvalidArgument as LoadConfig.
absl::Status ResolveBitsAndLabels(const ConfigInputs& inputs, Config& config);
void WarnOfIgnoredBitsAndLabels(const ConfigInputs& inputs, Config& config);
// The settings of `run`: sync period, watch, addresses. InvalidArgument as LoadConfig.
absl::Status ResolveDaemonSettings(const ConfigInputs& inputs, Config& config);
// What becomes of others' and of stale chains: stale chains, hint policy, CNI directories. The
// same.
absl::Status ResolveOwnershipSettings(const ConfigInputs& inputs, Config& config);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_CONFIG_INPUTS_H_
