// SPDX-License-Identifier: Apache-2.0
//
// The daemon of a node, through all its lives.
#ifndef KIPT_TESTS_SOAK_DAEMON_H_
#define KIPT_TESTS_SOAK_DAEMON_H_

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "tests/soak/node.h"
#include "tests/support/background_program.h"

namespace kipt::soak {

inline constexpr int kHealthPort = 10270;
inline constexpr int kMetricsPort = 10271;

// All but pid(), started() and Says() is for one thread, which must outlive the daemon: the kernel
// kills it with the thread that started it.
class Daemon {
 public:
  explicit Daemon(Node& node) : node_(node) {}

  // With the node's settings; returns at once.
  void Start();
  // It has ended, by `signal` or by itself. The exit code.
  int End(int signal);
  void Signal(int signal);
  // Writes the node's settings, or other text, into its file, which it watches.
  void WriteConfig();
  void WriteConfig(const std::string& text);
  bool IsReady() const;
  // Ready within the patience.
  bool BecomesReady(absl::Duration patience) const;

  // -1 where it does not run.
  pid_t pid() const;
  absl::Time started() const;
  // How often it has logged this since it was started last.
  int Says(const std::string& text) const;
  // The end of its log.
  std::string LastWords() const;

 private:
  void CountRepairs();

  Node& node_;
  mutable std::mutex mutex_;
  std::unique_ptr<testing::BackgroundProgram> program_;
  absl::Time started_ = absl::InfinitePast();
};

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_DAEMON_H_
