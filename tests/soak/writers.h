// SPDX-License-Identifier: Apache-2.0
//
// Who else writes to iptables while the daemon runs. Each acts at random moments on a thread of its
// own.
#ifndef KIPT_TESTS_SOAK_WRITERS_H_
#define KIPT_TESTS_SOAK_WRITERS_H_

#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

using Random = std::mt19937;
// From 0 to `below` - 1.
int Draw(Random& random, int below);

// One thing that a writer does, and what it is called in the summary.
struct Act {
  std::string name;
  std::function<void(Random&)> act;
  // Between two of them, on average.
  absl::Duration pause;
};

// Acts until it is destroyed.
class Writer {
 public:
  Writer(Act act, uint32_t seed);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  const std::string& name() const { return act_.name; }
  int acts() const { return acts_; }

 private:
  const Act act_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int> acts_ = 0;
  std::thread thread_;
};

// Damage to what the daemon keeps in `table` ("nat", "filter", "mangle"): chains, rules and jumps
// deleted, chains emptied, rules doubled; by iptables and nft, in either family.
Act DamageTo(const std::string& table, IptablesMode mode, bool cleanup);
// Damage to all of `table`, other programs' rules included: -F, iptables-restore of an empty table,
// nft delete table.
Act WreckageOf(const std::string& table, IptablesMode mode);

// The rules of another program, in a chain of its own. It writes and reads nothing else.
class PortMapper {
 public:
  PortMapper(IptablesMode mode, std::string table) : mode_(mode), table_(std::move(table)) {}

  Act Acts();
  // What is missing or too many in its chains; "" where all is as it was written. Removes them.
  std::string Fault();

 private:
  const IptablesMode mode_;
  const std::string table_;
  // By the family: its ports, in the order of its rules.
  std::map<IpFamily, std::vector<int>> ports_;
};

// Thousands of rules in one transaction, then their removal.
Act Storm(IptablesMode mode);
// Sets a policy that is not the daemon's, which must stay as it is for a moment. `changed` says
// that it did not.
Act Policy(IptablesMode mode, std::atomic<bool>& changed);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SOAK_WRITERS_H_
