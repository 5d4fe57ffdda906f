// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/ledger.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"

namespace kipt::soak {

void Ledger::Add(const TableId& table, const std::string& writer,
                 const std::vector<std::string>& lines) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string>& all = lines_[table][writer];
  all.insert(all.end(), lines.begin(), lines.end());
}

void Ledger::Remove(const TableId& table, const std::string& writer,
                    const std::vector<std::string>& lines) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::set<std::string> gone(lines.begin(), lines.end());
  std::erase_if(lines_[table][writer],
                [&gone](const std::string& line) { return gone.count(line) != 0; });
}

bool Ledger::Has(const TableId& table, const std::string& writer, const std::string& line) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = lines_.find(table);
  if (found == lines_.end()) return false;
  const auto of = found->second.find(writer);
  return of != found->second.end() &&
         std::find(of->second.begin(), of->second.end(), line) != of->second.end();
}

void Ledger::ForgetRules(const TableId& table) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [writer, lines] : lines_[table]) {
    std::erase_if(lines, [](const std::string& line) { return absl::StartsWith(line, "-A "); });
  }
}

void Ledger::ForgetTable(const TableId& table) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lines_.erase(table);
}

std::map<std::string, std::vector<std::string>> Ledger::Of(const TableId& table) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = lines_.find(table);
  if (found == lines_.end()) return {};
  return found->second;
}

size_t Ledger::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t count = 0;
  for (const auto& [table, writers] : lines_) {
    for (const auto& [writer, lines] : writers) count += lines.size();
  }
  return count;
}

}  // namespace kipt::soak
