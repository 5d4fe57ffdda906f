// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/config.h
//
// Flags as values, of which a host program fills in what it wants to set, and the effective
// configuration: flags over file over defaults, resolved at the emulated Kubernetes release and
// checked. What follows from it needs no further check.
#ifndef KIPT_AGENT_CONFIG_CONFIG_H_
#define KIPT_AGENT_CONFIG_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
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

// kDot: of `audit` only.
enum class OutputFormat : uint8_t { kText, kJson, kDot };

// The flags that were given; empty where one was not. Of a flag given twice the last counts, except
// for --feature-gates.
struct Flags {
  // kubelet's
  std::optional<std::string> config = {};
  std::vector<std::string> feature_gates = {};  // one text per flag, in order; they are merged
  std::optional<bool> make_iptables_util_chains = {};
  std::optional<int> iptables_masquerade_bit = {};  // any int32: checked by ResolveConfig
  std::optional<int> iptables_drop_bit = {};
  std::optional<int> v = {};
  std::optional<std::string> vmodule = {};
  // ours
  std::optional<int> iptables_masquerade_label = {};  // the same
  std::optional<int> iptables_drop_label = {};
  std::optional<std::string> emulated_version = {};
  std::optional<std::string> ip_families = {};
  std::optional<std::string> iptables_mode = {};
  std::optional<std::string> host_root = {};
  OutputFormat output = OutputFormat::kText;
  std::optional<std::string> netns = {};
  std::optional<absl::Duration> iptables_sync_period = {};  // checked by ResolveConfig
  std::optional<std::string> watch = {};
  std::optional<bool> observe = {};
  std::optional<std::string> healthz_bind_address = {};  // may be empty: nothing listens
  std::optional<std::string> metrics_bind_address = {};  // the same
  std::optional<std::string> stale_chains = {};
  std::optional<std::string> hint_policy = {};
  std::optional<std::string> cni_conf_dir = {};
  // of one command each
  bool yes = false;                           // retire
  std::optional<std::string> allow = {};      // audit
  bool all_netns = false;                     // audit
  std::optional<std::string> from_file = {};  // explain

  bool operator==(const Flags&) const = default;
};

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

// One "name: value" a line, in the order of Config, warnings left out; every value as a flag or a
// file would give it.
std::string ToString(const Config& config);

struct ConfigChange {
  std::string name;
  std::string from;
  std::string to;
  bool fixed = false;  // a process keeps the value from its start to its end
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
