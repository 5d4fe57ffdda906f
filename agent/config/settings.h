// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/settings.h
//
// The settings of the agent as one table. The command line, the configuration file, --help, the
// manual page, the completions, /flagz, /configz and the log of a changed configuration read it, so
// that a new setting is a field in Flags, a field in Config and a row here.
#ifndef KIPT_AGENT_CONFIG_SETTINGS_H_
#define KIPT_AGENT_CONFIG_SETTINGS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/config/config.h"
#include "featuregates/feature_gates.h"

namespace kipt::agent {

// Read where no --config is given, and may be absent.
inline constexpr char kDefaultConfigPath[] = "/etc/kube-iptables-agent/config.yaml";

// Where a given value is kept. Its type is the type of the setting.
using FlagMember =
    std::variant<std::optional<bool> Flags::*, std::optional<int> Flags::*,
                 std::optional<std::string> Flags::*, std::optional<absl::Duration> Flags::*,
                 std::vector<std::string> Flags::*, bool Flags::*, OutputFormat Flags::*>;

// The kinds of configuration file that may hold a setting.
enum class InFile : uint8_t { kNever, kAgents, kAgentsAndKubelets };

struct Setting {
  absl::string_view flag;      // without dashes
  absl::string_view only_for;  // the one command that has the flag; empty: every command
  absl::string_view type;      // as pflag prints it behind the name; empty for a boolean
  FlagMember member;
  absl::string_view help;  // help texts of kubelet's flags are kubelet's, up to 1.27
  // The rest is for settings that are part of a Config. The name in a configuration file, and in
  // ToString(Config).
  absl::string_view field = "";
  InFile file = InFile::kNever;
  // The effective value as a flag or a file would give it.
  std::string (*print)(const Config& config) = nullptr;
  // Puts the value in `given`, which is one of `accepted`, into `config`. An error is the reason
  // alone. Null: config.cc resolves the setting together with others.
  absl::Status (*apply)(const Flags& given, Config& config) = nullptr;
  // The names that a value may have, "keep, retire". Empty: any text, or a number.
  absl::string_view accepted = "";
  // How ToString shows an empty value.
  absl::string_view if_empty = "";
  // A process keeps the value from its start to its end.
  bool fixed = false;
  // The default where Config has another.
  absl::string_view fallback = "";

  bool is_bool() const { return type.empty(); }
};

// In the order of ToString(Config).
extern const absl::Span<const Setting> kSettings;
// In the order of --help.
std::vector<const Setting*> SettingsByFlag();
// Null where no setting has that member.
const Setting* SettingOf(FlagMember member);

// Reads one value of a flag into `flags`. The error is the reason alone, without the flag's name.
absl::Status ParseFlag(const Setting& setting, absl::string_view text, Flags& flags);
bool IsGiven(const Setting& setting, const Flags& flags);
// The value that was given, else the default. Empty also where the default depends on the node or
// on the release.
std::string FlagText(const Setting& setting, const Flags& flags);
// `setting.help` with the default.
std::string HelpWithDefault(const Setting& setting);

// What holds where no flag and no file says anything; no gates yet.
Config DefaultConfig();

// ---- what ResolveConfig merges ----

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

#endif  // KIPT_AGENT_CONFIG_SETTINGS_H_
