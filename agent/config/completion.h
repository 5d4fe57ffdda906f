// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/completion.h
//
// Completion of a command line by bash and zsh, made from a description of the program. The scripts
// do not run the program: a command line that is being typed has no effect. Both programs of this
// project make theirs here; that of the agent comes from settings.h. Their manual pages are made
// from the same description (deploy/debian/manual_page.h). Pure.
#ifndef KIPT_AGENT_CONFIG_COMPLETION_H_
#define KIPT_AGENT_CONFIG_COMPLETION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::agent {

// What can stand as a value, or behind a command.
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
  // May stand without a value; a value comes behind an equals sign only.
  bool is_bool = false;
  std::string type = {};  // as help shows it behind the name; not of a boolean
  std::string help = {};  // sentences; a newline where a list begins a line
  CompletionValues values = {};
  // The commands that have it; empty: all of them.
  std::vector<std::string> commands = {};
};

struct CompletionCommand {
  std::string name;
  std::string help;
  // What must stand behind it, as help names it ("TABLE/CHAIN"), and what is offered there. Empty:
  // nothing may.
  std::string argument = {};
  CompletionValues argument_values = {};
};

struct CompletionSpec {
  std::string program;  // its name, as it is typed
  std::vector<CompletionCommand> commands;
  // The command whose flags are offered while no command was typed.
  std::string default_command;
  std::vector<CompletionFlag> flags;
};

// The script of `shell`. Words, names and helps may hold any character but a single quote or a
// newline in a name or word; nothing in them is run by the shell. InvalidArgument for a shell that
// is not "bash" or "zsh".
absl::StatusOr<std::string> Completion(const CompletionSpec& spec, absl::string_view shell);

// kube-iptables-agent's own: kCommandTable, kSettings, the feature gates of the default release and
// kubelet's chains.
CompletionSpec AgentCompletion();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_COMPLETION_H_
