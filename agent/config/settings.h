// SPDX-License-Identifier: Apache-2.0
//
// The agent's settings as one table, which everything that parses, prints or documents them reads.
// A new setting is a field in Flags, a field in Config and a row here.
#ifndef KIPT_AGENT_CONFIG_SETTINGS_H_
#define KIPT_AGENT_CONFIG_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/config/config.h"

namespace kipt::agent {

// Read without --config; may be absent.
inline constexpr char kDefaultConfigPath[] = "/etc/kube-iptables-agent/config.yaml";

// Where a given value is kept; its type is the setting's.
using FlagMember =
    std::variant<std::optional<bool> Flags::*, std::optional<int> Flags::*,
                 std::optional<std::string> Flags::*, std::optional<absl::Duration> Flags::*,
                 std::vector<std::string> Flags::*, bool Flags::*, std::string Flags::*,
                 OutputFormat Flags::*>;

// The kinds of configuration file that may hold a setting.
enum class InFile : uint8_t { kNever, kAgents, kAgentsAndKubelets };

struct Setting {
  absl::string_view flag;      // without dashes
  absl::string_view only_for;  // the commands that have the flag, "incidents, plan"; empty: all
  absl::string_view type;      // as pflag prints it after the name; empty for a boolean
  FlagMember member;
  absl::string_view help;  // help texts of kubelet's flags are kubelet's, up to 1.27
  // The rest is for settings that are part of a Config. The name in a file, and in
  // ToString(Config).
  absl::string_view field = "";
  InFile file = InFile::kNever;
  // The effective value as a flag or a file would give it.
  std::string (*print)(const Config& config) = nullptr;
  // Copies the value, which is one of `accepted`. An error is the reason alone. Null: config.cc
  // resolves it.
  absl::Status (*apply)(const Flags& given, Config& config) = nullptr;
  // The possible values, "keep, retire". Empty: any text, or a number.
  absl::string_view accepted = "";
  // How ToString shows an empty value.
  absl::string_view if_empty = "";
  // A running process keeps the value.
  bool fixed = false;
  // The value of the flag alone; then it takes no next word.
  absl::string_view implied = "";

  bool is_bool() const { return type.empty(); }
  bool BelongsTo(absl::string_view command) const;
  bool stands_alone() const { return is_bool() || !implied.empty(); }
};

// In the order of ToString(Config).
extern const absl::Span<const Setting> kSettings;
// In the order of --help.
std::vector<const Setting*> SettingsByFlag();
// Null where no setting has that member.
const Setting* SettingOf(FlagMember member);

// Reads one value of a flag into `flags`. An error is the reason alone.
absl::Status ParseFlag(const Setting& setting, absl::string_view text, Flags& flags);
bool IsGiven(const Setting& setting, const Flags& flags);
// The given value, else the default; empty where that depends on the node or the release.
std::string FlagText(const Setting& setting, const Flags& flags);
std::string HelpWithDefault(const Setting& setting);

// Without flags and file; no gates yet, and the path of the file that would be read.
Config DefaultConfig();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_SETTINGS_H_
