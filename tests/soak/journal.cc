// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/journal.h"

#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace kipt::soak {

Journal::Journal(uint64_t seed, const std::string& log_path) : seed_(seed), start_(absl::Now()) {
  if (!log_path.empty()) log_.open(log_path);
}

absl::Duration Journal::Elapsed() const { return absl::Now() - start_; }

void Journal::Write(absl::string_view node, absl::string_view text) {
  if (!log_.is_open()) return;
  log_ << absl::StreamFormat("%9.3f %-6s %s\n", absl::ToDoubleSeconds(Elapsed()), node, text)
       << std::flush;
}

void Journal::Event(absl::string_view node, absl::string_view text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Write(node, text);
}

void Journal::Count(const std::string& node, const std::string& what, int64_t by) {
  const std::lock_guard<std::mutex> lock(mutex_);
  counts_[node][what] += by;
}

void Journal::Violate(const std::string& node, const std::string& of, const std::string& seen,
                      const std::string& expected) {
  const std::lock_guard<std::mutex> lock(mutex_);
  violations_.push_back({Elapsed(), node, of, seen, expected});
  const std::string text = absl::StrCat("VIOLATION (", of, "), seed ", seed_, ": seen: ", seen,
                                        "; expected: ", expected);
  Write(node, text);
  std::cerr << absl::StreamFormat("%9.3f %-6s %s\n", absl::ToDoubleSeconds(Elapsed()), node, text);
}

std::vector<Violation> Journal::violations() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return violations_;
}

bool Journal::Violated(const std::vector<std::string>& judges) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !judges.empty() &&
         std::all_of(judges.begin(), judges.end(), [this](const std::string& judge) {
           return std::any_of(violations_.begin(), violations_.end(),
                              [&judge](const Violation& one) { return one.of == judge; });
         });
}

std::map<std::string, int64_t> Journal::counts(const std::string& node) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = counts_.find(node);
  return found == counts_.end() ? std::map<std::string, int64_t>() : found->second;
}

}  // namespace kipt::soak
