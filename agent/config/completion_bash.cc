// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "agent/config/completion.h"

namespace kipt::agent {
namespace {

// Words are split at blanks only, as the program gets them: COMP_WORDS is split at = and : besides.
constexpr char kTemplate[] =
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

// Sets what the template's end makes candidates of.
std::string Offer(const CompletionValues& values) {
  using Kind = CompletionValues::Kind;
  const absl::string_view open = values.list ? " open=yes" : "";
  switch (values.kind) {
    case Kind::kWords:
      return absl::StrCat("choices='", absl::StrJoin(values.words, " "), "'", open);
    case Kind::kFile:
      return absl::StrCat("paths=-f", open);
    case Kind::kDirectory:
      return absl::StrCat("paths=-d", open);
    case Kind::kNetns:
      return absl::StrCat("value=${value:-/run/netns/} paths=-f", open);
    case Kind::kAnything:
      break;
  }
  return "";
}

std::string Pattern(const CompletionFlag& flag) {
  return absl::StrCat("--", flag.name, flag.shorthand.empty() ? "" : "|-", flag.shorthand);
}

// A line of a case.
std::string Branch(absl::string_view pattern, absl::string_view action) {
  return absl::StrCat("      ", pattern, ") ", action, " ;;\n");
}

std::string FlagWords(const CompletionSpec& spec, absl::string_view command) {
  std::vector<std::string> words;
  for (const CompletionFlag& flag : spec.flags) {
    const bool here =
        command.empty() ? flag.commands.empty() : absl::c_linear_search(flag.commands, command);
    if (here) words.push_back(absl::StrCat("--", flag.name, flag.is_bool ? "" : "="));
  }
  return absl::StrJoin(words, " ");
}

std::string WithoutLastNewline(std::string text) {
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace

std::string BashCompletion(const CompletionSpec& spec) {
  std::vector<std::string> value_flags;
  std::vector<std::string> commands;
  std::string values;
  std::string command_flags;
  std::string arguments;
  for (const CompletionFlag& flag : spec.flags) {
    if (!flag.is_bool) value_flags.push_back(Pattern(flag));
    const std::string offer = Offer(flag.values);
    if (!offer.empty()) values += Branch(Pattern(flag), offer);
  }
  for (const CompletionCommand& command : spec.commands) {
    commands.push_back(command.name);
    const std::string own = FlagWords(spec, command.name);
    const absl::string_view untyped = command.name == spec.default_command ? "''|" : "";
    if (!own.empty()) {
      command_flags +=
          Branch(absl::StrCat(untyped, command.name), absl::StrCat("choices+=' ", own, "'"));
    }
    const std::string offer = Offer(command.argument_values);
    if (!offer.empty()) arguments += Branch(command.name, offer);
  }
  return absl::StrReplaceAll(
      kTemplate,
      {{"@PROGRAM@", spec.program},
       {"@FUNCTION@", absl::StrCat("_", absl::StrReplaceAll(spec.program, {{"-", "_"}}))},
       {"@VALUE_FLAGS@", absl::StrJoin(value_flags, "|")},
       {"@VALUES@", WithoutLastNewline(values)},
       {"@COMMON_FLAGS@", FlagWords(spec, "")},
       {"@COMMAND_FLAGS@", WithoutLastNewline(command_flags)},
       {"@COMMANDS@", absl::StrJoin(commands, " ")},
       {"@ARGUMENTS@", WithoutLastNewline(arguments)}});
}

}  // namespace kipt::agent
