// SPDX-License-Identifier: Apache-2.0
#include "agent/config/completion.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/config/command_line.h"
#include "agent/config/settings.h"
#include "agent/policy/policy_tables.h"
#include "featuregates/go_text.h"
#include "featuregates/known_features.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using Kind = CompletionValues::Kind;

// ---- what this program has ----

CompletionValues Words(std::vector<std::string> words, bool list = false) {
  return {.kind = Kind::kWords, .words = std::move(words), .list = list};
}

CompletionValues Gates() {
  std::vector<std::string> words;
  for (const std::string& line : KnownGates("")) {
    const std::string name = line.substr(0, line.find('='));
    for (const char* value : {"=true", "=false"}) words.push_back(absl::StrCat(name, value));
  }
  return Words(std::move(words), /*list=*/true);
}

CompletionValues Releases() {
  std::vector<std::string> words;
  for (featuregates::Version release = featuregates::kOldestEmulatedVersion;
       release <= featuregates::kNewestKnownRelease; ++release.minor) {
    words.push_back(featuregates::ToString(release));
  }
  return Words(std::move(words));
}

// Numbers, addresses and patterns cannot be offered.
CompletionValues ValuesOf(const Setting& setting) {
  absl::string_view type = setting.type;
  if (setting.is_bool()) return Words({"true", "false"});
  if (setting.member == FlagMember(&Flags::emulated_version)) return Releases();
  if (setting.member == FlagMember(&Flags::feature_gates)) return Gates();
  if (setting.member == FlagMember(&Flags::netns)) return {.kind = Kind::kNetns};
  if (type == "file" || setting.member == FlagMember(&Flags::config)) return {.kind = Kind::kFile};
  const bool list = absl::ConsumeSuffix(&type, ",...") || setting.field == "ipFamilies";
  if (type == "directory") return {.kind = Kind::kDirectory, .list = list};
  if (setting.accepted.empty()) return {};
  return Words(absl::StrSplit(setting.accepted, ", "), list);
}

CompletionValues ArgumentsOf(Command command) {
  if (command == Command::kCompletion) return Words({"bash", "zsh"});
  if (command != Command::kExplain) return {};
  std::vector<std::string> chains;
  for (const kep3178::ChainRow& row : kep3178::kChains) {
    std::string chain = absl::StrCat(netlink::TableName(row.table), "/", row.chain);
    if (!absl::c_linear_search(chains, chain)) chains.push_back(std::move(chain));
  }
  return Words(std::move(chains));
}

// Words are split at blanks only, as the program gets them: COMP_WORDS is split at = and : besides.
constexpr char kBash[] =
    R"(# bash completion for @PROGRAM@, written by "@PROGRAM@ completion bash"

