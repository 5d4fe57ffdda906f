// SPDX-License-Identifier: Apache-2.0
#include "agent/config/completion.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/config/command_line.h"
#include "agent/config/settings.h"
#include "agent/policy/policy_tables.h"
#include "agent/text/printable.h"
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
    words.insert(words.end(), {name + "=true", name + "=false"});
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
  if (type == "file" || setting.member == FlagMember(&Flags::config) ||
      setting.member == FlagMember(&Flags::incidents_file) ||
      setting.member == FlagMember(&Flags::expected_rules)) {
    return {.kind = Kind::kFile};
  }
  const bool list = absl::ConsumeSuffix(&type, ",...") || setting.field == "ipFamilies";
  if (type == "directory") return {.kind = Kind::kDirectory, .list = list};
  if (setting.accepted.empty()) return {};
  return Words(absl::StrSplit(setting.accepted, ", "), list);
}

CompletionValues ArgumentsOf(const CommandRow& row) {
  if (row.name == CommandName(Command::kCompletion)) return Words({"bash", "zsh"});
  if (row.name == CommandName(Command::kHelp)) {
    std::vector<std::string> names;
    for (const CommandRow& each : kCommandTable) names.emplace_back(each.name);
    return Words(std::move(names));
  }
  if (row.name != CommandName(Command::kExplain)) return {};
  std::vector<std::string> chains;
  for (const kep3178::ChainRow& each : kep3178::kChains) {
    std::string chain = absl::StrCat(netlink::TableName(each.table), "/", each.chain);
    if (!absl::c_linear_search(chains, chain)) chains.push_back(std::move(chain));
  }
  return Words(std::move(chains));
}

// Words are split at blanks only, as the program gets them: COMP_WORDS is split at = and : as well.
constexpr char kBash[] =
    R"(# bash completion for @PROGRAM@, written by "@PROGRAM@ completion bash"

