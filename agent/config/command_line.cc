// SPDX-License-Identifier: Apache-2.0
#include "agent/config/command_line.h"

#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "agent/config/settings.h"
#include "agent/text/printable.h"
#include "featuregates/feature_gates.h"
#include "featuregates/go_text.h"
#include "featuregates/known_features.h"

namespace kipt::agent {
namespace {

// As the values of Command.
constexpr CommandRow kCommands[] = {
    {"run", "keep the chains and rules in place (the default)"},
    {"sync", "put the chains and rules in place once"},
    {"plan", "show what sync would change, and why; exit status 2 if anything"},
    {"status", "show the effective configuration and the kernel's current state"},
    {"check", "report in one line whether the node is ready; exit status 2 if it is not"},
    {"incidents",
     "print the last incidents: what run repaired, who damaged it, and how long it took"},
    {"retire", "list leftovers of other gate settings, bits or families; --yes removes the unused"},
    {"audit",
     "show who depends on the chains that the feature gate ends; exit status 2 on findings"},
    {"explain", "explain every rule that leads to a chain", "TABLE/CHAIN", "nat/KUBE-MARK-MASQ"},
    {"marks", "show who sets and tests which bits of the packet mark; exit status 2 on findings"},
    {"detect",
     "show which iptables the node uses, and why; exit status 1 unknown, 2 contradictory"},
    {"gates", "list the feature gates of the emulated release"},
    {"completion", "print what a shell needs to complete this command line", "bash|zsh", "bash"},
    {"version", "show the version of this program"},
    {"help", "explain this program, or one command", "[COMMAND]", "audit"},
};

absl::Status UsageError(const auto&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// ---- flags and words ----

struct Tokens {
  bool help = false;
  bool version = false;
  absl::Status error;
  std::vector<std::string> words;
  // As given, in the order of --help.
  std::vector<std::pair<const Setting*, std::string>> values;
};

absl::Status UnknownFlag(absl::string_view argument) {
  constexpr absl::string_view kAdvice = "; see kube-iptables-agent --help";
  if (absl::StartsWith(argument, "--")) {
    return UsageError("unknown flag: ", argument.substr(0, argument.find('=')), kAdvice);
  }
  return UsageError("unknown shorthand flag: '", argument.substr(1, 1), "' in ", argument, kAdvice);
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

// Splits as pflag does: a flag, unless it is boolean, takes the next word, even one that begins
// with "-".
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
    } else if (rest == "--version") {
      tokens.version = true;
    } else if (const Setting* const setting = TakeFlag(rest); setting == nullptr) {
      tokens.error.Update(UnknownFlag(arguments[i]));
    } else if (absl::ConsumePrefix(&rest, "=") || !rest.empty()) {
      tokens.values.emplace_back(setting, rest);
    } else if (setting->stands_alone()) {
      tokens.values.emplace_back(setting, setting->is_bool() ? "true" : setting->implied);
    } else if (++i < arguments.size()) {
      tokens.values.emplace_back(setting, arguments[i]);
    } else {
      tokens.error = UsageError("flag needs an argument: --", setting->flag);
    }
  }
  absl::c_stable_sort(tokens.values,
                      [](const auto& a, const auto& b) { return a.first->flag < b.first->flag; });
  return tokens;
}

// Null where `word` is none.
const CommandRow* FindCommand(absl::string_view word) {
  const auto* const row =
      absl::c_find_if(kCommands, [&](const CommandRow& one) { return one.name == word; });
  return row == std::end(kCommands) ? nullptr : row;
}

absl::Status UnknownCommand(const std::string& word) {
  const auto append_name = [](std::string* out, const CommandRow& one) {
    absl::StrAppend(out, one.name);
  };
  return UsageError("unknown command ", GoQuote(word), "; the commands are ",
                    absl::StrJoin(kCommands, ", ", append_name),
                    featuregates::GoParseBool(word).ok()
                        ? "; a boolean flag takes its value after an equals sign"
                        : "");
}

absl::Status ParseCommand(const std::vector<std::string>& words, CommandLine& line) {
  // As a daemon of Kubernetes is started: by its name and flags.
  if (words.empty()) return absl::OkStatus();
  const CommandRow* const row = FindCommand(words[0]);
  if (row == nullptr) return UnknownCommand(words[0]);
  const size_t expected = row->argument.empty() ? 1 : 2;
  const bool optional = absl::StartsWith(row->argument, "[");
  if (words.size() < expected && !optional) {
    return UsageError("the command ", row->name, " needs ", row->argument, " after it, as in ",
                      row->name, " ", row->example);
  }
  if (words.size() > expected) {
    return UsageError(
        "unexpected argument ", GoQuote(words[expected]), " after the command ", row->name,
        "; flags begin with --, and a boolean flag takes its value after an equals sign");
  }
  line.command = static_cast<Command>(row - kCommands);
  if (words.size() == 2) line.argument = words[1];
  const bool helps = line.command == Command::kHelp && words.size() == 2;
  return helps && FindCommand(words[1]) == nullptr ? UnknownCommand(words[1]) : absl::OkStatus();
}

absl::Status StoreFlags(const Tokens& tokens, Flags& flags) {
  for (const auto& [setting, value] : tokens.values) {
    const absl::Status status = ParseFlag(*setting, value, flags);
    if (status.ok()) continue;
    return UsageError("invalid argument ", GoQuote(value), " for \"",
                      setting->flag == "v" ? "-v, " : "", "--", setting->flag,
                      "\" flag: ", status.message());
  }
  return absl::OkStatus();
}

// Neither a flag nor the output format is another command's.
absl::Status CheckFitsCommand(const CommandLine& line, const Tokens& tokens) {
  const absl::string_view command = CommandName(line.command);
  for (const auto& [setting, value] : tokens.values) {
    if (setting->BelongsTo(command)) continue;
    const bool several = absl::StrContains(setting->only_for, ", ");
    return UsageError("the flag --", setting->flag, " belongs to the command", several ? "s " : " ",
                      absl::StrReplaceAll(setting->only_for, {{", ", " and "}}), ", not to ",
                      command);
  }
  if (line.flags.output == OutputFormat::kDot && line.command != Command::kAudit) {
    return UsageError("--output=dot belongs to the command audit, not to ", command);
  }
  if (line.flags.output == OutputFormat::kSvg && line.command != Command::kMarks) {
    return UsageError("--output=svg belongs to the command marks, not to ", command);
  }
  if (line.flags.output == OutputFormat::kNpd && line.command != Command::kCheck) {
    return UsageError("--output=npd belongs to the command check, not to ", command);
  }
  return absl::OkStatus();
}

// ---- --help ----

constexpr size_t kIndent = 12;

std::string FlagHelp(const Setting& setting) {
  return absl::StrCat(setting.flag == "v" ? "  -v, --" : "      --", setting.flag,
                      setting.is_bool() ? "" : " ", setting.type, "\n",
                      Wrapped(HelpWithDefault(setting), kIndent));
}

std::string CommandHelpText(const CommandRow& row) {
  // The daemon uses all that have no command of their own.
  const bool explains_all = row.name == CommandName(Command::kRun);
  std::string own;
  std::vector<std::string> common;
  for (const Setting* setting : SettingsByFlag()) {
    if (setting->only_for.empty() && !explains_all) {
      common.push_back(absl::StrCat("--", setting->flag));
    } else if (setting->BelongsTo(row.name)) {
      own += FlagHelp(*setting);
    }
  }
  return absl::StrCat(Wrapped(row.help, 0), "\nUsage:\n  kube-iptables-agent ", row.name,
                      row.argument.empty() ? "" : " ", row.argument, " [flags]\n",
                      own.empty() ? "" : absl::StrCat("\nFlags of ", row.name, ":\n", own),
                      common.empty()
                          ? ""
                          : absl::StrCat("\nFlags of every command, which kube-iptables-agent "
                                         "--help explains:\n",
                                         Wrapped(absl::StrJoin(common, ", "), 2)));
}

// With the gates of the last --emulated-version, even if other arguments are wrong.
std::string HelpText(const Tokens& tokens) {
  std::string emulated_version;
  for (const auto& [setting, value] : tokens.values) {
    if (setting->flag == "emulated-version") emulated_version = value;
  }
  std::string out =
      "Keeps kubelet's iptables chains as KEP-3178 defines them, through nf_tables or "
      "iptables-legacy.\n\nUsage:\n  kube-iptables-agent [COMMAND] [flags]\n\nCommands:\n";
  for (const CommandRow& row : kCommands) {
    absl::StrAppend(&out, "  ", row.name, std::string(12 - row.name.size(), ' '), row.help, "\n");
    if (row.argument.empty()) continue;
    absl::StrAppend(&out, "              (", row.name, " ", row.argument, ")\n");
  }
  out +=
      "\nFlags of every command, except those that name theirs:\n  -h, --help\n            print "
      "this text, or a command's\n      --version\n            do what version does\n";
  for (const Setting* setting : SettingsByFlag()) {
    out += FlagHelp(*setting);
    if (setting->flag != "feature-gates") continue;
    for (const std::string& line : KnownGates(emulated_version)) out += Wrapped(line, kIndent);
  }
  return out;
}

// A command's, where the first of `words` is one.
std::string HelpOf(const Tokens& tokens, absl::Span<const std::string> words) {
  const CommandRow* const row = words.empty() ? nullptr : FindCommand(words[0]);
  return row == nullptr ? HelpText(tokens) : CommandHelpText(*row);
}

}  // namespace

