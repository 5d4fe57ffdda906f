// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "agent/config/completion.h"

namespace kipt::agent {
namespace {

// Found by compinit as a file _PROGRAM in $fpath, and good for `source <(PROGRAM completion zsh)`.
constexpr char kTemplate[] = R"(#compdef @PROGRAM@
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

std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// The first sentence, which fits beside a flag.
std::string Brief(absl::string_view help) {
  const size_t end = help.find(". ");
  return std::string(
      absl::StripSuffix(end == absl::string_view::npos ? help : help.substr(0, end), "."));
}

// An action of _arguments.
std::string Action(const CompletionValues& values) {
  using Kind = CompletionValues::Kind;
  const std::string words = absl::StrJoin(values.words, " ");
  switch (values.kind) {
    case Kind::kWords:
      return values.list ? absl::StrCat("_sequence compadd - ", words)
                         : absl::StrCat("(", words, ")");
    case Kind::kFile:
      return "_files";
    case Kind::kDirectory:
      return values.list ? "_sequence _files -/" : "_files -/";
    case Kind::kNetns:
      return "{ [[ -n $PREFIX ]] && _files || _files -P /run/netns/ -W /run/netns }";
    case Kind::kAnything:
      break;
  }
  return " ";
}

// Specifications of _arguments, a line each.
std::string FlagLines(const CompletionSpec& spec, absl::string_view command) {
  std::string out;
  for (const CompletionFlag& flag : spec.flags) {
    const bool here =
        command.empty() ? flag.commands.empty() : absl::c_linear_search(flag.commands, command);
    if (!here) continue;
    const std::string help =
        absl::StrCat("[", absl::StrReplaceAll(Brief(flag.help), {{"[", "\\["}, {"]", "\\]"}}), "]");
    const std::string value = absl::StrCat(":", flag.name, ":", Action(flag.values));
    const bool has_value = flag.values.kind != CompletionValues::Kind::kAnything;
    const std::string rest = flag.is_bool ? absl::StrCat(has_value ? "=-" : "", help,
                                                         has_value ? absl::StrCat(":", value) : "")
                                          : absl::StrCat("=", help, value);
    absl::StrAppend(&out, "    ", Quoted(absl::StrCat("--", flag.name, rest)), "\n");
    if (flag.shorthand.empty()) continue;
    absl::StrAppend(&out, "    ",
                    Quoted(absl::StrCat("-", flag.shorthand, flag.is_bool ? "" : "+", help,
                                        flag.is_bool ? "" : value)),
                    "\n");
  }
  return out;
}

std::string WithoutLastNewline(std::string text) {
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace

std::string ZshCompletion(const CompletionSpec& spec) {
  std::vector<std::string> value_flags;
  for (const CompletionFlag& flag : spec.flags) {
    if (flag.is_bool) continue;
    value_flags.push_back(absl::StrCat("--", flag.name));
    if (!flag.shorthand.empty()) value_flags.push_back(absl::StrCat("-", flag.shorthand));
  }
  std::string command_flags;
  std::string commands;
  std::string arguments;
  for (const CompletionCommand& command : spec.commands) {
    const std::string own = FlagLines(spec, command.name);
    const absl::string_view untyped = command.name == spec.default_command ? "|''" : "";
    if (!own.empty()) {
      absl::StrAppend(&command_flags, "    (", command.name, untyped, ") flags+=(\n", own,
                      "    ) ;;\n");
    }
    absl::StrAppend(
        &commands, "        ",
        Quoted(absl::StrCat(command.name, ":", absl::StrReplaceAll(command.help, {{":", "\\:"}}))),
        "\n");
    if (command.argument_values.kind != CompletionValues::Kind::kWords) continue;
    absl::StrAppend(&arguments, "        (", command.name, ") _wanted arguments expl ",
                    Quoted(command.argument), " compadd - ",
                    absl::StrJoin(command.argument_values.words, " "), " && ret=0 ;;\n");
  }
  return absl::StrReplaceAll(kTemplate,
                             {{"@PROGRAM@", spec.program},
                              {"@VALUE_FLAGS@", absl::StrJoin(value_flags, "|")},
                              {"@COMMON_FLAGS@", WithoutLastNewline(FlagLines(spec, ""))},
                              {"@COMMAND_FLAGS@", WithoutLastNewline(command_flags)},
                              {"@COMMANDS@", WithoutLastNewline(commands)},
                              {"@ARGUMENTS@", WithoutLastNewline(arguments)}});
}

}  // namespace kipt::agent
