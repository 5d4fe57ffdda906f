// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_legacy_programs.h
//
// Which iptables-legacy programs this machine has, of which version, and what that version can do.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PROGRAMS_H_
#define KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PROGRAMS_H_

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/process/command.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

struct IptablesVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  auto operator<=>(const IptablesVersion&) const = default;
};

// "1.8.9".
std::string ToString(const IptablesVersion& version);

struct IptablesProgram {
  IptablesVersion version;
  // The word in brackets, "legacy" or "nf_tables"; empty before 1.8, which was legacy only.
  std::string variant;

  bool legacy() const;
  bool operator==(const IptablesProgram&) const = default;
};

// What `iptables --version` printed, as "iptables-restore v1.8.9 (legacy)"; nullopt for anything
// else.
std::optional<IptablesProgram> ParseIptablesVersion(absl::string_view text);

// What iptables-restore does about the lock that all iptables-legacy programs share.
enum class RestoreLock {
  // It takes none: whoever runs it takes it.
  kNone,
  // It takes /run/xtables.lock by itself, and waits for it if told to.
  kOwn,
  // As kOwn, but takes another file if XTABLES_LOCKFILE names one.
  kMovable,
};

struct IptablesFeatures {
  RestoreLock restore_lock = RestoreLock::kNone;
  // MASQUERADE --random-fully.
  bool random_fully = false;
};
IptablesFeatures FeaturesOf(const IptablesVersion& version);

// How iptables-restore is told to wait `wait` for its lock; nothing where it takes none. Never
// --wait-interval, which 1.8.9 calls deprecated on standard error.
std::vector<std::string> RestoreWaitArguments(const IptablesVersion& version, absl::Duration wait);

// The programs of one family.
struct IptablesLegacyPrograms {
  std::string save;
  std::string restore;
  IptablesVersion version;

  bool operator==(const IptablesLegacyPrograms&) const = default;
};

// iptables-legacy-save and -restore (ip6tables- for IPv6) in the first of `directories` that has
// both; else iptables-save and -restore of the first directory where these are iptables-legacy's,
// as
// --version reports.
//
// NotFound: there are none; the message says where was looked and what was found instead.
absl::StatusOr<IptablesLegacyPrograms> FindIptablesLegacyPrograms(
    CommandRunner& runner, netlink::Family family, const std::vector<std::string>& directories);

// The variables that the programs are given, and no others.
std::vector<std::string> IptablesLegacyEnvironment();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_LEGACY_PROGRAMS_H_
