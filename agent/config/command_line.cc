// SPDX-License-Identifier: Apache-2.0
#include "agent/config/command_line.h"

#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/config/settings.h"
#include "featuregates/feature_gates.h"
#include "featuregates/go_text.h"
#include "featuregates/known_features.h"

namespace kipt::agent {
namespace {

using featuregates::GoQuote;

constexpr CommandRow kCommands[] = {
    {"run", Command::kRun, "keep the chains and rules in place; what is done without a command"},
    {"sync", Command::kSync, "put the chains and rules in place, once"},
    {"plan", Command::kPlan, "show what sync would change, and why; exit status 2 if anything"},
    {"status", Command::kStatus, "show the effective configuration and what stands in the kernel"},
    {"retire", Command::kRetire,
     "show what another mode, bit or family left behind; --yes removes what nobody uses"},
    {"audit", Command::kAudit,
     "show who depends on the chains that the feature gate ends; exit status 2 on findings"},
    {"explain", Command::kExplain, "say of every rule that leads to a chain what it is for",
     "TABLE/CHAIN", "nat/KUBE-MARK-MASQ"},
    {"detect", Command::kDetect,
     "show which iptables the node uses, and why; exit status 1 unknown, 2 contradictory"},
    {"gates", Command::kGates, "list the feature gates of the emulated release"},
    {"completion", Command::kCompletion, "write what lets a shell complete this command line",
     "bash|zsh", "bash"},
    {"version", Command::kVersion, "show the version of this program"},
};

// ---- flags and words ----

struct Tokens {
  bool help = false;
  absl::Status error;
  std::vector<std::string> words;
  // As given, in the order of --help.
  std::vector<std::pair<const Setting*, std::string>> values;
};

absl::Status UnknownFlag(absl::string_view argument) {
  const bool shorthand = !absl::StartsWith(argument, "--");
  return absl::InvalidArgumentError(absl::StrCat(
      shorthand
          ? absl::StrCat("unknown shorthand flag: '", argument.substr(1, 1), "' in ", argument)
          : absl::StrCat("unknown flag: ", argument.substr(0, argument.find('='))),
      "; see kube-iptables-agent --help"));
}

// The setting of "--NAME", "--NAME=VALUE", "-v", "-vVALUE" or "-v=VALUE"; null where there is none.
// Leaves in `argument` what follows the name, with the equals sign.
const Setting* TakeFlag(absl::string_view& argument) {
  if (absl::ConsumePrefix(&argument, "-v")) return SettingOf(&Flags::v);
  if (!absl::ConsumePrefix(&argument, "--")) return nullptr;
  const absl::string_view name = argument.substr(0, argument.find('='));
  const auto setting =
      absl::c_find_if(kSettings, [&](const auto& one) { return one.flag == name; });
  argument.remove_prefix(name.size());
  return setting == kSettings.end() ? nullptr : &*setting;
}

// Splits as pflag does: a flag takes the next word, whatever it looks like, except a boolean.
Tokens Tokenise(absl::Span<const std::string> arguments) {
  Tokens tokens;
  const absl::Span<const std::string> before_end(
      arguments.data(), static_cast<size_t>(absl::c_find(arguments, "--") - arguments.begin()));
  tokens.help =
      absl::c_linear_search(before_end, "-h") || absl::c_linear_search(before_end, "--help");
  bool flags_ended = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view rest = arguments[i];
    if (flags_ended || rest.size() < 2 || rest[0] != '-') {
      tokens.words.push_back(arguments[i]);
    } else if (rest == "--") {
      flags_ended = true;
    } else if (const Setting* const setting = TakeFlag(rest); setting == nullptr) {
      tokens.error.Update(UnknownFlag(arguments[i]));
    } else if (absl::ConsumePrefix(&rest, "=") || !rest.empty()) {
      tokens.values.emplace_back(setting, rest);
    } else if (setting->is_bool()) {
      tokens.values.emplace_back(setting, "true");
    } else if (++i < arguments.size()) {
      tokens.values.emplace_back(setting, arguments[i]);
    } else {
      tokens.error =
          absl::InvalidArgumentError(absl::StrCat("flag needs an argument: --", setting->flag));
    }
  }
  absl::c_stable_sort(tokens.values,
                      [](const auto& a, const auto& b) { return a.first->flag < b.first->flag; });
  return tokens;
}

absl::StatusOr<CommandLine> ParseCommand(const std::vector<std::string>& words) {
  // As a daemon of Kubernetes' is started: by its name and flags.
  if (words.empty()) return CommandLine();
  const auto* const row =
      absl::c_find_if(kCommands, [&](const CommandRow& one) { return one.name == words[0]; });
  if (row != std::end(kCommands)) {
    const size_t expected = row->argument.empty() ? 1 : 2;
    if (words.size() < expected) {
      return absl::InvalidArgumentError(absl::StrCat("the command ", row->name, " needs ",
                                                     row->argument, " behind it, as in ", row->name,
                                                     " ", row->example));
    }
    if (words.size() > expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "unexpected argument ", GoQuote(words[expected]), " behind the command ", row->name,
          "; flags begin with --, and a boolean flag takes its value behind an equals sign"));
    }
    return CommandLine{.command = row->command, .argument = expected == 2 ? words[1] : ""};
  }
  std::string message =
      absl::StrCat("unknown command ", GoQuote(words[0]), "; the commands are ",
                   absl::StrJoin(kCommands, ", ", [](std::string* out, const CommandRow& one) {
                     absl::StrAppend(out, one.name);
                   }));
  if (featuregates::GoParseBool(words[0]).ok()) {
    absl::StrAppend(&message, "; a boolean flag takes its value behind an equals sign");
  }
  return absl::InvalidArgumentError(message);
}

