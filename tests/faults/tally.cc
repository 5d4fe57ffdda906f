// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/tally.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace kipt::testing {
namespace {

constexpr std::array<const char*, 4> kEndNames = {"in place", "error", "not reached", "failed"};

// Each number becomes N: ports, process IDs and generations differ from run to run.
std::string WithoutNumbers(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) {
      result.push_back(text[i]);
    } else if (result.empty() || result.back() != 'N') {
      result.push_back('N');
    }
  }
  return result;
}

std::string FaultName(const FaultRow& row) {
  return absl::StrCat(PointName(row.point), ": ", row.name);
}

// The file's columns: subject, place, fault, occurrence, end, seconds, attempts, "time" if it
// failed by its timing, text, the first failure.
constexpr size_t kColumns = 10;

std::string LineOf(Subject subject, const Run& run, const Verdict& verdict) {
  return absl::StrCat(SubjectName(subject), "\t", run.place, "\t", FaultName(*run.row), "\t",
                      run.nth, "\t", kEndNames[static_cast<size_t>(verdict.end)], "\t",
                      absl::StrFormat("%.2f", verdict.seconds), "\t", verdict.attempts, "\t",
                      verdict.timing ? "time" : "", "\t", absl::CEscape(verdict.text), "\t",
                      absl::CEscape(verdict.first_failure), "\n");
}

const FaultRow* FaultNamed(absl::string_view name) {
  for (size_t i = 0; i < kFaultCount; ++i) {
    if (FaultName(kFaults[i]) == name) return &kFaults[i];
  }
  return nullptr;
}

}  // namespace

std::string NameOf(const Run& run) {
  return absl::StrCat(run.place, ": ", PointName(run.row->point), " ", run.nth, ", ",
                      run.row->name);
}

size_t Counts::failed() const {
  size_t count = 0;
  for (const End end : {End::kFailed, End::kNotReached}) {
    const auto found = ends.find(end);
    if (found != ends.end()) count += found->second;
  }
  return count;
}

bool Tally::KeepIn(const std::string& path) {
  std::ifstream before(path);
  for (std::string line; std::getline(before, line);) ReadLine(line);
  file_.open(path, std::ios::app);
  return file_.good();
}

// A line that was cut off, by a kill, is none.
void Tally::ReadLine(absl::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(line, '\t');
  if (words.size() != kColumns || words[0] != SubjectName(subject_)) return;
  Run run = {.place = words[1], .row = FaultNamed(words[2])};
  const auto* const end = std::find(kEndNames.begin(), kEndNames.end(), words[4]);
  Verdict verdict = {.timing = words[7] == "time"};
  if (run.row == nullptr || end == kEndNames.end() || !absl::SimpleAtoi(words[3], &run.nth) ||
      !absl::SimpleAtod(words[5], &verdict.seconds) ||
      !absl::SimpleAtoi(words[6], &verdict.attempts) || !absl::CUnescape(words[8], &verdict.text) ||
      !absl::CUnescape(words[9], &verdict.first_failure)) {
    return;
  }
  verdict.end = static_cast<End>(end - kEndNames.begin());
  entries_[NameOf(run)] = {.place = run.place, .row = run.row, .verdict = std::move(verdict)};
}

void Tally::Plan(const Run& run) {
  const std::lock_guard lock(mutex_);
  entries_.try_emplace(NameOf(run), Entry{.place = run.place, .row = run.row, .verdict = {}});
}

void Tally::Add(const Run& run, const Verdict& verdict) {
  const std::lock_guard lock(mutex_);
  entries_[NameOf(run)] = {.place = run.place, .row = run.row, .verdict = verdict};
  if (file_.is_open()) file_ << LineOf(subject_, run, verdict) << std::flush;
}

void Tally::AddProblem(const std::string& place, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  problems_.push_back(absl::StrCat(place, ": ", problem));
}

std::optional<Verdict> Tally::VerdictOf(const Run& run) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(NameOf(run));
  return found == entries_.end() ? std::nullopt : found->second.verdict;
}

Counts Tally::Count(const std::function<bool(const Entry&)>& which) const {
  const std::lock_guard lock(mutex_);
  Counts counts;
  for (const auto& [name, entry] : entries_) {
    if (!which(entry)) continue;
    ++counts.planned;
    if (!entry.verdict) continue;
    ++counts.made;
    ++counts.ends[entry.verdict->end];
    if (!entry.verdict->first_failure.empty()) ++counts.repeated;
    if (entry.verdict->attempts > 1) ++counts.late;
    counts.longest = std::max(counts.longest, entry.verdict->seconds);
  }
  return counts;
}

Counts Tally::Total() const {
  return Count([](const Entry&) { return true; });
}

Counts Tally::OfPlace(absl::string_view place) const {
  return Count([&](const Entry& entry) { return entry.place == place; });
}

Counts Tally::OfPoint(Point point) const {
  return Count([&](const Entry& entry) { return entry.row->point == point; });
}

std::set<std::string> Tally::Errors() const {
  const std::lock_guard lock(mutex_);
  std::set<std::string> errors;
  for (const auto& [name, entry] : entries_) {
    if (entry.verdict && entry.verdict->end == End::kError && !entry.verdict->text.empty()) {
      errors.insert(WithoutNumbers(entry.verdict->text));
    }
  }
  return errors;
}

std::vector<std::string> Tally::Unreached() const {
  std::vector<size_t> reached(kFaultCount);
  for (const auto& [name, entry] : entries_) {
    if (entry.verdict && entry.verdict->end != End::kNotReached) {
      ++reached[static_cast<size_t>(entry.row - kFaults)];
    }
  }
  std::vector<std::string> problems;
  for (size_t i = 0; i < kFaultCount; ++i) {
    const bool uses = Uses(subject_, kFaults[i].point);
    if (uses == (reached[i] > 0)) continue;
    problems.push_back(absl::StrCat("\"", FaultName(kFaults[i]), "\" ",
                                    uses ? "was never reached" : "was reached",
                                    ", control.cc says otherwise: ", SubjectName(subject_)));
  }
  return problems;
}

std::vector<std::string> Tally::Problems(Scope scope) const {
  const Counts total = Total();
  const std::lock_guard lock(mutex_);
  std::vector<std::string> problems = problems_;
  for (const auto& [name, entry] : entries_) {
    if (!entry.verdict || !entry.verdict->failed()) continue;
    problems.push_back(absl::StrCat(name, ": ", entry.verdict->text));
  }
  if (total.made < total.planned) {
    problems.push_back(absl::StrCat(SubjectName(subject_), ": only ", total.made, " of ",
                                    total.planned, " planned runs were made"));
  }
  if (total.planned == 0)
    problems.push_back(absl::StrCat(SubjectName(subject_), ": no run at all"));
  if (scope == Scope::kPart) return problems;
  for (std::string& problem : Unreached()) problems.push_back(std::move(problem));
  return problems;
}

}  // namespace kipt::testing
