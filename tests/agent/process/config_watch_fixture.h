// SPDX-License-Identifier: Apache-2.0
//
// Changes of a configuration file, and what its watch reports.
#ifndef KIPT_TESTS_AGENT_PROCESS_CONFIG_WATCH_FIXTURE_H_
#define KIPT_TESTS_AGENT_PROCESS_CONFIG_WATCH_FIXTURE_H_

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/process/config_watch.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {

// Waits until the file system's coarse clock gives later writes another time.
inline void Settle() { absl::SleepFor(absl::Milliseconds(40)); }

inline void Rename(const TemporaryTree& tree, const std::string& from, const std::string& to) {
  EXPECT_EQ(rename(tree.Path(from).c_str(), tree.Path(to).c_str()), 0) << from;
}

inline bool HasEvents(const agent::ConfigWatch& watch) {
  pollfd polled = {.fd = watch.fd(), .events = POLLIN, .revents = 0};
  return poll(&polled, 1, 0) == 1;
}

// How often the watch reports that the file may have changed, until it has no more events.
inline int CountReports(agent::ConfigWatch& watch) {
  int reports = 0;
  while (HasEvents(watch)) {
    const absl::StatusOr<bool> changed = watch.Drain();
    EXPECT_THAT(changed, IsOk());
    if (!changed.ok()) break;
    if (*changed) ++reports;
  }
  return reports;
}

inline std::unique_ptr<agent::ConfigWatch> Watch(const TemporaryTree& tree,
                                                 const std::string& name) {
  auto watch = agent::ConfigWatch::Create(tree.Path(name));
  EXPECT_THAT(watch, IsOk());
  return watch.ok() ? *std::move(watch) : nullptr;
}

// A file that is open for writing.
class OpenFile {
 public:
  OpenFile(const std::string& path, int flags)
      : fd_(open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644)) {
    EXPECT_GE(fd_, 0) << path;
  }
  ~OpenFile() { Close(); }
  void Write(const std::string& text) const {
    EXPECT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

inline void RunIn(const TemporaryTree& tree, const std::string& script) {
  MustRun({"/bin/sh", "-euc", "cd \"$0\"; " + script, tree.root()});
}

inline void MakeFile(const TemporaryTree& tree) { tree.Write("etc/config.yaml", "old"); }

}  // namespace kipt::testing

#endif  // KIPT_TESTS_AGENT_PROCESS_CONFIG_WATCH_FIXTURE_H_