constinit const absl::Span<const CommandRow> kCommandTable = kCommands;

absl::string_view CommandName(Command command) {
  return kCommands[static_cast<size_t>(command)].name;
}

std::vector<std::string> KnownGates(absl::string_view emulated_version) {
  const auto emulated = featuregates::ResolveEmulatedVersion(emulated_version);
  const auto gates = ResolveFeatureGates(
      emulated.ok() ? emulated->version : featuregates::kDefaultEmulatedVersion, {});
  return gates.ok() ? gates->KnownFeatures() : std::vector<std::string>();
}

absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> arguments) {
  const Tokens tokens = Tokenise(arguments);
  if (tokens.help) return CommandLine{.help = HelpOf(tokens, tokens.words)};
  if (!tokens.error.ok()) return tokens.error;
  CommandLine line;
  const absl::Status command = ParseCommand(tokens.words, line);
  if (tokens.version) line.command = Command::kVersion;
  if (line.command == Command::kHelp && command.ok()) {
    line.help = HelpOf(tokens, absl::MakeConstSpan(tokens.words).subspan(1));
  }
  // An error in a flag comes first: the flag may have taken the command as its value.
  absl::Status first = StoreFlags(tokens, line.flags);
  first.Update(command);
  first.Update(CheckFitsCommand(line, tokens));
  if (!first.ok()) return first;
  return line;
}

}  // namespace kipt::agent
