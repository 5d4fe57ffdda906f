// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_legacy_run.h"

#include <fcntl.h>
#include <linux/capability.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/process/files.h"
#include "agent/xtables/conn_label_names.h"
#include "agent/xtables/iptables_legacy_tables.h"
#include "agent/xtables/iptables_save_reader.h"
#include "featuregates/go_text.h"
#include "netlink/kernel_error.h"

namespace kipt::agent {
namespace {

using netlink::Family;

struct Row {
  int exit_code;
  absl::StatusCode code;
  const char* meaning;
};

constexpr std::array kRows = {
    Row{kXtablesOtherProblem, absl::StatusCode::kFailedPrecondition,
        "the kernel refused it; its log may say why"},
    // Only words of iptables' own are written, so it is not they that it does not know.
    Row{kXtablesParameterProblem, absl::StatusCode::kNotFound,
        "the program or the kernel lacks the table, match or target: install iptables' extensions, "
        "load ip_tables and the xt modules, or use nft where the kernel has no legacy iptables "
        "(CONFIG_NETFILTER_XTABLES_LEGACY)"},
    Row{kXtablesVersionProblem, absl::StatusCode::kFailedPrecondition,
        "the program and the kernel do not fit, or the kernel has no legacy iptables: use nft, or "
        "another iptables"},
    Row{kXtablesResourceProblem, absl::StatusCode::kUnavailable,
        "it did not get its lock, or memory"},
};
constexpr Row kUnknown = {0, absl::StatusCode::kUnknown,
                          "iptables programs have no such exit code"};
constexpr Row kKilled = {0, absl::StatusCode::kUnavailable, "a signal ended it"};

// The shell's convention for what a signal ended, and CommandResult's.
constexpr int kFirstSignalCode = 129;

const Row& FindRow(int exit_code) {
  if (exit_code >= kFirstSignalCode) return kKilled;
  const auto* row = std::find_if(kRows.begin(), kRows.end(),
                                 [&](const Row& each) { return each.exit_code == exit_code; });
  return row != kRows.end() ? *row : kUnknown;
}

// The names of capabilities that we lack; empty where that cannot be seen.
std::vector<std::string> MissingCapabilities(const std::string& thread_status_path) {
  const absl::StatusOr<std::string> text = ReadFile(thread_status_path);
  std::vector<std::string> missing;
  for (absl::string_view value : absl::StrSplit(text.value_or(""), '\n')) {
    uint64_t effective = 0;
    if (!absl::ConsumePrefix(&value, "CapEff:") || !absl::SimpleHexAtoi(value, &effective)) {
      continue;
    }
    if ((effective >> CAP_NET_ADMIN & 1) == 0) missing.emplace_back("CAP_NET_ADMIN");
    if ((effective >> CAP_NET_RAW & 1) == 0) missing.emplace_back("CAP_NET_RAW");
  }
  return missing;
}

// For one line of a message.
std::string OneLine(absl::string_view text) {
  constexpr size_t kShown = 400;
  std::vector<absl::string_view> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    // A warning may come once for each rule, as that of a missing connlabel.conf does, and what it
    // failed for comes last.
    const bool again = std::find(lines.begin(), lines.end(), line) != lines.end();
    if (!line.empty() && !again) lines.push_back(line);
    if (lines.size() == 8) break;
  }
  return featuregates::Printable(absl::StrJoin(lines, "; ").substr(0, kShown));
}

// iptables also warns, each time, where connlabel.conf, with names of labels, is missing: that is
// no word about the match.
bool Names(absl::string_view text, absl::string_view match) {
  for (size_t at = text.find(match); at != absl::string_view::npos; at = text.find(match, at + 1)) {
    if (!absl::StartsWith(text.substr(at + match.size()), ".")) return true;
  }
  return false;
}

// Nothing where it cannot be read.
std::optional<bool> IsListed(absl::string_view match, const std::string& matches_path) {
  const absl::StatusOr<std::string> text = ReadFile(matches_path);
  if (!text.ok()) return std::nullopt;
  const std::vector<absl::string_view> lines = absl::StrSplit(*text, '\n');
  return std::find(lines.begin(), lines.end(), match) != lines.end();
}

absl::StatusOr<bool> HasTables(Family family, const IptablesLegacyOptions& options) {
  const std::string path = PathOfFamily(options.table_names_path, family);
  const absl::StatusOr<std::string> names = ReadFile(path);
  // Without the module there is no file, and no table.
  if (absl::IsNotFound(names.status())) return false;
  if (!names.ok()) return Annotated(names.status(), "; only uid 0 of the namespace may read it");
  return !absl::StripAsciiWhitespace(*names).empty();
}

// False only where it is certain.
bool HasIpv6(const IptablesLegacyOptions& options) {
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

absl::Status Annotated(const absl::Status& status, absl::string_view more) {
  absl::Status annotated(status.code(), absl::StrCat(status.message(), more));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    annotated.SetPayload(type, payload);
  });
  return annotated;
}

void NoteMissingMatch(absl::string_view match, const CommandResult& result,
                      const std::string& matches_path, absl::Status& failure) {
  const bool refused = result.exit_code == kXtablesOtherProblem;
  if (absl::IsPermissionDenied(failure)) return;
  if (!refused && result.exit_code != kXtablesParameterProblem) return;
  if (Names(result.errors, match) || (refused && IsListed(match, matches_path) == false)) {
    netlink::SetMissingExtension(failure, match);
  }
}

absl::Status IptablesLegacyFailure(absl::string_view what, absl::string_view program,
                                   const CommandResult& result,
                                   const std::string& thread_status_path) {
  const Row& row = FindRow(result.exit_code);
  absl::StatusCode code = row.code;
  std::string meaning = row.meaning;
  const std::vector<std::string> missing = MissingCapabilities(thread_status_path);
  if (!missing.empty() && result.exit_code < kFirstSignalCode) {
    code = absl::StatusCode::kPermissionDenied;
    meaning = absl::StrCat(absl::StrJoin(missing, " and "), " missing");
  }
  const std::string said = OneLine(result.errors);
  return absl::Status(
      code, absl::StrCat(what, ": ", program, " ended with exit code ", result.exit_code, ": ",
                         meaning, said.empty() ? "" : absl::StrCat(" (it said: ", said, ")")));
}

absl::StatusOr<std::string> SaveIptablesLegacyTables(
    Family family, CommandRunner& runner, const absl::StatusOr<IptablesLegacyPrograms>& programs,
    const IptablesLegacyOptions& options) {
  const absl::StatusOr<bool> has_tables = HasTables(family, options);
  if (!has_tables.ok()) return has_tables.status();
  if (!*has_tables || (family == Family::kIPv6 && !HasIpv6(options))) return std::string();
  if (!programs.ok()) return programs.status();
  // Not -t TABLE: that makes the table where it is gone by now.
  absl::StatusOr<CommandResult> saved = runner.Run({.program = programs->save,
                                                    .arguments = {"-c"},
                                                    .environment = IptablesLegacyEnvironment(),
                                                    .deadline = options.command_deadline,
                                                    .output_limit = options.output_limit});
  if (!saved.ok()) return saved.status();
  if (saved->exit_code == 0) {
    return WithLabelsAsNumbers(std::move(saved->output), options.label_names_path);
  }
  return IptablesLegacyFailure(absl::StrCat("reading the tables of ", netlink::FamilyName(family)),
                               programs->save, *saved, options.thread_status_path);
}

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
