// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/config.h
//
// The effective configuration: flags over file over defaults, resolved at the emulated Kubernetes
// release and checked. What follows from it needs no further check.
#ifndef KIPT_AGENT_CONFIG_CONFIG_H_
#define KIPT_AGENT_CONFIG_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/config/flags.h"
#include "agent/detect/iptables_mode.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "featuregates/feature_gates.h"
#include "featuregates/version.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// This project's own release, as in CMakeLists.txt: its own feature gates live by it.
inline constexpr featuregates::Version kAgentRelease = {0, 7};

struct Config {
  // A release newer than the newest known one is already replaced by that one.
  featuregates::Version emulated_version;
  featuregates::FeatureGates gates;
  bool make_iptables_util_chains = true;
  // What the two above choose.
  Mode mode = Mode::kOff;
  // As given, also in the modes where they have no effect, for they tell what an earlier legacy
  // mode may have left behind. Where the pair given has no effect and would not be valid, 14
  // and 15.
  MarkBits bits = {};
  // As given, also where ConnLabelMarking is off; 114 and 115 where they are equal there.
  ConnLabels labels = {};
  // --ip-families asked for "auto"; else for exactly `families`.
  bool families_by_kernel = true;
  // IPv4 before IPv6; never empty.
  std::vector<netlink::Family> families = {};
  // kNft or kLegacy; empty for "auto".
  std::optional<IptablesMode> iptables_mode = {};
  // Of --host-root: an existing directory; empty where it was not given.
  std::optional<std::string> host_root = {};
  // From 1 s to 24 h.
  absl::Duration iptables_sync_period = absl::Minutes(1);
  netlink::WatchMode watch = netlink::WatchMode::kEvents;
  // `run` changes nothing, and does not load nf_tables.
  bool observe = false;
  // "HOST:PORT" as ParseBindAddress takes it; empty: nothing listens.
  std::string healthz_bind_address = "127.0.0.1:10270";
  std::string metrics_bind_address = "127.0.0.1:10271";
  // The file that was read; empty where none was.
  std::string config_file = {};
  StaleChains stale_chains = StaleChains::kKeep;
  HintPolicy hint_policy = HintPolicy::kUsable;
  // Of --cni-conf-dir; empty: the known places of the node (cni_configs.h).
  std::vector<std::string> cni_conf_dirs = {};
  // For the log, each as one warning, in the order of their importance to an upgrade: release,
  // gates, flags, file.
  std::vector<std::string> warnings = {};
  // Gates in a KubeletConfiguration that are none of ours: for verbosity 2.
  std::vector<std::string> ignored_gates = {};

  bool operator==(const Config&) const = default;
};

// Merges flags over defaults, for a host program. Reads no configuration file. `auto` families are
// those of the calling thread's network namespace.
//
// InvalidArgument, with what to do, for everything that is wrong. Bits outside 0..31 are refused
// even where they have no effect, as by kubelet; from 1.31 on, where kubelet has no such flags,
// they are unknown. Equal bits are refused in legacy mode only. Labels outside 0..127 are refused
// always, equal ones where ConnLabelMarking is on.
absl::StatusOr<Config> ResolveConfig(const Flags& flags);

// All gates, kubelet's and ours, at `emulated`. InvalidArgument as FeatureGates::Resolve.
absl::StatusOr<featuregates::FeatureGates> ResolveFeatureGates(
    featuregates::Version emulated, absl::Span<const featuregates::Overrides> overrides);

// One "name: value" a line, in the order of Config, warnings and ignored gates left out; every
// value as a flag or a file would give it.
std::string ToString(const Config& config);

struct ConfigChange {
  std::string name;
  std::string from;
  std::string to;
};
// The lines of ToString that differ.
std::vector<ConfigChange> WhatChanges(const Config& from, const Config& to);

// The settings that a process keeps from its start to its end and that differ: iptablesMode,
// hostRoot, watch and the two addresses (sockets are opened, and privileges dropped, once). Each as
// a line for people: "watch: events now, poll wanted". Empty: everything in `wanted` can be had by
// the process that runs with `running`.
std::vector<std::string> WhatNeedsARestart(const Config& running, const Config& wanted);

// "events", "poll": as --watch names them.
absl::string_view WatchModeName(netlink::WatchMode mode);

// "ipv4", "ipv6", "ipv4,ipv6": as --ip-families names them.
std::string FamiliesText(absl::Span<const netlink::Family> families);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_CONFIG_H_
