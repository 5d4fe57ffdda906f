// SPDX-License-Identifier: Apache-2.0
//
// Damage to kubelet's rules next to a daemon, one after the other, and how long it lasts.
#ifndef KIPT_TESTS_BENCH_INCIDENT_RIG_H_
#define KIPT_TESTS_BENCH_INCIDENT_RIG_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/support/background_program.h"
#include "tests/support/generation_listener.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

struct Incident {
  // From damage to repaired; nothing where both commits were seen in one wake-up of ours.
  std::optional<absl::Duration> outage = {};
  absl::Duration own;      // the daemon's own part of it, by its log
  absl::Duration writing;  // the kernel's part, or that of iptables-restore
};

class IncidentRig {
 public:
  // Different items are damaged in turns, so that none is damaged twice within so many incidents.
  static constexpr int kDamages = 6;

  // In the calling thread's network namespace. `daemon` must outlive it, and has repaired nothing
  // yet. Create it after rules were loaded, whose events nobody could keep.
  static absl::StatusOr<std::unique_ptr<IncidentRig>> Create(IptablesMode mode,
                                                             const BackgroundProgram& daemon);

  // Does the next damage and waits for its repair. Any error has what the daemon printed.
  absl::StatusOr<Incident> Next();

 private:
  IncidentRig(IptablesMode mode, const BackgroundProgram& daemon,
              std::unique_ptr<GenerationListener> listener)
      : mode_(mode), daemon_(daemon), listener_(std::move(listener)) {}
  absl::StatusOr<Incident> DamageOnce();

  const IptablesMode mode_;
  const BackgroundProgram& daemon_;
  const std::unique_ptr<GenerationListener> listener_;
  int done_ = 0;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_INCIDENT_RIG_H_
