// SPDX-License-Identifier: Apache-2.0
//
// A program as an actor. Between acts it is stopped (SIGSTOP), so it does nothing while the node is
// asked. The iptables that it finds in PATH is this machine's, of one mode.
#ifndef KIPT_TESTS_SKEW_ACTORS_STOPPED_PROGRAM_H_
#define KIPT_TESTS_SKEW_ACTORS_STOPPED_PROGRAM_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/skew/actors/actor.h"
#include "tests/support/background_program.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/scratch_directory.h"

namespace kipt::skew {

// Links to iptables in `directory`; false if they cannot be made. And PATH with them first.
bool LinkIptables(const testing::ScratchDirectory& directory, testing::IptablesMode mode);
std::vector<std::string> PathWith(const testing::ScratchDirectory& directory);

// The last 8 that a program printed, as one line.
std::string LastLines(const std::string& output);

// It is killed when this object goes, or the thread that started it.
class StoppedProgram {
 public:
  void Start(const std::vector<std::string>& argv, const std::vector<std::string>& environment);
  // It goes on until `done`, and is stopped again. Not ok: it has ended, or `done` does not become
  // true in time, which is told with `complaint`.
  Act RunUntil(const std::function<bool()>& done, absl::Duration patience,
               const std::string& complaint);
  void Kill() { program_ = nullptr; }

 private:
  std::unique_ptr<testing::BackgroundProgram> program_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ACTORS_STOPPED_PROGRAM_H_
