// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/legacy_survey.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/xtables/legacy_programs.h"
#include "agent/xtables/save_reader.h"

namespace kipt::agent {

absl::StatusOr<std::map<netlink::ChainId, netlink::ObservedChain>> ListLegacyChains(
    netlink::Family family, CommandRunner& runner, const LegacyOptions& options) {
  const absl::StatusOr<LegacyPrograms> programs =
      FindLegacyPrograms(runner, family, options.directories);
  if (!programs.ok()) return programs.status();
  CommandRequest request;
  request.program = programs->save;
  request.environment = LegacyEnvironment();
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
