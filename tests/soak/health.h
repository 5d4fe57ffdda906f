// SPDX-License-Identifier: Apache-2.0
//
// File: tests/soak/health.h
//
// What the daemon takes of the machine, and whether it answers.
#ifndef KIPT_TESTS_SOAK_HEALTH_H_
#define KIPT_TESTS_SOAK_HEALTH_H_

#include <cstdint>
#include <mutex>
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

// Each until the node has ended. Zombies that stay are told.
void TakeSamples(Node& node, const Daemon& daemon, Samples& samples);
// /metrics and /readyz, all the time. A daemon that can answer and does not is told.
void Scrape(Node& node, const Daemon& daemon);

// The median of `of` over the samples between two parts of the run (0 to 1).
int64_t MedianOf(const std::vector<Sample>& samples, absl::Duration run, double from, double to,
                 int64_t Sample::*of);
// Tells what grows: the second quarter is held against the last.
void JudgeGrowth(Node& node, const std::vector<Sample>& samples, absl::Duration run);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_HEALTH_H_
