// SPDX-License-Identifier: Apache-2.0
//
// What happened, when, and what of it was wrong. Safe for use by several threads.
#ifndef KIPT_TESTS_SOAK_JOURNAL_H_
#define KIPT_TESTS_SOAK_JOURNAL_H_

#include <cstdint>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace kipt::soak {

struct Violation {
  absl::Duration at;
  std::string node;
  // A word that says which invariant: "packets", "in place", "memory".
  std::string of;
  std::string seen;
  std::string expected;
};

class Journal {
 public:
  // Events are written to `log_path` as they come; "" writes none.
  Journal(uint64_t seed, const std::string& log_path);

  // Since it was made.
  absl::Duration Elapsed() const;
  absl::Time start() const { return start_; }
  uint64_t seed() const { return seed_; }

  void Event(absl::string_view node, absl::string_view text);
  void Count(const std::string& node, const std::string& what, int64_t by = 1);
  // Told at once on standard error, with time and seed.
  void Violate(const std::string& node, const std::string& of, const std::string& seen,
               const std::string& expected);

  std::vector<Violation> violations() const;
  // Each of these judges has reported a violation. Without any name: false.
  bool Violated(const std::vector<std::string>& judges) const;
  // Of one node, by what was counted.
  std::map<std::string, int64_t> counts(const std::string& node) const;

 private:
  void Write(absl::string_view node, absl::string_view text);

  const uint64_t seed_;
  const absl::Time start_;
  mutable std::mutex mutex_;
  std::ofstream log_;
  std::vector<Violation> violations_;
  std::map<std::string, std::map<std::string, int64_t>> counts_;
};

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_JOURNAL_H_
