// SPDX-License-Identifier: Apache-2.0
#include "agent/config/config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/config/config_file.h"
#include "agent/config/config_inputs.h"
#include "featuregates/agent_features.h"
#include "featuregates/go_text.h"
#include "featuregates/kubelet_features.h"

namespace kipt::agent {
namespace {

using featuregates::FeatureGates;
using featuregates::Overrides;
using featuregates::Version;

absl::StatusOr<featuregates::EmulatedVersion> ResolveVersion(const ConfigInputs& inputs) {
  const auto& [flags, file] = inputs;
  auto emulated = featuregates::ResolveEmulatedVersion(
      ConfigInputs::Choose(flags.emulated_version, file.emulated_version,
                           featuregates::ToString(featuregates::kDefaultEmulatedVersion)));
  if (emulated.ok() || flags.emulated_version) return emulated;
  return inputs.InFile(
      *file.emulated_version,
      absl::StrCat("emulatedVersion: ",
                   absl::StripPrefix(emulated.status().message(), "--emulated-version: ")));
}

// ---- feature gates ----

// Resolve's message, the file that is to blame, and what could be set instead.
absl::Status ExplainGates(const absl::Status& status, const ConfigInputs& inputs, Version emulated,
                          const Overrides& from_file) {
  const bool file_is_wrong = !ResolveFeatureGates(emulated, {from_file}).ok();
  const absl::StatusOr<FeatureGates> gates = ResolveFeatureGates(emulated, {});
  std::string known;
  for (const featuregates::GateState& gate :
       gates.ok() ? gates->States() : std::vector<featuregates::GateState>()) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", gate.name, gate.locked ? " (locked)" : "");
  }
  return absl::Status(
      status.code(),
      absl::StrCat(file_is_wrong ? inputs.file.path : "--feature-gates", ": ", status.message(),
                   "; the gates of ", "Kubernetes ", featuregates::ToString(emulated),
                   " that this agent knows are ", known));
}

absl::StatusOr<FeatureGates> ResolveGates(const ConfigInputs& inputs, Version emulated) {
  const auto& [flags, file] = inputs;
  std::vector<Overrides> overrides = {
      file.kind == ConfigFile::Kind::kKubelet
          ? featuregates::FromKubeletConfiguration(file.feature_gates)
          : Overrides{.values = file.feature_gates}};
  for (const std::string& text : flags.feature_gates) {
    absl::StatusOr<featuregates::GateValues> values = featuregates::ParseFeatureGatesFlag(text);
    if (!values.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("invalid argument ", featuregates::QuoteForMessage(text),
                       " for \"--feature-gates\" flag: ", values.status().message()));
    }
    overrides.push_back(Overrides{.values = *std::move(values)});
  }
  absl::StatusOr<FeatureGates> gates = ResolveFeatureGates(emulated, overrides);
  if (gates.ok()) return gates;
  return ExplainGates(gates.status(), inputs, emulated, overrides.front());
}

// kubelet of that release refuses its own gate in the file. Here the file may be another release's,
// so that a gate which would have chosen the other mode is worth a line.
void WarnOfIgnoredGate(const ConfigInputs& inputs, Config& config) {
  const absl::string_view name = featuregates::kIPTablesOwnershipCleanup.name;
  const std::vector<std::string>& ignored = config.gates.ignored();
  if (std::find(ignored.begin(), ignored.end(), name) == ignored.end()) return;
  const auto gate = inputs.file.feature_gates.find(std::string(name));
  const bool enabled = config.gates.Enabled(featuregates::kIPTablesOwnershipCleanup);
  if (gate == inputs.file.feature_gates.end() || gate->second == enabled) return;
  config.warnings.push_back(
      absl::StrCat(inputs.file.path, ": featureGates.", name, " ", gate->second ? "true" : "false",
                   " has no effect: Kubernetes ", featuregates::ToString(config.emulated_version),
                   " has no such gate, and the agent is in ", ModeName(config.mode),
                   " mode; remove it, or give an --emulated-version from 1.25 to 1.27"));
}

// ---- families ----

// The families that `text` names, in netlink's order; nothing for "auto".
absl::StatusOr<std::vector<netlink::Family>> ParseFamilies(absl::string_view text) {
  if (text == "auto") return std::vector<netlink::Family>();
  std::vector<netlink::Family> families;
  for (absl::string_view name : absl::StrSplit(text, ',')) {
    const bool ipv4 = name == "ipv4";
    const netlink::Family family = ipv4 ? netlink::Family::kIPv4 : netlink::Family::kIPv6;
    if ((!ipv4 && name != "ipv6") ||
        std::find(families.begin(), families.end(), family) != families.end()) {
      return absl::InvalidArgumentError(absl::StrCat("invalid value ",
                                                     featuregates::QuoteForMessage(text),
                                                     "; accepted are auto, ipv4, ipv6, ipv4,ipv6"));
    }
    families.push_back(family);
  }
  std::sort(families.begin(), families.end());
  return families;
}

