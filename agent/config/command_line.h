// SPDX-License-Identifier: Apache-2.0
//
// The command line as a value: the command and the given flags, not resolved yet (config.h).
// Spelling and messages are those of kubelet's flags (github.com/spf13/pflag), so that a kubelet's
// command line can be copied here.
#ifndef KIPT_AGENT_CONFIG_COMMAND_LINE_H_
#define KIPT_AGENT_CONFIG_COMMAND_LINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/config/config.h"

namespace kipt::agent {

enum class Command : uint8_t {
  kRun,
  kSync,
  kPlan,
  kStatus,
  kCheck,
  kIncidents,
  kRetire,
  kAudit,
  kExplain,
  kMarks,
  kDetect,
  kGates,
  kCompletion,
  kVersion,
  kHelp
};
absl::string_view CommandName(Command command);  // "run", ...

struct CommandRow {
  absl::string_view name;
  absl::string_view help;
  // The argument that the command requires, or in brackets accepts, and an example. Empty: none is
  // accepted.
  absl::string_view argument = "";
  absl::string_view example = "";
};
// As the values of Command.
extern const absl::Span<const CommandRow> kCommandTable;

struct CommandLine {
  Command command = Command::kRun;
  Flags flags = {};
  // The TABLE/CHAIN of `explain`, the shell of `completion`, the command of `help`; else empty.
  std::string argument = {};
  // The text of --help, where the rest is not parsed, or of `help`.
  std::string help = {};

  bool operator==(const CommandLine&) const = default;
};

// Parses the arguments without the program's name, `[COMMAND [ARGUMENT]] [flags]`; flags may also
// come first, and the default command is `run`. --version makes the command `version`. Integers are
// decimal, booleans and durations Go's (strconv.ParseBool, time.ParseDuration), `--flag=` is an
// empty value. The help lists the feature gates of the release that a valid --emulated-version
// names, else of the default.
//
// InvalidArgument for everything that is wrong, with pflag's words where it has any:
//   unknown flag: --x
//   flag needs an argument: --config
//   invalid argument "x" for "--iptables-drop-bit" flag: ...
absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> arguments);

// The gates of the release that `emulated_version` names, or of the default where that names none,
// as --help lists them: "NAME=true|false (BETA - default=true)".
std::vector<std::string> KnownGates(absl::string_view emulated_version);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_COMMAND_LINE_H_
