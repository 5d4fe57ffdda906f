// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/flag_table.h
//
// The commands and flags as tables: what each is called, how its value is read, and what --help
// says about it. Used by command_line.cc; help texts of kubelet's flags are kubelet's (up to 1.27,
// where the bits still had an effect).
#ifndef KIPT_AGENT_CONFIG_FLAG_TABLE_H_
#define KIPT_AGENT_CONFIG_FLAG_TABLE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/config/command_line.h"

namespace kipt::agent {

struct CommandRow {
  absl::string_view name;
  Command command;
  absl::string_view help;
  // What must stand behind the command: "TABLE/CHAIN". Empty: nothing may.
  absl::string_view argument = "";
  // Of the argument, for the message where it is missing.
  absl::string_view example = "";
};

struct FlagRow {
  absl::string_view name;  // without dashes
  absl::string_view type;  // as pflag prints it behind the name; empty for a boolean
  // May stand without a value, which is then true; a value comes behind an equals sign only.
  bool is_bool;
  absl::string_view help;
  // Reads one value. The error is the reason alone, without the flag's name.
  absl::Status (*store)(absl::string_view value, Flags& flags);
  // The one command it is for; of every command without.
  std::optional<Command> only_for = {};
};

extern const absl::Span<const CommandRow> kCommandTable;
extern const absl::Span<const FlagRow> kFlagTable;

// What --help prints. The feature gates are those of the release that `emulated_version` names, or
// of the default where that names none.
std::string HelpText(absl::string_view emulated_version);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_FLAG_TABLE_H_
