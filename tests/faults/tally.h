// SPDX-License-Identifier: Apache-2.0
//
// The runs of one subject: which are planned, how each ended, and whether that is enough.
#ifndef KIPT_TESTS_FAULTS_TALLY_H_
#define KIPT_TESTS_FAULTS_TALLY_H_

#include <cstddef>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/faults/control.h"

namespace kipt::testing {

enum class End : uint8_t {
  kInPlace,     // the desired state, without help
  kError,       // a clear error, and nothing half done
  kNotReached,  // the fault did not happen: a failure
  kFailed,
};

struct Verdict {
  End end = End::kFailed;
  // Why it failed; for an error what the program reported.
  std::string text = {};
  double seconds = 0;
  // A failure that a busy machine can cause: a limit of time, or an occurrence that did not come.
  bool timing = false;
  // The number of attempts until the fault was reached.
  int attempts = 1;
  // Set if this is the verdict of a second run, alone: how the first one failed.
  std::string first_failure = {};

  bool failed() const { return end == End::kFailed || end == End::kNotReached; }
};

// One fault, at one occurrence, in one place (a scene of sync, an incident of the daemon).
struct Run {
  std::string place;
  const FaultRow* row = nullptr;
  uint32_t nth = 0;
  std::function<Verdict()> attempt = {};
};
// "hint-deleted: send 3, EINTR"
std::string NameOf(const Run& run);

// How much of a subject was chosen: only of a whole table every fault must be reached.
enum class Scope : uint8_t { kPart, kWhole };

struct Counts {
  size_t planned = 0;
  size_t made = 0;
  std::map<End, size_t> ends;
  size_t repeated = 0;  // judged by a second run, alone
  size_t late = 0;      // the fault was not reached in the first attempt
  double longest = 0;

  size_t failed() const;
};

// Safe for use by several threads.
class Tally {
 public:
  explicit Tally(Subject subject) : subject_(subject) {}

  // Appends every verdict to the file `path`, a line each. Verdicts of this subject that are
  // already in the file count as made. False if it cannot be written.
  bool KeepIn(const std::string& path);

  void Plan(const Run& run);
  // The last verdict of a run counts.
  void Add(const Run& run, const Verdict& verdict);
  // A place whose runs cannot be planned.
  void AddProblem(const std::string& place, const std::string& problem);

  Subject subject() const { return subject_; }
  std::optional<Verdict> VerdictOf(const Run& run) const;
  Counts Total() const;
  Counts OfPlace(absl::string_view place) const;
  Counts OfPoint(Point point) const;
  // Errors as the program reported them, each once, without numbers.
  std::set<std::string> Errors() const;

  // Everything that makes the tally red: failures, planned runs that were not made, and, of a whole
  // table, faults that were never reached, or reached where control.cc excludes them.
  std::vector<std::string> Problems(Scope scope) const;

 private:
  struct Entry {
    std::string place;
    const FaultRow* row;
    std::optional<Verdict> verdict;
  };
  Counts Count(const std::function<bool(const Entry&)>& which) const;
  std::vector<std::string> Unreached() const;
  void ReadLine(absl::string_view line);

  const Subject subject_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // by NameOf
  std::vector<std::string> problems_;
  std::ofstream file_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_TALLY_H_