@FUNCTION@() {
  local line=${COMP_LINE:0:COMP_POINT} word paths=-f breaks=${COMP_WORDBREAKS//[^=:]/}
  local -a words=() reply=()
  COMPREPLY=()
  read -r -a words <<<"$line"
  if [[ $line == *[[:space:]] ]]; then words+=(''); fi
  mapfile -t reply < <(@PROGRAM@ __complete "${words[@]:1}" 2>/dev/null)
  local current=${words[${#words[@]} - 1]} kind=${reply[0]-} lead=${reply[1]-}
  local value=${current#"$lead"}
  if [[ $kind == words* ]]; then
    for word in "${reply[@]:2}"; do COMPREPLY+=("$lead${word%%$'\t'*}"); done
  elif [[ $kind ]]; then
    if [[ $kind == netns ]]; then value=${value:-/run/netns/}; fi
    if [[ $kind == directories* ]]; then paths=-d; fi
    mapfile -t COMPREPLY < <(compgen -P "$lead" "$paths" -- "$value")
    compopt -o filenames 2>/dev/null
  fi
  if [[ $kind == *list || ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi
  # Readline replaces what follows the last = or : only, where it breaks words there.
  if [[ $breaks && $current == *["$breaks"]* ]]; then
    word=${current##*["$breaks"]}
    COMPREPLY=("${COMPREPLY[@]#"${current%"$word"}"}")
  fi
}
complete -F @FUNCTION@ @PROGRAM@
)";

// Found by compinit as a file _PROGRAM in $fpath; also works in `source <(PROGRAM completion zsh)`.
constexpr char kZsh[] = R"(#compdef @PROGRAM@
# zsh completion for @PROGRAM@, written by "@PROGRAM@ completion zsh"

@FUNCTION@() {
  local line word help kind lead
  local -a reply flags values suffix
  reply=("${(@f)$(@PROGRAM@ __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
  kind=$reply[1] lead=$reply[2]
  [[ $kind == *list ]] && suffix=(-qS ,)
  for line in "${(@)reply[3,-1]}"; do
    word=${line%%$'\t'*} help=${line#*$'\t'}
    [[ $kind == *list && ,$lead, == *[,=]${(b)word},* ]] && continue  # is in the list already
    case $word in
      (-*=) flags+=("${word%=}:$help") ;;
      (?*) values+=("${word//:/\\:}${help:+:$help}") ;;
    esac
  done
  [[ -n $lead ]] && compset -P ${(b)lead}
  case $kind in
    (words*) _describe value flags -qS = -- values $suffix ;;
    (files*) _files $suffix ;;
    (directories*) _files -/ $suffix ;;
    (netns) [[ -n $PREFIX ]] && _files || _files -P /run/netns/ -W /run/netns ;;
  esac
}

if [[ $funcstack[1] == @FUNCTION@ ]]; then
  @FUNCTION@ "$@"
else
  compdef @FUNCTION@ @PROGRAM@
fi
)";

// The flag that was typed as "--NAME" or "-N". Null: there is none.
const CompletionFlag* FlagTyped(const CompletionSpec& spec, absl::string_view typed) {
  const auto flag = absl::c_find_if(spec.flags, [typed](const CompletionFlag& one) {
    return typed == absl::StrCat("--", one.name) ||
           (!one.shorthand.empty() && typed == absl::StrCat("-", one.shorthand));
  });
  return flag == spec.flags.end() ? nullptr : &*flag;
}

// The first sentence, which fits next to a flag.
absl::string_view Brief(absl::string_view help) {
  return absl::StripSuffix(help.substr(0, help.find(". ")), ".");
}

}  // namespace

CompletionSpec AgentCompletion() {
  CompletionSpec spec{
      .program = "kube-iptables-agent",
      .commands = {},
      .default_command = std::string(CommandName(Command::kRun)),
      .flags = {{.name = "help", .shorthand = "h", .is_bool = true, .help = "help"},
                {.name = "version", .is_bool = true, .help = "do what version does"}}};
  for (const CommandRow& row : kCommandTable) {
    spec.commands.push_back({.name = std::string(row.name),
                             .help = std::string(row.help),
                             .argument = std::string(row.argument),
                             .argument_values = ArgumentsOf(row)});
  }
  for (const Setting* setting : SettingsByFlag()) {
    CompletionFlag flag{.name = std::string(setting->flag),
                        .shorthand = setting->flag == "v" ? "v" : "",
                        .is_bool = setting->stands_alone(),
                        .type = std::string(setting->type),
                        .help = HelpWithDefault(*setting),
                        .values = ValuesOf(*setting)};
    if (setting->flag == "feature-gates") {
      for (const std::string& gate : KnownGates("")) absl::StrAppend(&flag.help, "\n", gate);
    }
    if (!setting->only_for.empty()) flag.commands = absl::StrSplit(setting->only_for, ", ");
    spec.flags.push_back(std::move(flag));
  }
  return spec;
}

absl::StatusOr<std::string> Completion(const CompletionSpec& spec, absl::string_view shell) {
  const bool bash = shell == "bash";
  if (!bash && shell != "zsh") {
    return absl::InvalidArgumentError(absl::StrCat("there is no completion for the shell ",
                                                   GoQuote(shell), "; there are bash and zsh"));
  }
  const std::string name = bash ? absl::StrReplaceAll(spec.program, {{"-", "_"}}) : spec.program;
  return absl::StrReplaceAll(
      bash ? kBash : kZsh, {{"@PROGRAM@", spec.program}, {"@FUNCTION@", absl::StrCat("_", name)}});
}

std::string Complete(const CompletionSpec& spec, absl::Span<const std::string> words) {
  static constexpr absl::string_view kKinds[] = {"words", "words", "files", "directories", "netns"};
  absl::string_view value;
  if (!words.empty()) value = words.back();
  const CompletionFlag* flag = nullptr;  // takes the next word as its value
  std::vector<absl::string_view> plain;  // the command and its argument
  for (const std::string& word : words.subspan(0, words.empty() ? 0 : words.size() - 1)) {
    if (std::exchange(flag, nullptr) != nullptr) continue;
    if (!absl::StartsWith(word, "-")) {
      plain.emplace_back(word);
    } else if (flag = FlagTyped(spec, word); flag != nullptr && flag->is_bool) {
      flag = nullptr;
    }
  }
  bool is_value = flag != nullptr;
  std::string lead;
  const auto take_lead = [&](size_t size) {
    absl::StrAppend(&lead, value.substr(0, size));
    value.remove_prefix(size);
  };
  if (!is_value && absl::StartsWith(value, "--") && absl::StrContains(value, '=')) {
    is_value = true;
    flag = FlagTyped(spec, value.substr(0, value.find('=')));
    take_lead(value.find('=') + 1);
  }

  CompletionValues values;
  std::string offered;
  const auto offer = [&](absl::string_view word, absl::string_view help) {
    if (absl::StartsWith(word, value)) absl::StrAppend(&offered, word, "\t", Brief(help), "\n");
  };
  if (is_value) {
    if (flag != nullptr) values = flag->values;
  } else if (absl::StartsWith(value, "-")) {
    const absl::string_view command = plain.empty() ? spec.default_command : plain[0];
    for (const CompletionFlag& each : spec.flags) {
      if (!each.commands.empty() && !absl::c_linear_search(each.commands, command)) continue;
      offer(absl::StrCat("--", each.name, each.is_bool ? "" : "="), each.help);
    }
  } else if (plain.size() < 2) {
    for (const CompletionCommand& command : spec.commands) {
      if (plain.empty()) offer(command.name, command.help);
      if (!plain.empty() && plain[0] == command.name) values = command.argument_values;
    }
  }
  if (values.list) take_lead(value.rfind(',') + 1);
  for (const std::string& word : values.words) offer(word, "");
  return absl::StrCat(kKinds[static_cast<size_t>(values.kind)], values.list ? " list" : "", "\n",
                      lead, "\n", offered);
}

}  // namespace kipt::agent
