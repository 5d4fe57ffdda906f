// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/legacy_save.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agent/process/owned_fd.h"
#include "agent/process/read_file.h"
#include "agent/xtables/conn_label_names.h"
#include "agent/xtables/legacy_failure.h"
#include "agent/xtables/legacy_tables.h"
#include "agent/xtables/save_parser.h"

namespace kipt::agent {
namespace {

using netlink::Family;

absl::StatusOr<bool> HasTables(Family family, const LegacyOptions& options) {
  const std::string path = PathOfFamily(options.table_names_path, family);
  const absl::StatusOr<std::string> names = ReadFile(path);
  // Without the module there is no file, and no table.
  if (absl::IsNotFound(names.status())) return false;
  if (!names.ok()) return Annotated(names.status(), "; only uid 0 of the namespace may read it");
  return !absl::StripAsciiWhitespace(*names).empty();
}

// False only where it is certain.
bool HasIpv6(const LegacyOptions& options) {
  const OwnedFd file(open(options.if_inet6_path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.valid() || errno != ENOENT;
}

absl::StatusOr<std::string> WithLabelsAsNumbers(std::string saved, const std::string& names_path) {
  if (!MentionsConnLabels(saved)) return saved;
  const absl::StatusOr<ConnLabelNames> names = ReadConnLabelNames(names_path);
  if (names.ok()) return WithConnLabelNumbers(saved, *names);
  if (HasConnLabelNames(saved)) return names.status();
  return saved;
}

}  // namespace

absl::StatusOr<std::string> SaveLegacyTables(Family family, CommandRunner& runner,
                                             const absl::StatusOr<LegacyPrograms>& programs,
                                             const LegacyOptions& options) {
  const absl::StatusOr<bool> has_tables = HasTables(family, options);
  if (!has_tables.ok()) return has_tables.status();
  if (!*has_tables || (family == Family::kIPv6 && !HasIpv6(options))) return std::string();
  if (!programs.ok()) return programs.status();
  // Not -t TABLE: that makes the table where it is gone by now.
  absl::StatusOr<CommandResult> saved = runner.Run({.program = programs->save,
                                                    .arguments = {"-c"},
                                                    .environment = LegacyEnvironment(),
                                                    .deadline = options.command_deadline,
                                                    .output_limit = options.output_limit});
  if (!saved.ok()) return saved.status();
  if (saved->exit_code == 0) {
    return WithLabelsAsNumbers(std::move(saved->output), options.label_names_path);
  }
  return LegacyFailure(absl::StrCat("reading the tables of ", netlink::FamilyName(family)),
                       programs->save, *saved, options.thread_status_path);
}

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