@FUNCTION@() {
  local line=${COMP_LINE:0:COMP_POINT}
  local word command='' argument='' flag='' lead='' choices='' paths='' open=''
  local -a words=()
  COMPREPLY=()
  read -r -a words <<<"$line"
  if [[ $line == *[[:space:]] ]]; then words+=(''); fi
  local current=${words[${#words[@]} - 1]}

  # What stands before: the command, its argument, a flag that waits for its value.
  for word in "${words[@]:1:${#words[@]}-2}"; do
    if [[ $flag ]]; then
      flag=
      continue
    fi
    case $word in
      @VALUE_FLAGS@) flag=$word ;;
      -*) ;;
      *)
        if [[ ! $command ]]; then command=$word
        elif [[ ! $argument ]]; then argument=$word
        fi
        ;;
    esac
  done
  if [[ ! $flag && $current == --*=* ]]; then
    flag=${current%%=*} lead=${current%%=*}=
  fi
  local value=${current#"$lead"}

  if [[ $flag ]]; then
    case $flag in
@VALUES@
    esac
  elif [[ $current == -* ]]; then
    choices='@COMMON_FLAGS@'
    case $command in
@COMMAND_FLAGS@
    esac
  elif [[ ! $command ]]; then
    choices='@COMMANDS@'
  elif [[ ! $argument ]]; then
    case $command in
@ARGUMENTS@
    esac
  fi

  if [[ $open ]]; then  # behind the last comma
    word=${value##*,}
    lead+=${value%"$word"} value=$word
  fi
  if [[ $choices ]]; then
    mapfile -t COMPREPLY < <(compgen -P "$lead" -W "$choices" -- "$value")
  elif [[ $paths ]]; then
    mapfile -t COMPREPLY < <(compgen -P "$lead" "$paths" -- "$value")
    compopt -o filenames 2>/dev/null
  fi
  if [[ $open || ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi
  # Readline replaces what follows the last = or : only, where it breaks words there.
  local breaks=${COMP_WORDBREAKS//[^=:]/}
  if [[ $breaks && $current == *["$breaks"]* ]]; then
    word=${current##*["$breaks"]}
    COMPREPLY=("${COMPREPLY[@]#"${current%"$word"}"}")
  fi
}
complete -F @FUNCTION@ @PROGRAM@
)";

// Found by compinit as a file _PROGRAM in $fpath, and good for `source <(PROGRAM completion zsh)`.
constexpr char kZsh[] = R"(#compdef @PROGRAM@
# zsh completion for @PROGRAM@, written by "@PROGRAM@ completion zsh"

_@PROGRAM@() {
  local curcontext=$curcontext state word command='' waits='' ret=1
  local -a flags commands line expl
  typeset -A opt_args

  # The command, which is the first word that is neither a flag nor a flag's value.
  for word in "${(@)words[2,CURRENT-1]}"; do
    if [[ -n $waits ]]; then
      waits=
      continue
    fi
    case $word in
      (@VALUE_FLAGS@) waits=yes ;;
      (-*) ;;
      (*) command=$word; break ;;
    esac
  done

  flags=(
@COMMON_FLAGS@
  )
  case $command in
@COMMAND_FLAGS@
  esac
  _arguments -C $flags '1: :->command' '2: :->argument' && ret=0
  case $state in
    (command)
      commands=(
@COMMANDS@
      )
      _describe -t commands command commands && ret=0
      ;;
    (argument)
      case $command in
@ARGUMENTS@
      esac
      ;;
  esac
  return ret
}

if [[ $funcstack[1] == _@PROGRAM@ ]]; then
  _@PROGRAM@ "$@"
else
  compdef _@PROGRAM@ @PROGRAM@
fi
)";

// The lines that a template's @NAMES@ stand for.
using Parts = std::vector<std::pair<absl::string_view, std::string>>;

std::string Pattern(const CompletionFlag& flag) {
  return absl::StrCat("--", flag.name, flag.shorthand.empty() ? "" : "|-", flag.shorthand);
}

// The spellings of the flags that take the next word as their value.
std::string ValueFlags(const CompletionSpec& spec) {
  std::vector<std::string> patterns;
  for (const CompletionFlag& flag : spec.flags) {
    if (!flag.is_bool) patterns.push_back(Pattern(flag));
  }
  return absl::StrJoin(patterns, "|");
}

std::string Filled(const char* script, const CompletionSpec& spec, Parts parts) {
  for (auto& [name, lines] : parts) lines = std::string(absl::StripSuffix(lines, "\n"));
  const std::string function = absl::StrCat("_", absl::StrReplaceAll(spec.program, {{"-", "_"}}));
  parts.insert(
      parts.end(),
      {{"@PROGRAM@", spec.program}, {"@FUNCTION@", function}, {"@VALUE_FLAGS@", ValueFlags(spec)}});
  return absl::StrReplaceAll(script, parts);
}

// The flags of `command` alone; of every command if it is empty.
std::vector<const CompletionFlag*> FlagsOf(const CompletionSpec& spec, absl::string_view command) {
  std::vector<const CompletionFlag*> flags;
  for (const CompletionFlag& flag : spec.flags) {
    const bool here =
        command.empty() ? flag.commands.empty() : absl::c_linear_search(flag.commands, command);
    if (here) flags.push_back(&flag);
  }
  return flags;
}

// ---- bash ----

// Sets what the template's end makes candidates of.
std::string Offer(const CompletionValues& values) {
  const absl::string_view open = values.list ? " open=yes" : "";
  if (values.kind == Kind::kWords) {
    return absl::StrCat("choices='", absl::StrJoin(values.words, " "), "'", open);
  }
  if (values.kind == Kind::kFile) return absl::StrCat("paths=-f", open);
  if (values.kind == Kind::kDirectory) return absl::StrCat("paths=-d", open);
  return values.kind == Kind::kNetns ? "value=${value:-/run/netns/} paths=-f" : "";
}

// A line of a case.
std::string Branch(absl::string_view pattern, absl::string_view action) {
  return absl::StrCat("      ", pattern, ") ", action, " ;;\n");
}

std::string FlagWords(const CompletionSpec& spec, absl::string_view command) {
  return absl::StrJoin(FlagsOf(spec, command), " ",
                       [](std::string* out, const CompletionFlag* flag) {
                         absl::StrAppend(out, "--", flag->name, flag->is_bool ? "" : "=");
                       });
}

// ---- zsh ----

std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// The first sentence, which fits next to a flag.
std::string Brief(absl::string_view help) {
  const size_t end = help.find(". ");
  return std::string(
      absl::StripSuffix(end == absl::string_view::npos ? help : help.substr(0, end), "."));
}

// An action of _arguments.
std::string Action(const CompletionValues& values) {
  const std::string words = absl::StrJoin(values.words, " ");
  if (values.kind == Kind::kWords && values.list) return "_sequence compadd - " + words;
  if (values.kind == Kind::kWords) return absl::StrCat("(", words, ")");
  if (values.kind == Kind::kFile) return "_files";
  if (values.kind == Kind::kDirectory) return values.list ? "_sequence _files -/" : "_files -/";
  if (values.kind != Kind::kNetns) return " ";
  return "{ [[ -n $PREFIX ]] && _files || _files -P /run/netns/ -W /run/netns }";
}

// Specifications of _arguments, a line each.
std::string FlagLines(const CompletionSpec& spec, absl::string_view command) {
  std::string out;
  const auto add = [&out](auto... parts) {
    absl::StrAppend(&out, "    ", Quoted(absl::StrCat(parts...)), "\n");
  };
  for (const CompletionFlag* flag : FlagsOf(spec, command)) {
    const std::string brief = absl::StrReplaceAll(Brief(flag->help), {{"[", "\\["}, {"]", "\\]"}});
    const std::string help = absl::StrCat("[", brief, "]");
    const std::string value = absl::StrCat(":", flag->name, ":", Action(flag->values));
    if (!flag->is_bool) {
      add("--", flag->name, "=", help, value);
    } else if (flag->values.kind == Kind::kAnything) {
      add("--", flag->name, help);
    } else {
      add("--", flag->name, "=-", help, ":", value);
    }
    if (flag->shorthand.empty()) continue;
    add("-", flag->shorthand, flag->is_bool ? "" : "+", help, flag->is_bool ? "" : value);
  }
  return out;
}

std::string BashCompletion(const CompletionSpec& spec) {
  std::string values;
  std::string command_flags;
  std::string arguments;
  for (const CompletionFlag& flag : spec.flags) {
    const std::string offer = Offer(flag.values);
    if (!offer.empty()) values += Branch(Pattern(flag), offer);
  }
  for (const CompletionCommand& command : spec.commands) {
    const std::string own = FlagWords(spec, command.name);
    const absl::string_view untyped = command.name == spec.default_command ? "''|" : "";
    if (!own.empty()) {
      command_flags +=
          Branch(absl::StrCat(untyped, command.name), absl::StrCat("choices+=' ", own, "'"));
    }
    const std::string offer = Offer(command.argument_values);
    if (!offer.empty()) arguments += Branch(command.name, offer);
  }
  return Filled(
      kBash, spec,
      {{"@COMMANDS@", absl::StrJoin(spec.commands, " ",
                                    [](std::string* out, const CompletionCommand& command) {
                                      *out += command.name;
                                    })},
       {"@COMMON_FLAGS@", FlagWords(spec, "")},
       {"@COMMAND_FLAGS@", command_flags},
       {"@VALUES@", values},
       {"@ARGUMENTS@", arguments}});
}

std::string ZshCompletion(const CompletionSpec& spec) {
  std::string commands;
  std::string command_flags;
  std::string arguments;
  for (const CompletionCommand& command : spec.commands) {
    const std::string own = FlagLines(spec, command.name);
    const absl::string_view untyped = command.name == spec.default_command ? "|''" : "";
    if (!own.empty()) {
      absl::StrAppend(&command_flags, "    (", command.name, untyped, ") flags+=(\n", own,
                      "    ) ;;\n");
    }
    const std::string help = absl::StrReplaceAll(command.help, {{":", "\\:"}});
    absl::StrAppend(&commands, "        ", Quoted(absl::StrCat(command.name, ":", help)), "\n");
    if (command.argument_values.kind != Kind::kWords) continue;
    absl::StrAppend(&arguments, "        (", command.name, ") _wanted arguments expl ",
                    Quoted(command.argument), " compadd - ",
                    absl::StrJoin(command.argument_values.words, " "), " && ret=0 ;;\n");
  }
  return Filled(kZsh, spec,
                {{"@COMMANDS@", commands},
                 {"@COMMON_FLAGS@", FlagLines(spec, "")},
                 {"@COMMAND_FLAGS@", command_flags},
                 {"@ARGUMENTS@", arguments}});
}

}  // namespace

CompletionSpec AgentCompletion() {
  CompletionSpec spec{
      .program = "kube-iptables-agent",
      .commands = {},
      .default_command = std::string(CommandName(Command::kRun)),
      .flags = {{.name = "help", .shorthand = "h", .is_bool = true, .help = "help"}}};
  for (const CommandRow& row : kCommandTable) {
    spec.commands.push_back({.name = std::string(row.name),
                             .help = std::string(row.help),
                             .argument = std::string(row.argument),
                             .argument_values = ArgumentsOf(row.command)});
  }
  for (const Setting* setting : SettingsByFlag()) {
    CompletionFlag flag{.name = std::string(setting->flag),
                        .shorthand = setting->flag == "v" ? "v" : "",
                        .is_bool = setting->is_bool(),
                        .type = std::string(setting->type),
                        .help = HelpWithDefault(*setting),
                        .values = ValuesOf(*setting)};
    if (setting->flag == "feature-gates") {
      for (const std::string& gate : KnownGates("")) absl::StrAppend(&flag.help, "\n", gate);
    }
    if (!setting->only_for.empty()) flag.commands.emplace_back(setting->only_for);
    spec.flags.push_back(std::move(flag));
  }
  return spec;
}

absl::StatusOr<std::string> Completion(const CompletionSpec& spec, absl::string_view shell) {
  if (shell == "bash") return BashCompletion(spec);
  if (shell == "zsh") return ZshCompletion(spec);
  return absl::InvalidArgumentError(absl::StrCat("there is no completion for the shell ",
                                                 featuregates::GoQuote(shell),
                                                 "; there are bash and zsh"));
}

}  // namespace kipt::agent
