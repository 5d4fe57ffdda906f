// SPDX-License-Identifier: Apache-2.0
#include "agent/config/completion.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/config/config.h"
#include "agent/config/flag_table.h"
#include "agent/policy/policy_tables.h"
#include "featuregates/go_text.h"
#include "featuregates/kubelet_features.h"
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

// Those of the default release, as --help lists them: "NAME=true|false (BETA - default=true)".
std::vector<std::string> KnownGates() {
  const auto gates = ResolveFeatureGates(featuregates::kDefaultEmulatedVersion, {});
  return gates.ok() ? gates->KnownFeatures() : std::vector<std::string>();
}

CompletionValues Gates() {
  std::vector<std::string> words;
  for (const std::string& line : KnownGates()) {
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

// What --flag takes. The other flags take numbers, addresses or patterns, which nobody can offer.
CompletionValues ValuesOf(absl::string_view flag) {
  struct Row {
    absl::string_view flag;
    CompletionValues values;
  };
  const std::array rows = {
      Row{"allow", {.kind = Kind::kFile}},
      Row{"cni-conf-dir", {.kind = Kind::kDirectory, .list = true}},
      Row{"config", {.kind = Kind::kFile}},
      Row{"emulated-version", Releases()},
      Row{"feature-gates", Gates()},
      Row{"from-file", {.kind = Kind::kFile}},
      Row{"hint-policy", OneOf({"usable", "always"})},
      Row{"host-root", {.kind = Kind::kDirectory}},
      Row{"ip-families", ListOf({"auto", "ipv4", "ipv6"})},
      Row{"iptables-mode", OneOf({"auto", "nft", "legacy"})},
      Row{"netns", {.kind = Kind::kNetns}},
      Row{"output", OneOf({"text", "json", "dot"})},
      Row{"stale-chains", OneOf({"keep", "retire"})},
      Row{"watch", OneOf({"events", "poll"})},
  };
  for (const Row& row : rows) {
    if (row.flag == flag) return row.values;
  }
  return {};
}

CompletionValues ArgumentsOf(Command command) {
  if (command == Command::kCompletion) return OneOf({"bash", "zsh"});
  if (command != Command::kExplain) return {};
  std::vector<std::string> chains;
  for (const kep3178::ChainRow& row : kep3178::kChains) {
    std::string chain = absl::StrCat(netlink::TableName(row.table), "/", row.name);
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
  for (const FlagRow& row : kFlagTable) {
    CompletionFlag flag{.name = std::string(row.name),
                        .shorthand = row.name == "v" ? "v" : "",
                        .is_bool = row.is_bool,
                        .type = std::string(row.type),
                        .help = std::string(row.help),
                        .values = row.is_bool ? OneOf({"true", "false"}) : ValuesOf(row.name)};
    if (row.name == "feature-gates") {
      for (const std::string& gate : KnownGates()) absl::StrAppend(&flag.help, "\n", gate);
    }
    if (row.only_for) flag.commands.emplace_back(CommandName(*row.only_for));
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
