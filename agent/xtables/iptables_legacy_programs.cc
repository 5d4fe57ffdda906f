// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/iptables_legacy_programs.h"

#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

// Needs struct in_addr to be the C library's, and so comes after it.
#include <linux/netfilter_ipv4/ip_tables.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/process/files.h"
#include "agent/text/printable.h"
#include "agent/xtables/conn_label_names.h"
#include "netlink/kernel_error.h"

namespace kipt::agent {
namespace {

using netlink::Family;

constexpr absl::Duration kVersionDeadline = absl::Seconds(10);
constexpr size_t kVersionLimit = 64 << 10;
constexpr char kRestore[] = "-restore";

absl::string_view BaseName(Family family) {
  return family == Family::kIPv4 ? "iptables" : "ip6tables";
}

bool IsExecutable(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// What `program` reports of itself. iptables-restore knows --version since 1.6.2 only; before,
// `sibling` is asked, the program next to it.
absl::StatusOr<IptablesProgram> AskVersion(CommandRunner& runner, const std::string& program,
                                           const std::string& sibling) {
  absl::Status failure;
  for (const std::string& path : {program, sibling}) {
    CommandRequest request = IptablesLegacyRequest(path, {"--version"}, kVersionDeadline);
    request.output_limit = kVersionLimit;
    const absl::StatusOr<CommandResult> result = runner.Run(request);
    if (!result.ok()) {
      failure.Update(result.status());
      continue;
    }
    if (auto version = ParseIptablesVersion(result->output); version && result->exit_code == 0) {
      return *version;
    }
    failure.Update(absl::NotFoundError(
        absl::StrCat(path, " --version: exit code ", result->exit_code, " and no version")));
  }
  return failure;
}

bool IsSameFile(const std::string& path, const std::string& other) {
  struct stat one = {};
  struct stat two = {};
  return stat(path.c_str(), &one) == 0 && stat(other.c_str(), &two) == 0 &&
         one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

// The programs called STEM-save and STEM-restore, where they are iptables-legacy's; else why not,
// which is empty where they do not exist.
absl::StatusOr<IptablesLegacyPrograms> TryStem(CommandRunner& runner, const std::string& stem,
                                               const IptablesLegacyPrograms* other) {
  IptablesLegacyPrograms programs = {.save = stem + "-save", .restore = stem + kRestore};
  if (!IsExecutable(programs.save) || !IsExecutable(programs.restore)) {
    return absl::NotFoundError("");
  }
  if (absl::EndsWith(stem, "-legacy")) return programs;
  absl::Status status = KnowVersion(runner, programs, other);
  if (!status.ok()) return status;
  return programs;
}

// The other codes of enum xtables_exittype.
constexpr int kXtablesOtherProblem = 1;
constexpr int kXtablesParameterProblem = 2;
constexpr int kXtablesVersionProblem = 3;
// The first code of a program that a signal ended (CommandResult).
constexpr int kFirstSignalCode = 129;

std::pair<absl::StatusCode, const char*> MeaningOf(int exit_code) {
  if (exit_code >= kFirstSignalCode) return {absl::StatusCode::kUnavailable, "a signal ended it"};
  switch (exit_code) {
    case kXtablesOtherProblem:
      return {absl::StatusCode::kFailedPrecondition,
              "the kernel refused it; its log may have the reason"};
    case kXtablesParameterProblem:
      // Only words of iptables' own are written, so it is not they that it does not know.
      return {absl::StatusCode::kNotFound,
              "the program or the kernel lacks the table, match or target. Install iptables' "
              "extensions, load ip_tables and the xt modules, or use nft if the kernel lacks "
              "CONFIG_NETFILTER_XTABLES_LEGACY"};
    case kXtablesVersionProblem:
      return {absl::StatusCode::kFailedPrecondition,
              "the program and the kernel do not fit, or the kernel has no iptables-legacy: use "
              "nft, or another iptables"};
    case kXtablesResourceProblem:
      return {absl::StatusCode::kUnavailable, "it did not get its lock, or memory"};
    default:
      return {absl::StatusCode::kUnknown, "iptables programs have no such exit code"};
  }
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
    // A warning may be repeated for each rule, and the reason for the failure comes last.
    if (!line.empty() && !absl::c_linear_search(lines, line)) lines.push_back(line);
    if (lines.size() == 8) break;
  }
  return Printable(absl::StrJoin(lines, "; ").substr(0, kShown));
}

// Not counting "connlabel.conf": iptables warns of that missing file each time.
bool Names(absl::string_view text, absl::string_view match) {
  for (size_t at = text.find(match); at != absl::string_view::npos; at = text.find(match, at + 1)) {
    if (!absl::StartsWith(text.substr(at + match.size()), ".")) return true;
  }
  return false;
}

absl::StatusOr<std::vector<std::string>> LinesOf(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadProcNetFile(path);
  if (!text.ok()) return text.status();
  return std::vector<std::string>(absl::StrSplit(*text, '\n', absl::SkipEmpty()));
}

// Whether a line of the file is `name`.
absl::StatusOr<bool> IsListed(absl::string_view name, const std::string& path) {
  const auto lines = LinesOf(path);
  if (!lines.ok()) return lines.status();
  return absl::c_linear_search(*lines, name);
}

// Aborted: a save has not all tables that it was to print. A write by what it has would flush
// chains in which others have rules, and what it lacks would seem to need nothing.
absl::Status CheckWhole(absl::FunctionRef<bool(absl::string_view)> has_table,
                        const std::vector<std::string>& names, absl::string_view only,
                        const IptablesLegacyPrograms& programs) {
  for (const std::string& name : names) {
    if ((!only.empty() && only != name) || has_table(name)) continue;
    return absl::AbortedError(absl::StrCat(programs.save, " printed no table ", name,
                                           ", which the kernel has; read again"));
  }
  return absl::OkStatus();
}

// False only where it is certain.
bool HasIpv6(const IptablesLegacyOptions& options) {
  return !absl::IsNotFound(ReadProcNetFile(options.if_inet6_path).status());
}

}  // namespace

absl::StatusOr<std::string> ReadProcNetFile(const std::string& path, size_t most) {
  absl::StatusOr<std::string> text = ReadFile(path, most);
  if (!absl::IsNotFound(text.status()) || ShowsProcNet(path)) return text;
  return absl::UnknownError(absl::StrCat("there is no ", path, "; is /proc mounted?"));
}

std::string ToString(const IptablesVersion& version) {
  return absl::StrCat(version.major, ".", version.minor, ".", version.patch);
}

std::optional<IptablesProgram> ParseIptablesVersion(absl::string_view text) {
  const absl::string_view line = text.substr(0, text.find('\n'));
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (words.size() < 2 || words.size() > 3) return std::nullopt;
  absl::string_view number = words[1];
  if (!absl::ConsumePrefix(&number, "v")) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(number, '.');
  IptablesProgram program;
  // "1.8.3.1" has been a release; "1.8" may be one.
  const std::array<int*, 3> fields = {&program.version.major, &program.version.minor,
                                      &program.version.patch};
  if (parts.size() < 2 || parts.size() > 4) return std::nullopt;
  for (size_t i = 0; i < std::min(parts.size(), fields.size()); ++i) {
    if (!absl::SimpleAtoi(parts[i], fields[i]) || *fields[i] < 0) return std::nullopt;
  }
  if (words.size() == 2) return program;
  absl::string_view variant = words[2];
  if (!absl::ConsumePrefix(&variant, "(") || !absl::ConsumeSuffix(&variant, ")")) {
    return std::nullopt;
  }
  program.variant = std::string(variant);
  return program;
}

absl::Status KnowVersion(CommandRunner& runner, IptablesLegacyPrograms& programs,
                         const IptablesLegacyPrograms* other) {
  if (programs.version) return absl::OkStatus();
  if (other != nullptr && other->version && IsSameFile(programs.restore, other->restore)) {
    programs.version = other->version;
    return absl::OkStatus();
  }
  const std::string& restore = programs.restore;
  const absl::StatusOr<IptablesProgram> found =
      AskVersion(runner, restore, std::string(absl::StripSuffix(restore, kRestore)));
  if (!found.ok()) return found.status();
  if (!found->legacy()) {
    return absl::NotFoundError(absl::StrCat(restore, " is ", ToString(found->version), " (",
                                            found->variant.empty() ? "no variant" : found->variant,
                                            ")"));
  }
  programs.version = found->version;
  return absl::OkStatus();
}

std::optional<IptablesVersion> VersionOfSave(absl::string_view save) {
  // "# Generated by iptables-save v1.8.9 on Sun Nov 29 05:40:36 2026".
  const std::vector<absl::string_view> words =
      absl::StrSplit(save.substr(0, save.find('\n')), absl::MaxSplits(' ', 5));
  if (words.size() < 6 || words[1] != "Generated" || words[5].substr(0, 3) != "on ") return {};
  if (words[3] != "iptables-save" && words[3] != "ip6tables-save") return {};
  const auto program = ParseIptablesVersion(absl::StrCat(words[3], " ", words[4]));
  return program ? std::optional(program->version) : std::nullopt;
}

std::vector<std::string> RestoreWaitArguments(const IptablesVersion& version, absl::Duration wait) {
  if (!version.RestoreTakesLock()) return {};
  // Whole seconds; without a number it would wait for ever.
  const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(wait, absl::Seconds(1)));
  return {"-w", absl::StrCat(std::max<int64_t>(seconds, 1))};
}

absl::StatusOr<IptablesLegacyPrograms> FindIptablesLegacyPrograms(
    CommandRunner& runner, Family family, const std::vector<std::string>& directories,
    const IptablesLegacyPrograms* other) {
  std::vector<std::string> seen;
  for (const char* suffix : {"-legacy", ""}) {
    for (const std::string& directory : directories) {
      const std::string stem = absl::StrCat(directory, "/", BaseName(family), suffix);
      absl::StatusOr<IptablesLegacyPrograms> programs = TryStem(runner, stem, other);
      if (programs.ok()) return programs;
      if (!programs.status().message().empty()) seen.emplace_back(programs.status().message());
    }
  }
  const std::string found =
      seen.empty() ? "" : absl::StrCat(" (found: ", absl::StrJoin(seen, "; "), ")");
  return absl::NotFoundError(
      absl::StrCat("no ", BaseName(family), "-legacy-save and ", BaseName(family),
                   "-legacy-restore in ", absl::StrJoin(directories, ", "),
                   ", and no iptables-legacy programs under other names: install iptables", found));
}

CommandRequest IptablesLegacyRequest(const std::string& program, std::vector<std::string> arguments,
                                     absl::Duration deadline) {
  return {.program = program,
          .arguments = std::move(arguments),
          // PATH is for what the programs may run themselves: modprobe.
          .environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"},
          .deadline = deadline};
}

std::string PathOfFamily(absl::string_view path, Family family) {
  return absl::StrReplaceAll(path, {{"%s", netlink::FamilyName(family)}});
}

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
  if (Names(result.errors, match) || (refused && !IsListed(match, matches_path).value_or(true))) {
    netlink::SetMissingExtension(failure, match);
  }
}