absl::Status StoreFlags(const Tokens& tokens, Flags& flags) {
  for (const auto& [setting, value] : tokens.values) {
    const absl::Status status = ParseFlag(*setting, value, flags);
    if (status.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat("invalid argument ", GoQuote(value), " for \"",
                                                   setting->flag == "v" ? "-v, " : "", "--",
                                                   setting->flag, "\" flag: ", status.message()));
  }
  return absl::OkStatus();
}

// Whether no flag, and not the output format, is another command's.
absl::Status CheckFitsCommand(const CommandLine& line, const Tokens& tokens) {
  const absl::string_view command = CommandName(line.command);
  for (const auto& [setting, value] : tokens.values) {
    if (setting->only_for.empty() || setting->only_for == command) continue;
    return absl::InvalidArgumentError(absl::StrCat("the flag --", setting->flag,
                                                   " is of the command ", setting->only_for,
                                                   " only, not of ", command));
  }
  if (line.flags.output == OutputFormat::kDot && line.command != Command::kAudit) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output=dot is of the command audit only, not of ", command));
  }
  return absl::OkStatus();
}

// ---- --help ----

// `text` in lines of at most 100 columns, each indented.
void AppendWrapped(absl::string_view text, std::string& out) {
  static constexpr absl::string_view kIndent = "           ";
  size_t column = 0;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    if (column == 0 || column + 1 + word.size() > 100) {
      absl::StrAppend(&out, column == 0 ? "" : "\n", kIndent);
      column = kIndent.size();
    }
    absl::StrAppend(&out, " ", word);
    column += 1 + word.size();
  }
  out += '\n';
}

// The gates are those of the last --emulated-version, however wrong the rest is.
std::string HelpText(const Tokens& tokens) {
  std::string emulated_version;
  for (const auto& [setting, value] : tokens.values) {
    if (setting->flag == "emulated-version") emulated_version = value;
  }
  std::string out =
      "Keeps kubelet's iptables chains as KEP-3178 wants them, through nf_tables or legacy "
      "iptables.\n\n"
      "Usage:\n  kube-iptables-agent [COMMAND] [flags]\n\nCommands:\n";
  for (const CommandRow& row : kCommands) {
    absl::StrAppend(&out, "  ", row.name, std::string(12 - row.name.size(), ' '), row.help, "\n");
    if (row.argument.empty()) continue;
    absl::StrAppend(&out, "              (", row.name, " ", row.argument, ")\n");
  }
  out +=
      "\nFlags, of every command but where they say of which:\n  -h, --help\n            this "
      "text\n";
  for (const Setting* setting : SettingsByFlag()) {
    absl::StrAppend(&out, setting->flag == "v" ? "  -v, --" : "      --", setting->flag,
                    setting->is_bool() ? "" : " ", setting->type, "\n");
    AppendWrapped(HelpWithDefault(*setting), out);
    if (setting->flag != "feature-gates") continue;
    for (const std::string& line : KnownGates(emulated_version)) AppendWrapped(line, out);
  }
  return out;
}

}  // namespace

constinit const absl::Span<const CommandRow> kCommandTable = kCommands;

absl::string_view CommandName(Command command) {
  const auto* const row = absl::c_find_if(
      kCommands, [command](const CommandRow& one) { return one.command == command; });
  return row->name;
}

std::vector<std::string> KnownGates(absl::string_view emulated_version) {
  const auto emulated = featuregates::ResolveEmulatedVersion(emulated_version);
  const auto gates = ResolveFeatureGates(
      emulated.ok() ? emulated->version : featuregates::kDefaultEmulatedVersion, {});
  return gates.ok() ? gates->KnownFeatures() : std::vector<std::string>();
}

absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> arguments) {
  const Tokens tokens = Tokenise(arguments);
  if (tokens.help) return CommandLine{.help = HelpText(tokens)};
  if (!tokens.error.ok()) return tokens.error;
  absl::StatusOr<CommandLine> result = ParseCommand(tokens.words);
  const absl::Status command = result.status();
  // What is wrong with a flag is told first: it may have taken the command's place.
  if (!result.ok()) result = CommandLine();
  absl::Status status = StoreFlags(tokens, result->flags);
  if (status.ok()) status = command;
  if (status.ok()) status = CheckFitsCommand(*result, tokens);
  if (!status.ok()) return status;
  return result;
}

}  // namespace kipt::agent
