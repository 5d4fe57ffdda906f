// SPDX-License-Identifier: Apache-2.0
//
// File: tests/faults/tally.h
//
// How each run ended, counted, and as a table.
#ifndef KIPT_TESTS_FAULTS_TALLY_H_
#define KIPT_TESTS_FAULTS_TALLY_H_

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/faults/control.h"

namespace kipt::testing {

enum class End {
  kInPlace,  // all that was wanted stands, by itself
  kError,    // a clear error, and nothing half done
  // The occurrence did not come: where it is a matter of time that is so, elsewhere it is a
  // failure.
  kNotReached,
  kFailed,
};

struct Verdict {
  End end = End::kFailed;
  // Why it failed; for an error what was said.
  std::string text = {};
  double seconds = 0;
};

// Safe for use by several threads.
class Tally {
 public:
  // `what` names the run for people.
  void Add(const FaultRow& row, const std::string& what, const Verdict& verdict);

  size_t runs() const;
  std::vector<std::string> failures() const;
  // Errors as the program said them, each once, numbers aside.
  std::set<std::string> errors() const;
  double longest() const;
  // A row of Markdown for each fault; `error` says what End::kError was.
  std::string Table(const std::string& error) const;

 private:
  struct Counts {
    std::map<End, int> ends;
    int runs = 0;
  };

  mutable std::mutex mutex_;
  std::map<size_t, Counts> rows_;  // by place in kFaults
  std::vector<std::string> failures_;
  std::set<std::string> errors_;
  size_t runs_ = 0;
  double longest_ = 0;
};

// What is to be done, by who mostly waits and who mostly works.
struct Jobs {
  std::vector<std::function<void()>> waiting;
  std::vector<std::function<void()>> working;
};

// Does all of it: each job on a thread that has a /run of its own and may move to another network
// namespace. Prints how far it is to standard error, every few seconds.
void RunJobs(const Jobs& jobs, const std::string& title, size_t waiting_threads = 48);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_TALLY_H_
