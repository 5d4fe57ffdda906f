// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/retirer.h
//
// Removes what is stale and unclaimed: in one go for a command, and for a running agent at quiet
// moments, never so often that reading all rules of all tables costs anything to speak of.
#ifndef KIPT_AGENT_LOOP_RETIRER_H_
#define KIPT_AGENT_LOOP_RETIRER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/loop/clock.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "netlink/backend.h"

namespace kipt::agent {

// Who depends on what, in addition to the rules of the backend itself.
struct RetirementSources {
  std::function<CniConfigs()> cni;
  // Empty where that cannot be read: the martian rule is not at stake on such nodes.
  std::function<std::vector<std::string>()> route_localnet;
  // Reads the rules of the other iptables mode through DependentsCollector::OtherMode.
  std::function<void(DependentsCollector&)> other_mode;
};

struct RetireRequest {
  PolicyInput input;
  // What the node can hold.
  RuleSupport support = {};
  RetirementSources sources;
  RetirementOptions options = {};
  // False: nothing is removed.
  bool apply = false;
};

struct RetireReport {
  // Of the backend: "nft" or "legacy".
  std::string iptables_mode = {};
  // OK where it is known what is to be removed and what stays, and that was done that was to be
  // done.
  absl::Status status = {};
  uint32_t generation = 0;
  Retirement plan = {};
  // What was known of others; empty where nothing could have been removed anyway.
  Dependents dependents = {};
  // The rules of all tables were read.
  bool surveyed = false;
  // plan.changes were done.
  bool applied = false;
};

// What another mode, bit or family left behind, and who claims it. What is unclaimed is removed, in
// one transaction on the generation at which that was found out. All rules of all tables are read,
// but only where something might be removed.
//
// A chain that the kernel says is in use, by something that no rule shows (the verdict of a map's
// element), stays, and the rest is removed all the same.
//
// Errors are Backend::Read's and Backend::Apply's, with Aborted as by RetryAborted.
RetireReport Retire(netlink::Backend& backend, const Clock& clock, const RetireRequest& request);
// The same in one attempt. Aborted: others wrote meanwhile; nothing was done.
RetireReport TryRetire(netlink::Backend& backend, const RetireRequest& request);

// When a running agent retires what is stale.
class Retirer {
 public:
  // Who depends on what; nothing: --stale-chains=keep. The next quiet moment is used.
  void SetSources(std::optional<RetirementSources> sources);

  // After a round that left the desired state in place. `quiet`: no other process has just changed
  // anything. Nothing if it is not time to: it is not quiet; or the kernel refused, or every stale
  // chain of every family was claimed, less than ten minutes ago. One attempt: while it goes on (a
  // second and a half with 10,000 services) nothing is repaired. Where it was aborted, see next().
  std::optional<RetireReport> Run(netlink::Backend& backend, const Clock& clock,
                                  const PolicyInput& input, const RuleSupport& support, bool quiet);

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
