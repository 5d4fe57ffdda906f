// SPDX-License-Identifier: Apache-2.0
#include "agent/config/completion.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

CompletionValues OneOf(std::vector<std::string> words) {
  return {.kind = Kind::kWords, .words = std::move(words)};
}
CompletionValues ListOf(std::vector<std::string> words) {
  return {.kind = Kind::kWords, .words = std::move(words), .list = true};
}

CompletionValues Gates() {
  std::vector<std::string> words;
  for (const std::string& line : KnownGates("")) {
    const std::string name = line.substr(0, line.find('='));
    for (const char* value : {"=true", "=false"}) words.push_back(absl::StrCat(name, value));
  }
  return ListOf(std::move(words));
}

CompletionValues Releases() {
  std::vector<std::string> words;
  for (int minor = featuregates::kOldestEmulatedVersion.minor;
       minor <= featuregates::kNewestKnownRelease.minor; ++minor) {
    words.push_back(absl::StrCat(featuregates::kOldestEmulatedVersion.major, ".", minor));
  }
  return OneOf(std::move(words));
}

// Numbers, addresses and patterns cannot be offered.
CompletionValues ValuesOf(const Setting& setting) {
  absl::string_view type = setting.type;
  if (setting.is_bool()) return OneOf({"true", "false"});
  if (setting.member == FlagMember(&Flags::emulated_version)) return Releases();
  if (setting.member == FlagMember(&Flags::feature_gates)) return Gates();
  if (setting.member == FlagMember(&Flags::netns)) return {.kind = Kind::kNetns};
  if (type == "file" || setting.member == FlagMember(&Flags::config)) return {.kind = Kind::kFile};
  const bool list = absl::ConsumeSuffix(&type, ",...") || setting.field == "ipFamilies";
  if (type == "directory") return {.kind = Kind::kDirectory, .list = list};
  if (setting.accepted.empty()) return {};
  return {.kind = Kind::kWords, .words = absl::StrSplit(setting.accepted, ", "), .list = list};
}

CompletionValues ArgumentsOf(Command command) {
  if (command == Command::kCompletion) return OneOf({"bash", "zsh"});
  if (command != Command::kExplain) return {};
  std::vector<std::string> chains;
  for (const kep3178::ChainRow& row : kep3178::kChains) {
    std::string chain = absl::StrCat(netlink::TableName(row.table), "/", row.chain);
    if (!absl::c_linear_search(chains, chain)) chains.push_back(std::move(chain));
  }
  return OneOf(std::move(chains));
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
