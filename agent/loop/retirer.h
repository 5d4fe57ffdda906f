// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/retirer.h
//
// When a running agent retires what is stale: at quiet moments, and never so often that looking at
// all rules of all tables costs anything to speak of.
#ifndef KIPT_AGENT_LOOP_RETIRER_H_
#define KIPT_AGENT_LOOP_RETIRER_H_

#include <optional>

#include "absl/time/time.h"
#include "agent/loop/clock.h"
#include "agent/loop/reconciler.h"
#include "agent/loop/round.h"
#include "agent/policy/policy.h"

namespace kipt::agent {

class Retirer {
 public:
  // Who depends on what; nothing: --stale-chains=keep. The next quiet moment is used.
  void SetSources(std::optional<RetirementSources> sources);

  // After a round's repair. Nothing if it is not time to: another process is changing things, the
  // desired state is not in place, or the kernel refused, or every stale chain of every family was
  // claimed, less than ten minutes ago. One attempt:
  // while it goes on (a second and a half beside 10,000 services) nothing is repaired. Where it was
  // aborted, see next(). Times are steady.
  std::optional<RetireReport> Run(Reconciler& reconciler, const Clock& clock,
                                  const PolicyInput& input, const Round& round);

  // When an attempt that others wrote into is to be made again, whatever the trigger: after ten
  // times as long as it took. InfiniteFuture: there is none.
  SteadyTime next() const { return next_try_; }

 private:
  std::optional<RetirementSources> sources_;
  SteadyTime next_survey_ = SteadyTime::InfinitePast();
  SteadyTime next_try_ = SteadyTime::InfiniteFuture();
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_RETIRER_H_