void NoteWriteRefused(Family family, const CommandResult& result, absl::Status& failure) {
  if (absl::IsPermissionDenied(failure) || result.exit_code != kXtablesOtherProblem) return;
  // The program does not print the error. A replacement of no bytes is refused in the same way, and
  // changes nothing.
  const bool ipv4 = family == Family::kIPv4;
  const OwnedFd fd(socket(ipv4 ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  if (!fd.valid() ||
      setsockopt(fd.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6, IPT_SO_SET_REPLACE, nullptr, 0) == 0) {
    return;
  }
  if (errno != EPERM && errno != EACCES) return;
  failure = absl::PermissionDeniedError(absl::StrCat(failure.message(),
                                                     "; replacing tables: ", ErrorText(errno), " (",
                                                     netlink::kGuardAdvice, ")"));
  netlink::SetWriteRefused(failure);
}

absl::Status IptablesLegacyFailure(absl::string_view what, absl::string_view program,
                                   const CommandResult& result,
                                   const std::string& thread_status_path) {
  auto [code, reason] = MeaningOf(result.exit_code);
  std::string meaning = reason;
  const std::vector<std::string> missing = MissingCapabilities(thread_status_path);
  if (!missing.empty() && result.exit_code < kFirstSignalCode) {
    code = absl::StatusCode::kPermissionDenied;
    meaning = absl::StrCat(absl::StrJoin(missing, " and "), " missing");
  }
  const std::string said = OneLine(result.errors);
  return absl::Status(
      code, absl::StrCat(what, ": ", program, " ended with exit code ", result.exit_code, ": ",
                         meaning, said.empty() ? "" : absl::StrCat(" (it printed: ", said, ")")));
}

absl::StatusOr<std::string> SaveIptablesLegacyTables(
    Family family, CommandRunner& runner, const absl::StatusOr<IptablesLegacyPrograms>& programs,
    const IptablesLegacyOptions& options, absl::string_view only, SaveTaker taker) {
  const absl::StatusOr<std::vector<std::string>> names =
      LinesOf(PathOfFamily(options.table_names_path, family));
  // Without the module there is no file, and no table.
  if (absl::IsNotFound(names.status())) return "";
  if (absl::IsPermissionDenied(names.status())) {
    return Annotated(names.status(), "; only uid 0 of the namespace may read it");
  }
  if (!names.ok()) return names.status();
  const bool listed = only.empty() ? !names->empty() : absl::c_linear_search(*names, only);
  if (!listed || (family == Family::kIPv6 && !HasIpv6(options))) return "";
  if (!programs.ok()) return programs.status();
  const std::string theirs = PathOfFamily(options.program_names_path, family);
  const int hidden = access(theirs.c_str(), R_OK) == 0 ? 0 : errno;
  if (only.empty() && hidden != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("there are tables of ", netlink::FamilyName(family), ", and ", programs->save,
                     " would print none: it cannot read ", theirs, ": ", ErrorText(hidden),
                     " (ProcSubset=pid hides it; mount the whole of /proc)"));
  }
  std::vector<std::string> arguments = {"-c"};
  // This creates a table that has disappeared since it was listed.
  if (!only.empty()) arguments.insert(arguments.end(), {"-t", std::string(only)});
  CommandRequest request =
      IptablesLegacyRequest(programs->save, std::move(arguments), options.command_deadline);
  request.take_output = std::move(taker.take);
  absl::StatusOr<CommandResult> saved = runner.Run(request);
  if (!saved.ok()) return saved.status();
  if (saved->exit_code == 0) {
    const auto has_table = [&](absl::string_view table) {
      return taker.has_table ? taker.has_table(table)
                             : absl::StrContains(saved->output, absl::StrCat("*", table, "\n"));
    };
    absl::Status whole = CheckWhole(has_table, *names, only, *programs);
    if (!whole.ok()) return whole;
    if (!absl::StrContains(saved->output, "-m connlabel ")) return std::move(saved->output);
    return WithConnLabelNumbers(saved->output, ReadConnLabelNames(options.label_names_path));
  }
  return IptablesLegacyFailure(absl::StrCat("reading the tables of ", netlink::FamilyName(family)),
                               programs->save, *saved, options.thread_status_path);
}

absl::StatusOr<ObservedChains> ListIptablesLegacyChains(Family family, CommandRunner& runner,
                                                        const IptablesLegacyOptions& options) {
  const absl::StatusOr<IptablesLegacyPrograms> programs =
      FindIptablesLegacyPrograms(runner, family, options.directories);
  if (!programs.ok()) return programs.status();
  const absl::StatusOr<std::string> save =
      SaveIptablesLegacyTables(family, runner, programs, options);
  if (!save.ok()) return save.status();
  return ParseSave(family, *save);
}

}  // namespace kipt::agent
