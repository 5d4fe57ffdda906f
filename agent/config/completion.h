// SPDX-License-Identifier: Apache-2.0
//
// Completion of a command line by bash and zsh, from a description of the program. Manual pages
// (deploy/debian/manual_page.h) are made from it, too. The shells run a short script, which asks
// the program itself: `PROGRAM __complete WORD...`.
#ifndef KIPT_AGENT_CONFIG_COMPLETION_H_
#define KIPT_AGENT_CONFIG_COMPLETION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kipt::agent {

// The accepted values of a flag or argument.
struct CompletionValues {
  enum class Kind : uint8_t {
    kAnything,   // nothing is offered
    kWords,      // one of `words`
    kFile,       // any path
    kDirectory,  // any directory
    kNetns,      // /run/netns/NAME, and any path
  };
  Kind kind = Kind::kAnything;
  std::vector<std::string> words = {};
  // Several, with commas between them.
  bool list = false;

  bool operator==(const CompletionValues&) const = default;
};

struct CompletionFlag {
  std::string name;            // without dashes
  std::string shorthand = {};  // one letter, or empty
  // Its value is optional, and follows an equals sign.
  bool is_bool = false;
  std::string type = {};  // as help shows it after the name; not of a boolean
  std::string help = {};  // sentences; a newline where a list begins a line
  CompletionValues values = {};
  // The commands that have it; empty: all of them.
  std::vector<std::string> commands = {};
};

struct CompletionCommand {
  std::string name;
  std::string help;
  // As help names it, "TABLE/CHAIN". Empty: the command takes none.
  std::string argument = {};
  CompletionValues argument_values = {};
};

struct CompletionSpec {
  std::string program;  // its name, as typed
  std::vector<CompletionCommand> commands;
  // The command whose flags are offered while no command was typed.
  std::string default_command;
  std::vector<CompletionFlag> flags;
};

// The script of `shell`, "bash" or "zsh"; InvalidArgument for another. What the program offers is
// never evaluated by the shell.
absl::StatusOr<std::string> Completion(const CompletionSpec& spec, absl::string_view shell);

// The first word of a command line that asks for Complete().
inline constexpr char kCompleteCommand[] = "__complete";

// What can replace the last of `words`, for the scripts: a line with the kind of value, one with
// the part of the word that stays ("--ip-families=ipv4,"), and "WORD\tHELP" lines.
std::string Complete(const CompletionSpec& spec, absl::Span<const std::string> words);

// kube-iptables-agent's own.
CompletionSpec AgentCompletion();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_COMPLETION_H_
