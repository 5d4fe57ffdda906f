// SPDX-License-Identifier: Apache-2.0
//
// One daemon in a network namespace of its own, to which an incident happens.
#ifndef KIPT_TESTS_FAULTS_STAGE_H_
#define KIPT_TESTS_FAULTS_STAGE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/faults/incidents.h"
#include "tests/support/background_program.h"
#include "tests/support/scratch_directory.h"

namespace kipt::testing {

// Until the daemon rests after an incident: it checks legacy tables again after 20 ms and reads a
// changed file after 100 ms.
inline constexpr absl::Duration kRest = absl::Milliseconds(250);

class Stage {
 public:
  // Both must outlive this.
  Stage(const Incident& incident, const Programs& programs);

  // Moves the calling thread to a new network namespace, with rules of others in it. Unless its
  // start is the incident, the daemon runs and rests when this returns. Empty, or what went wrong.
  std::string Begin();
  // The incident. From here on occurrences count.
  std::string Strike();
  // Waits until the kernel is as `desired`: false after `bound`, counted from the incident, or when
  // the daemon has ended.
  bool BecomesInPlace(const KernelText& desired, absl::Duration bound);
  // A daemon that has ended is started again without a fault, as a service manager would do.
  void StartAgain();
  // Exit code of a `plan` without a fault: 0 if there is nothing to do.
  int PlanExitCode() const;

  Control& control() { return *control_; }
  BackgroundProgram& daemon() { return *daemon_; }
  // As last read by BecomesInPlace.
  const KernelText& now() const { return now_; }
  absl::Duration since_strike() const { return absl::Now() - struck_; }
  // The kernel was not in place for at least this long, however busy this machine is.
  absl::Duration known_missing() const { return last_missing_ - struck_; }
  // The daemon's log since the incident.
  std::string Said() const { return daemon_->Output().substr(said_before_); }

 private:
  void StartDaemon(const std::vector<std::string>& environment);
  bool IsReady();
  std::vector<std::string> Flags() const;

  const Incident& incident_;
  const Programs& programs_;
  ControlPage control_;
  const ScratchDirectory directory_;
  std::optional<BackgroundProgram> daemon_;
  KernelText now_;
  absl::Time struck_;
  absl::Time last_missing_;
  size_t said_before_ = 0;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_STAGE_H_
