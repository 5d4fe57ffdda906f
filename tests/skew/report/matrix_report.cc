// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/report/matrix_report.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

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

}  // namespace

const char* NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSound:
      return "sound";
    case Verdict::kKnown:
      return "known failure";
    case Verdict::kUnexpected:
      return "unexpected";
    case Verdict::kBroken:
      return "broken";
  }
  return "";
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
  Tally tally;
  for (const CellReport& cell : report.cells) {
    switch (VerdictOf(cell)) {
      case Verdict::kSound:
        ++tally.sound;
        break;
      case Verdict::kKnown:
        ++tally.known;
        break;
      case Verdict::kUnexpected:
        ++tally.unexpected;
        break;
      case Verdict::kBroken:
        ++tally.broken;
        break;
    }
  }
  return tally;
}

bool AllAsExpected(const MatrixReport& report) {
  const Tally tally = TallyOf(report);
  return tally.unexpected == 0 && tally.broken == 0 && report.problems.empty();
}

}  // namespace kipt::skew
