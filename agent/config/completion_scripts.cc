// SPDX-License-Identifier: Apache-2.0
//
// BashCompletion and ZshCompletion of completion.h.
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

// What a template's @NAMES@ stand for. Those with lines end in a newline.
struct Parts {
  std::string common_flags = {};
  std::string command_flags = {};
  std::string commands = {};
  std::string values = {};
  std::string arguments = {};
};

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

std::string Filled(const char* script, const CompletionSpec& spec, const Parts& parts) {
  const auto lines = [](const std::string& text) { return absl::StripSuffix(text, "\n"); };
  return absl::StrReplaceAll(
      script, {{"@PROGRAM@", spec.program},
               {"@FUNCTION@", absl::StrCat("_", absl::StrReplaceAll(spec.program, {{"-", "_"}}))},
               {"@VALUE_FLAGS@", ValueFlags(spec)},
               {"@VALUES@", lines(parts.values)},
               {"@COMMON_FLAGS@", lines(parts.common_flags)},
               {"@COMMAND_FLAGS@", lines(parts.command_flags)},
               {"@COMMANDS@", lines(parts.commands)},
               {"@ARGUMENTS@", lines(parts.arguments)}});
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
  using enum CompletionValues::Kind;
  const absl::string_view open = values.list ? " open=yes" : "";
  switch (values.kind) {
    case kWords:
      return absl::StrCat("choices='", absl::StrJoin(values.words, " "), "'", open);
    case kFile:
      return absl::StrCat("paths=-f", open);
    case kDirectory:
      return absl::StrCat("paths=-d", open);
    case kNetns:
      return absl::StrCat("value=${value:-/run/netns/} paths=-f", open);
    case kAnything:
      break;
  }
  return "";
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

// The first sentence, which fits beside a flag.
std::string Brief(absl::string_view help) {
  const size_t end = help.find(". ");
  return std::string(
      absl::StripSuffix(end == absl::string_view::npos ? help : help.substr(0, end), "."));
}

// An action of _arguments.
std::string Action(const CompletionValues& values) {
  using enum CompletionValues::Kind;
  const std::string words = absl::StrJoin(values.words, " ");
  switch (values.kind) {
    case kWords:
      return values.list ? absl::StrCat("_sequence compadd - ", words)
                         : absl::StrCat("(", words, ")");
    case kFile:
      return "_files";
    case kDirectory:
      return values.list ? "_sequence _files -/" : "_files -/";
    case kNetns:
      return "{ [[ -n $PREFIX ]] && _files || _files -P /run/netns/ -W /run/netns }";
    case kAnything:
      break;
  }
  return " ";
}

// Specifications of _arguments, a line each.
std::string FlagLines(const CompletionSpec& spec, absl::string_view command) {
  std::string out;
  for (const CompletionFlag* each : FlagsOf(spec, command)) {
    const CompletionFlag& flag = *each;
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

}  // namespace

std::string BashCompletion(const CompletionSpec& spec) {
  Parts parts{.common_flags = FlagWords(spec, "")};
  for (const CompletionFlag& flag : spec.flags) {
    const std::string offer = Offer(flag.values);
    if (!offer.empty()) parts.values += Branch(Pattern(flag), offer);
  }
  for (const CompletionCommand& command : spec.commands) {
    absl::StrAppend(&parts.commands, parts.commands.empty() ? "" : " ", command.name);
    const std::string own = FlagWords(spec, command.name);
    const absl::string_view untyped = command.name == spec.default_command ? "''|" : "";
    if (!own.empty()) {
      parts.command_flags +=
          Branch(absl::StrCat(untyped, command.name), absl::StrCat("choices+=' ", own, "'"));
    }
    const std::string offer = Offer(command.argument_values);
    if (!offer.empty()) parts.arguments += Branch(command.name, offer);
  }
  return Filled(kBash, spec, parts);
}

std::string ZshCompletion(const CompletionSpec& spec) {
  Parts parts{.common_flags = FlagLines(spec, "")};
  for (const CompletionCommand& command : spec.commands) {
    const std::string own = FlagLines(spec, command.name);
    const absl::string_view untyped = command.name == spec.default_command ? "|''" : "";
    if (!own.empty()) {
      absl::StrAppend(&parts.command_flags, "    (", command.name, untyped, ") flags+=(\n", own,
                      "    ) ;;\n");
    }
    absl::StrAppend(
        &parts.commands, "        ",
        Quoted(absl::StrCat(command.name, ":", absl::StrReplaceAll(command.help, {{":", "\\:"}}))),
        "\n");
    if (command.argument_values.kind != CompletionValues::Kind::kWords) continue;
    absl::StrAppend(&parts.arguments, "        (", command.name, ") _wanted arguments expl ",
                    Quoted(command.argument), " compadd - ",
                    absl::StrJoin(command.argument_values.words, " "), " && ret=0 ;;\n");
  }
  return Filled(kZsh, spec, parts);
}

}  // namespace kipt::agent
