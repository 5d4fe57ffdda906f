// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/report/matrix_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/skew/report/report_parts.h"

namespace kipt::skew {
namespace {

template <typename Items>
bool AllExpected(const Items& items) {
  return std::all_of(items.begin(), items.end(),
                     [](const auto& item) { return item.AsExpected(); });
}

template <typename Items>
bool AllSound(const Items& items) {
  return std::all_of(items.begin(), items.end(), [](const auto& item) { return item.Sound(); });
}

template <typename Items>
size_t CountNotSound(const Items& items) {
  return static_cast<size_t>(
      std::count_if(items.begin(), items.end(), [](const auto& item) { return !item.Sound(); }));
}

std::string Because(const std::string& because) {
  return because.empty() ? "" : absl::StrCat(" Known: ", because, ".");
}

std::string Circumstances(const Check& check) {
  const ProbeResult& result = check.result;
  std::vector<std::string> parts = {absl::StrCat("from ", NameOf(check.probe.from), " to ",
                                                 Destination(check.probe), ", ",
                                                 NameOf(check.probe.protocol))};
  if (!result.receivers.empty()) {
    parts.push_back(absl::StrCat("received by ", ReceiversText(result)));
  }
  if (!result.seen_source.empty()) {
    parts.push_back(absl::StrCat("seen from ", result.seen_source));
  }
  if (!result.dropped_by.empty()) parts.push_back(absl::StrCat("dropped by ", result.dropped_by));
  parts.push_back(absl::StrCat("packets sent ", result.sent, ", received ", result.received));
  if (!result.detail.empty()) parts.push_back(result.detail);
  return absl::StrJoin(parts, "; ");
}

}  // namespace

const char* NameOf(Verdict verdict) {
  // In the order of the enumeration.
  constexpr const char* kNames[] = {"sound", "known failure", "unexpected", "broken"};
  return kNames[static_cast<size_t>(verdict)];
}

std::string NameOf(const StreamCheck& stream) {
  if (!stream.afterwards) return stream.count.probe;
  const size_t end = std::min(stream.count.probe.find('/'), stream.count.probe.size());
  return absl::StrCat(stream.count.probe.substr(0, end), "-afterwards",
                      stream.count.probe.substr(end));
}

Verdict VerdictOf(const StepReport& step) {
  const bool failed = !step.error.empty();
  if ((failed && !step.error_expected) || !AllExpected(step.checks) || !AllExpected(step.streams)) {
    return Verdict::kUnexpected;
  }
  // A failure that was expected, and happened to harm no packet, is a failure still.
  const bool sound = !failed && AllSound(step.checks) && AllSound(step.streams);
  return sound ? Verdict::kSound : Verdict::kKnown;
}

Verdict VerdictOf(const CellReport& cell) {
  bool asked = false;
  Verdict worst = Verdict::kSound;
  for (const StepReport& step : cell.steps) {
    asked = asked || !step.checks.empty() || !step.streams.empty();
    worst = std::max(worst, VerdictOf(step));
  }
  return cell.problem.empty() && asked ? worst : Verdict::kBroken;
}

NotSound NotSoundOf(const CellReport& cell) {
  NotSound count;
  for (const StepReport& step : cell.steps) {
    count.checks += CountNotSound(step.checks);
    count.streams += CountNotSound(step.streams);
  }
  return count;
}

Tally TallyOf(const MatrixReport& report) {
  Tally tally = {};
  for (const CellReport& cell : report.cells) ++tally[static_cast<size_t>(VerdictOf(cell))];
  return tally;
}

bool AllAsExpected(const MatrixReport& report) {
  return report.problems.empty() &&
         std::all_of(report.cells.begin(), report.cells.end(),
                     [](const CellReport& cell) { return VerdictOf(cell) < Verdict::kUnexpected; });
}

std::string Sentence(const Check& check) {
  std::string text = absl::StrCat(check.probe.name, ": ");
  if (check.result.outcome == check.expected) {
    absl::StrAppend(&text, NameOf(check.result.outcome));
  } else {
    absl::StrAppend(&text, "expected ", NameOf(check.expected), ", got ",
                    NameOf(check.result.outcome));
  }
  if (check.expected != check.sound) {
    absl::StrAppend(&text, ", sound would be ", NameOf(check.sound));
  }
  if (!check.complaint.empty()) absl::StrAppend(&text, ", but ", check.complaint);
  absl::StrAppend(&text, " (", Circumstances(check), ").", Because(check.because));
  return text;
}

std::string Sentence(const StreamCheck& stream) {
  return absl::StrCat("stream ", NameOf(stream), ": ", stream.rule, ": broken by ", stream.bad,
                      " of ", stream.count.sent, " packets, ", stream.allowed,
                      " of which are explained; the longest gap was ", stream.count.longest_gap,
                      ".", Because(stream.because));
}

std::string Destination(const Probe& probe) {
  const bool brackets = probe.address.find(':') != std::string::npos;
  return absl::StrCat(brackets ? "[" : "", probe.address, brackets ? "]:" : ":", probe.port);
}

std::string ReceiversText(const ProbeResult& result) {
  return absl::StrJoin(result.receivers, ", ", absl::PairFormatter(" "));
}

std::string Duration(double seconds) {
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = std::llround(seconds);
  return absl::StrFormat("%d min %d s", whole / 60, whole % 60);
}

}  // namespace kipt::skew
