// SPDX-License-Identifier: Apache-2.0
#include "agent/config/command_line.h"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Error.hpp"
#include "CLI/Formatter.hpp"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/config/flag_table.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

using featuregates::GoQuote;

bool EndsFlags(absl::string_view argument) { return argument == "--"; }

bool AsksForHelp(absl::Span<const std::string> arguments) {
  const auto end = std::find_if(arguments.begin(), arguments.end(), EndsFlags);
  return std::any_of(arguments.begin(), end, [](absl::string_view argument) {
    return argument == "-h" || argument == "--help";
  });
}

// The value of the last --emulated-version, however wrong the rest is: for --help.
std::string EmulatedVersionGiven(absl::Span<const std::string> arguments) {
  static constexpr absl::string_view kName = "--emulated-version";
  std::string value;
  for (size_t i = 0; i < arguments.size() && !EndsFlags(arguments[i]); ++i) {
    if (arguments[i] == kName && i + 1 < arguments.size()) value = arguments[i + 1];
    if (absl::StartsWith(arguments[i], absl::StrCat(kName, "="))) {
      value = arguments[i].substr(kName.size() + 1);
    }
  }
  return value;
}

bool IsBareBool(absl::string_view argument) {
  return absl::ConsumePrefix(&argument, "--") &&
         std::any_of(kFlagTable.begin(), kFlagTable.end(),
                     [&](const FlagRow& row) { return row.is_bool && argument == row.name; });
}

// CLI11 takes the next word where "--flag=" has nothing behind the sign, gives a boolean without a
// value the next word, and knows no "-v=2".
std::vector<std::string> Normalise(absl::Span<const std::string> arguments) {
  std::vector<std::string> words;
  bool flags_ended = false;
  for (const std::string& argument : arguments) {
    flags_ended = flags_ended || EndsFlags(argument);
    words.push_back(argument);
    if (flags_ended) continue;
    if (IsBareBool(argument)) {
      words.back() += "=true";
    } else if (absl::StartsWith(argument, "-v=")) {
      words.back().insert(0, "-");
    }
    if (absl::StartsWith(words.back(), "--") && words.back().back() == '=' &&
        words.back().find('=') == words.back().size() - 1) {
      words.back().pop_back();
      words.emplace_back();
    }
  }
  return words;
}

// The words and the values of each flag, by name.
struct Tokens {
  std::vector<std::string> words;
  std::map<absl::string_view, std::vector<std::string>> values;
};

absl::Status UnknownFlag(absl::string_view argument) {
  const std::string name(argument.substr(0, argument.find('=')));
  if (absl::StartsWith(name, "--")) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown flag: ", name, "; see kube-iptables-agent --help"));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown shorthand flag: '", name.substr(1, 1),
                                                 "' in ", argument,
                                                 "; see kube-iptables-agent --help"));
}

// The one place that runs CLI11: it splits, everything else is ours.
absl::StatusOr<Tokens> Tokenise(absl::Span<const std::string> arguments) {
  Tokens tokens;
  try {
    CLI::App app;
    app.set_help_flag();
    app.allow_extras();
    app.add_option("command", tokens.words);
    std::vector<std::pair<absl::string_view, CLI::Option*>> options;
    std::vector<std::string> unused;
    for (const FlagRow& row : kFlagTable) {
      const std::string dashed = absl::StrCat("--", row.name);
      options.emplace_back(row.name, app.add_option(row.name == "v" ? "-v,--v" : dashed, unused)
                                         ->expected(1)
                                         ->allow_extra_args(false)
                                         ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
    }
    std::vector<std::string> words = Normalise(arguments);
    std::reverse(words.begin(), words.end());  // as App::parse wants them
    app.parse(std::move(words));
    for (const std::string& extra : app.remaining()) {
      if (extra != "--") return UnknownFlag(extra);
    }
    for (const auto& [name, option] : options) {
      if (option->count() > 0) tokens.values[name] = option->results();
    }
  } catch (const CLI::ArgumentMismatch& error) {
    // "--config: 1 required TEXT missing"
    const absl::string_view text = error.what();
    return absl::InvalidArgumentError(
        absl::StrCat("flag needs an argument: ", text.substr(0, text.find(':'))));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read the flags: ", error.what()));
  }
  return tokens;
}

absl::StatusOr<CommandLine> ParseCommand(const std::vector<std::string>& words) {
  std::string commands;
  for (const CommandRow& row : kCommandTable) {
    absl::StrAppend(&commands, commands.empty() ? "" : ", ", row.name);
  }
  // As a daemon of Kubernetes' is started: by its name and flags.
  if (words.empty()) return CommandLine();
  for (const CommandRow& row : kCommandTable) {
    if (row.name != words[0]) continue;
    const size_t expected = row.argument.empty() ? 1 : 2;
    if (words.size() == expected) {
      return CommandLine{.command = row.command,
                         .flags = {},
                         .argument = expected == 2 ? words[1] : std::string()};
    }
    if (words.size() < expected) {
      return absl::InvalidArgumentError(absl::StrCat("the command ", row.name, " needs ",
                                                     row.argument, " behind it, as in ", row.name,
                                                     " ", row.example));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "unexpected argument ", GoQuote(words[expected]), " behind the command ", row.name,
        "; flags begin with --, and a boolean flag takes its value behind an equals sign"));
  }
  std::string message =
      absl::StrCat("unknown command ", GoQuote(words[0]), "; the commands are ", commands);
  if (featuregates::GoParseBool(words[0]).ok()) {
    absl::StrAppend(&message, "; a boolean flag takes its value behind an equals sign");
  }
  return absl::InvalidArgumentError(message);
}

// Whether no flag, and not the output format, is another command's.
absl::Status CheckFitsCommand(const CommandLine& line, const Tokens& tokens) {
  for (const FlagRow& row : kFlagTable) {
    const auto given = tokens.values.find(row.name);
    if (!row.only_for || *row.only_for == line.command || given == tokens.values.end() ||
        given->second.empty()) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("the flag --", row.name, " is of the command ",
                                                   CommandName(*row.only_for), " only, not of ",
                                                   CommandName(line.command)));
  }
  if (line.flags.output == OutputFormat::kDot && line.command != Command::kAudit) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--output=dot is of the command audit only, not of ", CommandName(line.command)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::variant<CommandLine, Help>> ParseCommandLine(
    absl::Span<const std::string> arguments) {
  if (AsksForHelp(arguments)) return Help{HelpText(EmulatedVersionGiven(arguments))};
  absl::StatusOr<Tokens> tokens = Tokenise(arguments);
  if (!tokens.ok()) return tokens.status();
  absl::StatusOr<CommandLine> result = ParseCommand(tokens->words);
  const absl::Status command = result.status();
  // What is wrong with a flag is told first: it may have taken the command's place.
  if (!result.ok()) result = CommandLine();
  for (const FlagRow& row : kFlagTable) {
    for (const std::string& value : tokens->values[row.name]) {
      const absl::Status status = row.store(value, result->flags);
      if (status.ok()) continue;
      const absl::string_view shorthand = row.name == "v" ? "-v, " : "";
      return absl::InvalidArgumentError(absl::StrCat("invalid argument ", GoQuote(value), " for \"",
                                                     shorthand, "--", row.name,
                                                     "\" flag: ", status.message()));
    }
  }
  if (!command.ok()) return command;
  if (absl::Status status = CheckFitsCommand(*result, *tokens); !status.ok()) return status;
  return *std::move(result);
}

}  // namespace kipt::agent
