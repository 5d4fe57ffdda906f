// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

// Of the problems; the file of all runs has them all.
constexpr size_t kMostProblems = 10;

std::string FirstLine(std::vector<std::string> argv) {
  const std::string out = RunProgram(std::move(argv)).out;
  return out.substr(0, out.find('\n'));
}

std::string Machine() {
  utsname name = {};
  uname(&name);
  return absl::StrCat("Linux ", name.release, ", ", sysconf(_SC_NPROCESSORS_ONLN), " CPUs, ",
                      FirstLine({"/usr/sbin/iptables-nft", "--version"}), ", ",
                      FirstLine({"/usr/sbin/nft", "--version"}));
}

size_t CountOf(const Counts& counts, End end) {
  const auto found = counts.ends.find(end);
  return found == counts.ends.end() ? 0 : found->second;
}

std::string RowOf(const std::string& subject, const std::string& place, const Counts& counts) {
  return absl::StrFormat("| %s | %s | %d | %d | %d | %d | %d | %d | %d | %d | %.1f |\n", subject,
                         place, counts.planned, counts.made, CountOf(counts, End::kInPlace),
                         CountOf(counts, End::kError), CountOf(counts, End::kNotReached),
                         CountOf(counts, End::kFailed), counts.late, counts.repeated,
                         counts.longest);
}

std::string PlaceTable(const std::vector<Part>& parts) {
  std::string text =
      "| subject | where | planned | made | in place | error | not reached | failed | reached late "
      "| "
      "repeated alone | longest, s |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const Part& part : parts) {
    const std::string subject = SubjectName(part.tally.subject());
    absl::StrAppend(&text, RowOf(subject, "all", part.tally.Total()));
    for (const std::string& place : part.places) {
      absl::StrAppend(&text, RowOf(subject, place, part.tally.OfPlace(place)));
    }
  }
  return text;
}

std::string PointTable(const std::vector<Part>& parts) {
  std::string text = "| point | faults |";
  std::string line = "|---|--:|";
  for (const Part& part : parts) {
    absl::StrAppend(&text, " ", SubjectName(part.tally.subject()), " | failed |");
    absl::StrAppend(&line, "--:|--:|");
  }
  absl::StrAppend(&text, "\n", line, "\n");
  for (size_t i = 0; i < kPointCount; ++i) {
    const auto point = static_cast<Point>(i);
    const auto faults = std::count_if(kFaults, kFaults + kFaultCount,
                                      [&](const FaultRow& row) { return row.point == point; });
    if (std::all_of(parts.begin(), parts.end(),
                    [&](const Part& part) { return part.tally.OfPoint(point).planned == 0; })) {
      continue;
    }
    absl::StrAppend(&text, "| ", PointText(point), " | ", faults, " |");
    for (const Part& part : parts) {
      const Counts counts = part.tally.OfPoint(point);
      if (Uses(part.tally.subject(), point)) {
        absl::StrAppend(&text, " ", counts.made, " | ", counts.failed(), " |");
      } else {
        absl::StrAppend(&text, " not used | ", counts.failed(), " |");
      }
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string ProblemList(const std::vector<std::string>& problems) {
  if (problems.empty()) return "";
  std::string text = absl::StrCat("\n## Problems: ", problems.size(), "\n\n");
  for (size_t i = 0; i < std::min(problems.size(), kMostProblems); ++i) {
    absl::StrAppend(&text, "* ", problems[i].substr(0, problems[i].find('\n')), "\n");
  }
  return text;
}

}  // namespace

std::string ReportText(const Outcome& outcome) {
  return absl::StrCat(
      "# Faults: ", outcome.problems.empty() ? "passed" : "failed", "\n\n",
      "Written by `tests/faults/run`; [README.md](README.md) explains the columns. ",
      outcome.program, ". ", Machine(), ". ",
      absl::ToInt64Minutes(absl::Ceil(outcome.taken, absl::Minutes(1))), " minutes.\n\n",
      PlaceTable(outcome.parts), "\n", PointTable(outcome.parts), ProblemList(outcome.problems));
}

}  // namespace kipt::testing
