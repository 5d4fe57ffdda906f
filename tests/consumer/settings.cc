// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/node_agent.h"
#include "featuregates/feature_gates.h"
#include "featuregates/known_features.h"

namespace node_agent {

absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const char* const> arguments) {
  CommandLine command_line;
  for (absl::string_view argument : arguments) {
    if (absl::ConsumePrefix(&argument, "--settings=")) {
      command_line.settings_file = std::string(argument);
    } else if (absl::ConsumePrefix(&argument, "--housekeeping=")) {
      if (!absl::ParseDuration(argument, &command_line.housekeeping) ||
          command_line.housekeeping < absl::Milliseconds(1)) {
        return absl::InvalidArgumentError(absl::StrCat("--housekeeping: no period: ", argument));
      }
    } else if (absl::ConsumePrefix(&argument, "--serve=")) {
      const size_t colon = argument.rfind(':');
      if (colon == absl::string_view::npos) {
        return absl::InvalidArgumentError(absl::StrCat("--serve: write PATH:MODE: ", argument));
      }
      command_line.servings.push_back({.netns = std::string(argument.substr(0, colon)),
                                       .iptables_mode = std::string(argument.substr(colon + 1))});
    } else {
      return absl::InvalidArgumentError(absl::StrCat("unknown argument: ", argument));
    }
  }
  if (command_line.settings_file.empty() || command_line.servings.empty()) {
    return absl::InvalidArgumentError(
        "usage: node-agent --settings=FILE --serve=NETNS_PATH:nft|legacy ... "
        "[--housekeeping=DURATION]");
  }
  return command_line;
}

absl::StatusOr<NodeSettings> ReadSettings(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  NodeSettings settings;
  for (std::string line; std::getline(file, line);) {
    const absl::string_view text =
        absl::StripAsciiWhitespace(absl::string_view(line).substr(0, line.find('#')));
    if (text.empty()) continue;
    const std::pair<absl::string_view, absl::string_view> entry =
        absl::StrSplit(text, absl::MaxSplits('=', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(entry.first);
    const absl::string_view value = absl::StripAsciiWhitespace(entry.second);
    if (key == "gates") {
      settings.gates = std::string(value);
    } else if (key == "kubernetes") {
      settings.kubernetes = std::string(value);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(path, ": unknown key: ", key));
    }
  }
  return settings;
}

absl::StatusOr<kipt::agent::NodeAgentOptions> OptionsFor(const Serving& serving,
                                                         const NodeSettings& settings) {
  kipt::agent::NodeAgentOptions options = {.netns = serving.netns};
  if (serving.iptables_mode == "nft") {
    options.iptables_mode = kipt::agent::IptablesMode::kNft;
  } else if (serving.iptables_mode == "legacy") {
    options.iptables_mode = kipt::agent::IptablesMode::kLegacy;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("no iptables mode: ", serving.iptables_mode));
  }
  absl::StatusOr<kipt::featuregates::GateValues> gates =
      kipt::featuregates::ParseFeatureGatesFlag(settings.gates);
  if (!gates.ok()) return gates.status();
  options.feature_gates = *std::move(gates);
  if (settings.kubernetes.empty()) return options;
  const absl::StatusOr<kipt::featuregates::Version> version =
      kipt::featuregates::ParseVersion(settings.kubernetes);
  if (!version.ok()) return version.status();
  options.emulated_version = *version;
  return options;
}

}  // namespace node_agent
