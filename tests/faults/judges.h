// SPDX-License-Identifier: Apache-2.0
//
// What is in the kernel before a fault and after it, and whether the program did right.
#ifndef KIPT_TESTS_FAULTS_JUDGES_H_
#define KIPT_TESTS_FAULTS_JUDGES_H_

#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "tests/interop/agent_fixture.h"

namespace kipt::testing {

// Tables by "ip filter", including those of nft alone, as iptables-save and nft print them: the
// rules of each chain in their order, without counters.
using KernelText = std::map<std::string, std::string>;

inline constexpr int kFirstSignal = 128;
inline constexpr size_t kShortestError = 20;
// A repair that takes longer must be explained in the log. The daemon waits 5 s for the kernel.
inline constexpr absl::Duration kSilent = absl::Seconds(4);
// A line that reports a repair as slow as this reports the wait for an answer or a program.
inline constexpr absl::Duration kReportedDelay = absl::Seconds(3);

inline std::string PrintedBy(std::vector<std::string> argv) {
  const ProgramResult result = RunProgram(std::move(argv));
  return result.exit_code == 0 ? result.out : result.err;
}

// The lines of iptables-save ("*filter", ":INPUT ACCEPT [1:2]", "-A INPUT ..."), in an order of the
// chains that does not depend on which was made first.
inline void AddSaved(const std::string& family, const std::string& saved, KernelText& text) {
  std::map<std::string, std::map<std::string, std::string>> tables;
  std::string table;
  for (const absl::string_view line : absl::StrSplit(saved, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (line[0] == '*') {
      table = std::string(line.substr(1));
      tables[table];
    } else if (line[0] == ':') {
      absl::StrAppend(&tables[table][words[0].substr(1)], words[0], " ", words[1], "\n");
    } else if (line[0] == '-') {
      absl::StrAppend(&tables[table][words[1]], line, "\n");
    }
  }
  for (const auto& [name, chains] : tables) {
    text[absl::StrCat(family, " ", name)] = absl::StrJoin(
        chains, "", [](std::string* out, const auto& one) { out->append(one.second); });
  }
}

inline std::string PartOf(const KernelText& text, const std::string& name) {
  const auto part = text.find(name);
  return part == text.end() ? "" : part->second;
}

inline std::set<std::string> NamesOf(const std::vector<KernelText>& texts) {
  std::set<std::string> names;
  for (const KernelText& text : texts) {
    for (const auto& [name, part] : text) names.insert(name);
  }
  return names;
}

inline absl::Status Failed(absl::string_view why, absl::string_view output) {
  return absl::InternalError(absl::StrCat(why, "\n--- it printed\n", output, "---"));
}

inline absl::Status NotCrashed(int exit_code, const std::string& output) {
  const bool crashed = exit_code >= kFirstSignal || absl::StrContains(output, "Sanitizer") ||
                       absl::StrContains(output, "runtime error:");
  return crashed ? Failed(absl::StrCat("crashed, ", exit_code), output) : absl::OkStatus();
}

inline absl::Status HasClearError(const std::string& output) {
  constexpr absl::string_view kHead = "Error: ";
  std::string errors;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    if (absl::StartsWith(line, kHead)) absl::StrAppend(&errors, line.substr(kHead.size()));
  }
  if (errors.size() < kShortestError) return Failed("no clear error", output);
  // The C++ library's errors name nothing that an operator knows.
  for (const char* word : {"basic_filebuf", "std::", "bad_alloc", "iostream error"}) {
    if (absl::StrContains(errors, word)) return Failed("the error is a library's", output);
  }
  return absl::OkStatus();
}

// glog's lines begin "E1121 20:00:00.000000".
inline bool HasLine(absl::string_view log, absl::string_view severities, bool of_delay) {
  constexpr absl::string_view kRepaired = "Repaired in ";
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (line.size() < 2 || !absl::StrContains(severities, line[0]) || !isdigit(line[1])) continue;
    // That a quick repair was made explains no delay.
    const size_t at = line.find(kRepaired);
    if (!of_delay || at == absl::string_view::npos) return true;
    const std::string time(line.substr(at + kRepaired.size()));
    if (absl::Microseconds(std::atoll(time.c_str())) >= kReportedDelay) return true;
  }
  return false;
}

