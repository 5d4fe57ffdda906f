// SPDX-License-Identifier: Apache-2.0
#include "agent/config/load_config.h"

#include <optional>
#include <utility>

#include "agent/config/config_file.h"

namespace kipt::agent {
namespace {

absl::StatusOr<ConfigFile> ReadFileOf(const Flags& flags, const ConfigSources& sources) {
  if (flags.config) return ReadConfigFile(*flags.config);
  absl::StatusOr<std::optional<ConfigFile>> file =
      ReadConfigFileIfPresent(sources.default_config_path);
  if (!file.ok()) return file.status();
  return (*std::move(file)).value_or(ConfigFile{});
}

}  // namespace

absl::StatusOr<Config> LoadConfig(const Flags& flags, const ConfigSources& sources) {
  absl::StatusOr<ConfigFile> file = ReadFileOf(flags, sources);
  if (!file.ok()) return file.status();
  return ResolveConfig(ConfigInputs{flags, *std::move(file)}, sources.if_inet6_path);
}

}  // namespace kipt::agent
