// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_legacy_chains.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/xtables/iptables_legacy_programs.h"
#include "agent/xtables/iptables_save_reader.h"

namespace kipt::agent {

absl::StatusOr<std::map<netlink::ChainId, netlink::ObservedChain>> ListIptablesLegacyChains(
    netlink::Family family, CommandRunner& runner, const IptablesLegacyOptions& options) {
  const absl::StatusOr<IptablesLegacyPrograms> programs =
      FindIptablesLegacyPrograms(runner, family, options.directories);
  if (!programs.ok()) return programs.status();
  CommandRequest request;
  request.program = programs->save;
  request.environment = IptablesLegacyEnvironment();
  request.deadline = options.command_deadline;
  const absl::StatusOr<CommandResult> result = runner.Run(request);
  if (!result.ok()) return result.status();
  if (result->exit_code != 0) {
    return absl::UnknownError(absl::StrCat(request.program, " ended with exit status ",
                                           result->exit_code, ": ", result->errors));
  }
  return ParseSave(family, result->output);
}

}  // namespace kipt::agent
