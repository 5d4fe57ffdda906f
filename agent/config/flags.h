// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/flags.h
//
// Flags as values, not resolved yet (config.h does that). A host program fills in what it wants to
// set.
#ifndef KIPT_AGENT_CONFIG_FLAGS_H_
#define KIPT_AGENT_CONFIG_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace kipt::agent {

// kDot: of `audit` only.
enum class OutputFormat : uint8_t { kText, kJson, kDot };

// The flags that were given; empty where one was not. Of a flag given twice the last counts, except
// for --feature-gates.
struct Flags {
  // kubelet's
  std::optional<std::string> config = {};
  std::vector<std::string> feature_gates = {};  // one text per flag, in order; they are merged
  std::optional<bool> make_iptables_util_chains = {};
  std::optional<int> iptables_masquerade_bit = {};  // any int32: config.h knows the range
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
  std::optional<absl::Duration> iptables_sync_period = {};  // config.h knows the range
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

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_FLAGS_H_
