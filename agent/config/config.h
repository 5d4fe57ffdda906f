// SPDX-License-Identifier: Apache-2.0
//
// Flags as values, and the effective configuration: flags over file over defaults, resolved at the
// emulated Kubernetes release, and checked.
#ifndef KIPT_AGENT_CONFIG_CONFIG_H_
#define KIPT_AGENT_CONFIG_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/detect/iptables_mode.h"
#include "agent/policy/expected_rules.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "featuregates/feature_gates.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// This project's release, as in CMakeLists.txt, which decides about its own feature gates.
inline constexpr featuregates::Version kAgentRelease = {0, 8};

// Only `audit` has kDot, only `marks` kSvg, and only `check` kNpd.
enum class OutputFormat : uint8_t { kText, kJson, kDot, kSvg, kNpd };

// The flags that were given. The last of a repeated flag counts, except --feature-gates.
struct Flags {
  // kubelet's
  std::optional<std::string> config = {};
  std::vector<std::string> feature_gates = {};  // one text per flag, in order
  std::optional<bool> make_iptables_util_chains = {};
  std::optional<int> iptables_masquerade_bit = {};  // any int32: checked by ResolveConfig
  std::optional<int> iptables_drop_bit = {};
  std::optional<int> v = {};
  std::optional<std::string> vmodule = {};
  // ours
  std::optional<int> iptables_masquerade_label = {};  // checked by ResolveConfig, too
  std::optional<int> iptables_drop_label = {};
  std::optional<std::string> emulated_version = {};
  std::optional<std::string> ip_families = {};
  std::optional<std::string> iptables_mode = {};
  std::optional<std::string> host_root = {};
  OutputFormat output = OutputFormat::kText;
  std::string color = "auto";
  std::optional<std::string> netns = {};
  std::optional<absl::Duration> iptables_sync_period = {};  // checked by ResolveConfig
  std::optional<std::string> watch = {};
  std::optional<bool> observe = {};
  std::optional<std::string> healthz_bind_address = {};  // may be empty: nothing listens
  std::optional<std::string> metrics_bind_address = {};  // the same
  std::optional<std::string> stale_chains = {};
  std::optional<std::string> hint_policy = {};
  std::optional<std::string> cni_conf_dir = {};
  std::optional<std::string> incidents_file = {};  // may be empty: none
  std::optional<std::string> foreign_rules = {};
  std::optional<std::string> expected_rules = {};
  std::optional<absl::Duration> audit_period = {};  // checked by ResolveConfig
  // of single commands
  bool yes = false;                              // retire
  bool all = false;                              // incidents, plan
  std::optional<std::string> capabilities = {};  // detect
  std::optional<std::string> allow = {};         // audit
  bool all_netns = false;                        // audit
  std::string before = "ownership-cleanup";      // audit
  std::optional<std::string> from_file = {};     // explain

  bool operator==(const Flags&) const = default;
};

struct Config {
  // At most the newest known release.
  featuregates::Version emulated_version;
  featuregates::FeatureGates gates;
  bool make_iptables_util_chains = true;
  // What the two above choose.
  Mode mode = Mode::kOff;
  // As given, even without effect, because an earlier legacy mode may have used them. The default
  // replaces an invalid pair that has no effect.
  MarkBits bits = {};
  // Likewise.
  ConnLabels labels = {};
  // --ip-families is "auto".
  bool families_by_kernel = true;
  // IPv4 before IPv6; never empty.
  std::vector<netlink::Family> families = {};
  // kNft or kLegacy; empty for "auto".
  std::optional<IptablesMode> iptables_mode = {};
  // An existing directory.
  std::optional<std::string> host_root = {};
  // From 1 s to 24 h.
  absl::Duration iptables_sync_period = absl::Minutes(1);
  netlink::WatchMode watch = netlink::WatchMode::kEvents;
  // `run` changes nothing, and does not load nf_tables.
  bool observe = false;
  // For ParseBindAddress; empty: nothing listens.
  std::string healthz_bind_address = "127.0.0.1:10270";
  std::string metrics_bind_address = "127.0.0.1:10271";
  // The file that was read; empty where none was.
  std::string config_file = {};
  StaleChains stale_chains = StaleChains::kKeep;
  HintPolicy hint_policy = HintPolicy::kUsable;
  // Empty: the known places of the node.
  std::vector<std::string> cni_conf_dirs = {};
  // Where `run` keeps its last incidents; empty: nowhere.
  std::string incidents_file = "/var/lib/kube-iptables-agent/incidents";
  ForeignRulesPolicy foreign_rules = ForeignRulesPolicy::kAuto;
  // The file, and what it holds; empty: none.
  std::string expected_rules_file = {};
  std::vector<ExpectedRule> expected_rules = {};
  // How often `run` audits the node, from 1 s to 24 h; zero: never.
  absl::Duration audit_period = absl::Minutes(10);
  // For the log, in the order of their importance to an upgrade: release, gates, flags, file.
  std::vector<std::string> warnings = {};

  bool operator==(const Config&) const = default;
};

// A configuration file, checked for its form but not yet for its sense.
struct ConfigFile {
  enum class Kind : uint8_t { kAgent, kKubelet };

  std::string path = {};  // empty where no file was read
  // What kubelet accepts and this agent's own kind of file must not have; that a user other than
  // root and this process's can write the file.
  std::vector<std::string> warnings = {};
  Kind kind = Kind::kAgent;
  // The fields, except featureGates, as if flags had given them.
  Flags given = {};
  featuregates::GateValues feature_gates = {};
  // The line, from 1, of each field that is in `given`.
  std::map<absl::string_view, int> lines = {};
};

// Exists where the calling thread's network namespace has IPv6 (not with ipv6.disable=1). The
// kernel accepts ip6 rules even without IPv6.
inline constexpr char kIfInet6Path[] = "/proc/thread-self/net/if_inet6";

// Merges flags over file over defaults. Reads no configuration file. `auto` families are those of
// the calling thread's network namespace.
//
// InvalidArgument, with what to do, for everything that is wrong. Bits outside 0..31 are refused
// even where they have no effect, as by kubelet; flags for bits are unknown from 1.31 on. Equal
// bits are refused in legacy mode only. Labels outside 0..127 are refused always, equal ones where
// ConnLabelMarking is on.
absl::StatusOr<Config> ResolveConfig(const Flags& flags, const ConfigFile& file = {},
                                     const std::string& if_inet6_path = kIfInet6Path);

// All gates, kubelet's and ours, at `emulated`. InvalidArgument as FeatureGates::Resolve.
absl::StatusOr<featuregates::FeatureGates> ResolveFeatureGates(
    featuregates::Version emulated, absl::Span<const featuregates::Overrides> overrides);

// One "name: value" a line, in the order of kSettings, every value as a flag would give it.
std::string ToString(const Config& config);

struct ConfigChange {
  std::string name;
  std::string from;
  std::string to;
  bool fixed = false;  // a running process keeps the value
};
// The lines of ToString that differ.
std::vector<ConfigChange> WhatChanges(const Config& from, const Config& to);

// The changed settings that are fixed at start, because sockets are opened and privileges dropped
// once, each as a line for people: "watch: events now, poll desired".
std::vector<std::string> WhatNeedsARestart(const Config& running, const Config& desired);

// "events", "poll".
absl::string_view WatchModeName(netlink::WatchMode mode);

// "ipv4", "ipv6", "ipv4,ipv6".
std::string FamiliesText(absl::Span<const netlink::Family> families);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_CONFIG_H_