// Of the calling thread's network namespace.
inline KernelText ReadKernel(IptablesMode mode) {
  KernelText text;
  for (const IpFamily family : kBothFamilies) {
    const ProgramResult saved = Iptables{.family = family, .mode = mode}.Save();
    AddSaved(family == IpFamily::kIpv4 ? "ip" : "ip6", saved.out, text);
    if (saved.exit_code != 0) text["unreadable"] = saved.err;
  }
  std::vector<std::string> tables = absl::StrSplit(PrintedBy({"nft", "list", "tables"}), '\n');
  std::sort(tables.begin(), tables.end());
  text["nft"] = absl::StrJoin(tables, "\n");
  if (absl::StrContains(text["nft"], "inet foreign")) {
    absl::StrAppend(&text["nft"], PrintedBy({"nft", "-s", "list", "table", "inet", "foreign"}));
  }
  return text;
}
// Where two differ, for people.
inline std::string Difference(const KernelText& is, const KernelText& desired) {
  std::string text;
  for (const std::string& name : NamesOf({is, desired})) {
    if (PartOf(is, name) == PartOf(desired, name)) continue;
    absl::StrAppend(&text, "--- ", name, " is\n", PartOf(is, name), "--- and should be\n",
                    PartOf(desired, name));
  }
  return text;
}

// What is written at once. iptables-legacy writes a table at once, and the agent gives it a family.
enum class Unit { kKernel, kFamily, kTable };
// Empty where each unit is as in `before` or as in `desired`.
inline std::string HalfDone(const KernelText& now, const KernelText& before,
                            const KernelText& desired, Unit unit) {
  std::map<std::string, std::vector<std::string>> units;
  for (const std::string& name : NamesOf({now, before, desired})) {
    const bool family = unit == Unit::kFamily;
    units[unit == Unit::kTable ? name
          : family             ? name.substr(0, name.find(' '))
                               : "the kernel"]
        .push_back(name);
  }
  for (const auto& [one, names] : units) {
    const auto is_as = [&, &names = names](const KernelText& text) {
      return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
        return PartOf(now, name) == PartOf(text, name);
      });
    };
    if (is_as(before) || is_as(desired)) continue;
    return absl::StrCat(one, " is neither as before nor as desired\n", Difference(now, desired));
  }
  return "";
}

// How a run may end.
enum class End { kInPlace, kClearError };

struct SyncEnd {
  // -1 where it did not end.
  int exit_code = kExitOk;
  std::string output;
  KernelText now;
};
inline absl::StatusOr<End> JudgeSync(const SyncEnd& end, const KernelText& before,
                                     const KernelText& desired, Unit unit) {
  if (absl::Status status = NotCrashed(end.exit_code, end.output); !status.ok()) return status;
  if (end.exit_code == kExitOk) {
    if (end.now == desired) return End::kInPlace;
    return Failed(absl::StrCat("exit code 0, but not in place\n", Difference(end.now, desired)),
                  end.output);
  }
  if (end.exit_code != kExitFailed && end.exit_code != kExitUsage) {
    return Failed(absl::StrCat("exit code ", end.exit_code), end.output);
  }
  if (absl::Status status = HasClearError(end.output); !status.ok()) return status;
  const std::string half = HalfDone(end.now, before, desired, unit);
  if (!half.empty()) return Failed(half, end.output);
  if (unit == Unit::kKernel && end.now != before) {
    return Failed("an error, but all is done", end.output);
  }
  return End::kClearError;
}

struct DaemonEnd {
  // It ended before it was asked to.
  bool ended = false;
  // That happened while it started, which is allowed.
  bool at_start = false;
  // -1 where it did not end.
  int exit_code = kExitOk;
  std::string log;
  // Of the kernel's rules at the end.
  std::string difference;
  // From the damage until all was in place.
  absl::Duration missing;
};
inline absl::StatusOr<End> JudgeDaemon(const DaemonEnd& end) {
  if (absl::Status status = NotCrashed(end.exit_code, end.log); !status.ok()) return status;
  // It cannot go on without the descriptors of its event loop, reports that and is started again.
  const bool no_loop = end.exit_code == kExitFailed &&
                       absl::StrContains(end.log, "the event loop failed: Input/output error");
  if (no_loop && end.difference.empty()) return End::kClearError;
  if (end.ended && end.at_start) {
    if (end.exit_code != kExitFailed && end.exit_code != kExitUsage) {
      return Failed(absl::StrCat("ended with ", end.exit_code), end.log);
    }
    if (!HasLine(end.log, "E", false) && !HasClearError(end.log).ok()) {
      return Failed("ended and logged no error", end.log);
    }
    if (!end.difference.empty()) return Failed(end.difference, end.log);
    return End::kClearError;
  }
  if (end.ended || end.exit_code != kExitOk) {
    return Failed(absl::StrCat(end.ended ? "ended unasked with " : "asked to end, it ended with ",
                               end.exit_code),
                  end.log);
  }
  if (!end.difference.empty()) {
    return Failed(absl::StrCat("not in place\n", end.difference), end.log);
  }
  if (end.missing <= kSilent) return End::kInPlace;
  if (HasLine(end.log, "WE", true)) return End::kClearError;
  return Failed(absl::StrCat("took ", absl::FormatDuration(end.missing), " and logged nothing"),
                end.log);
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_JUDGES_H_
