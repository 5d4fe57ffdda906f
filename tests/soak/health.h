// SPDX-License-Identifier: Apache-2.0
//
// What the daemon takes of the machine, and whether it answers.
#ifndef KIPT_TESTS_SOAK_HEALTH_H_
#define KIPT_TESTS_SOAK_HEALTH_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/soak/daemon.h"
#include "tests/soak/node.h"

namespace kipt::soak {

struct Sample {
  absl::Duration at;
  int64_t anonymous_kib = 0;
  int64_t descriptors = 0;
  int64_t threads = 0;
  int64_t children = 0;
};

// Taken every second of a daemon that has run for some seconds. Safe for use by several threads.
class Samples {
 public:
  void Add(const Sample& sample);
  std::vector<Sample> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Sample> samples_;
};

// Each until the node has ended.
void TakeSamples(Node& node, const Daemon& daemon, Samples& samples);
// Asks /metrics and /readyz all the time.
void Scrape(Node& node, const Daemon& daemon);

// Children that are zombies in five samples running: their parent does not wait for them.
class ZombieJudge {
 public:
  // The children of one sample with their states ('Z'). Returns the zombies that came to five.
  std::vector<int> See(const std::map<int, char>& children);

 private:
  std::map<int, int> samples_;
};

// How long the endpoints are silent while the daemon could answer.
class SilenceJudge {
 public:
  SilenceJudge(absl::Duration bound, absl::Time now) : bound_(bound), answered_(now) {}
  // The silence where it is longer than the bound, once for each silence.
  std::optional<absl::Duration> See(absl::Time now, bool answered, bool can_answer);

 private:
  const absl::Duration bound_;
  absl::Time answered_;
  bool reported_ = false;
};

// What is wrong with an answer of /metrics; "" where nothing is.
std::string MetricsFault(int status, const std::string& body);

// The median of `of` over the samples between two parts of the run (0 to 1).
int64_t MedianOf(const std::vector<Sample>& samples, absl::Duration run, double from, double to,
                 int64_t Sample::*of);
// Compares the second quarter with the last.
void JudgeGrowth(const std::string& node, const std::vector<Sample>& samples, absl::Duration run,
                 Journal& journal);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_HEALTH_H_