absl::Status ResolveFamilies(const ConfigInputs& inputs, const std::string& if_inet6_path,
                             Config& config) {
  const auto& [flags, file] = inputs;
  auto families =
      ParseFamilies(ConfigInputs::Choose(flags.ip_families, file.ip_families, std::string("auto")));
  absl::Status status = families.status();
  const bool has_ipv6 = access(if_inet6_path.c_str(), F_OK) == 0;
  // That it is not there is an answer. That it cannot be seen is none, and leaves no family out.
  const int unseen = has_ipv6 || errno == ENOENT || errno == ENOTDIR ? 0 : errno;
  if (status.ok()) {
    config.families = *std::move(families);
    config.families_by_kernel = config.families.empty();
    if (config.families_by_kernel) {
      config.families.push_back(netlink::Family::kIPv4);
      if (has_ipv6) config.families.push_back(netlink::Family::kIPv6);
    }
    const bool asks_for_ipv6 = config.families.back() == netlink::Family::kIPv6;
    if (unseen != 0 && (asks_for_ipv6 || config.families_by_kernel)) {
      status = absl::ErrnoToStatus(
          unseen, absl::StrCat("cannot tell whether this network namespace has IPv6 (",
                               if_inet6_path, ")"));
    } else if (asks_for_ipv6 && !has_ipv6) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "ipv6 is asked for, but this network namespace has no IPv6 (", if_inet6_path,
          " does not exist); enable IPv6 in the kernel (ipv6.disable=0), or choose auto or ipv4"));
    }
  }
  if (status.ok()) return status;
  return inputs.Blame("ip-families", flags.ip_families, "ipFamilies", file.ip_families,
                      status.message());
}

// ---- the iptables mode ----

absl::Status ResolveIptablesMode(const ConfigInputs& inputs, Config& config) {
  const auto& [flags, file] = inputs;
  const std::string text =
      ConfigInputs::Choose(flags.iptables_mode, file.iptables_mode, std::string("auto"));
  if (text == "auto") return absl::OkStatus();
  for (const IptablesMode mode : {IptablesMode::kNft, IptablesMode::kLegacy}) {
    if (IptablesModeName(mode) == text) config.iptables_mode = mode;
  }
  if (config.iptables_mode) return absl::OkStatus();
  return inputs.Blame("iptables-mode", flags.iptables_mode, "iptablesMode", file.iptables_mode,
                      absl::StrCat("invalid value ", featuregates::QuoteForMessage(text),
                                   "; accepted are auto, nft, legacy"));
}

// A directory that is not there would be a host without iptables.
absl::Status ResolveHostRoot(const Flags& flags, Config& config) {
  config.host_root = flags.host_root;
  if (!config.host_root) return absl::OkStatus();
  struct stat about {};
  const int error = stat(config.host_root->c_str(), &about) == 0 ? 0 : errno;
  if (error == 0 && S_ISDIR(about.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--host-root: ", featuregates::QuoteForMessage(*config.host_root), ": ",
                   std::generic_category().message(error == 0 ? ENOTDIR : error),
                   "; give the directory where the host's root is mounted"));
}

}  // namespace

absl::StatusOr<FeatureGates> ResolveFeatureGates(Version emulated,
                                                 absl::Span<const Overrides> overrides) {
  return FeatureGates::Resolve(
      {featuregates::KubeletComponent(emulated), featuregates::AgentComponent(kAgentRelease)},
      overrides);
}

absl::StatusOr<Config> ResolveConfig(const Flags& flags) {
  return ResolveConfig(ConfigInputs{flags});
}

absl::StatusOr<Config> ResolveConfig(const ConfigInputs& inputs, const std::string& if_inet6_path) {
  const Flags& flags = inputs.flags;
  const auto emulated = ResolveVersion(inputs);
  if (!emulated.ok()) return emulated.status();
  const Version version = emulated->version;
  if (absl::Status status = RefuseRemovedBitFlags(inputs, version); !status.ok()) return status;
  absl::StatusOr<FeatureGates> gates = ResolveGates(inputs, version);
  if (!gates.ok()) return gates.status();

  Config config = {.emulated_version = version, .gates = *std::move(gates)};
  config.config_file = inputs.file.path;
  config.make_iptables_util_chains = ConfigInputs::Choose(
      flags.make_iptables_util_chains, inputs.file.make_iptables_util_chains, true);
  config.mode = ModeFor(config.gates, config.make_iptables_util_chains);
  if (absl::Status status = ResolveBitsAndLabels(inputs, config); !status.ok()) return status;
  if (absl::Status status = ResolveFamilies(inputs, if_inet6_path, config); !status.ok())
    return status;
  if (absl::Status status = ResolveIptablesMode(inputs, config); !status.ok()) return status;
  if (absl::Status status = ResolveHostRoot(flags, config); !status.ok()) return status;
  if (absl::Status status = ResolveDaemonSettings(inputs, config); !status.ok()) return status;
  if (absl::Status status = ResolveOwnershipSettings(inputs, config); !status.ok()) return status;

  if (!emulated->warning.empty()) config.warnings.push_back(emulated->warning);
  for (const std::string& warning : config.gates.warnings()) config.warnings.push_back(warning);
  WarnOfIgnoredGate(inputs, config);
  WarnOfIgnoredBitsAndLabels(inputs, config);
  if (!inputs.file.writable.empty()) config.warnings.push_back(inputs.file.writable);
  config.ignored_gates = config.gates.ignored();
  return config;
}

}  // namespace kipt::agent
