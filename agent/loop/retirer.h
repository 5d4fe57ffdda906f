// SPDX-License-Identifier: Apache-2.0
//
// The removal of what is stale and unclaimed: at once for a command (Retire), at quiet moments for
// a running agent (Retirer).
#ifndef KIPT_AGENT_LOOP_RETIRER_H_
#define KIPT_AGENT_LOOP_RETIRER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "agent/loop/clock.h"
#include "agent/policy/dependents.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "netlink/backend.h"

namespace kipt::agent {

// What depends on which chain, in addition to the rules of the backend itself.
struct RetirementSources {
  std::function<CniConfigs()> cni;
  // ReadRouteLocalnet: where it may be 1 the martian rule is needed.
  std::function<RouteLocalnet()> route_localnet;
  // Reads the rules of the other iptables mode through DependentsCollector::OtherMode.
  std::function<void(DependentsCollector&)> other_mode;
  // What sets the mark without a rule: ReadMarkingsWithoutRules.
  std::function<std::vector<Marking>()> without_rules = [] { return std::vector<Marking>(); };
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
  // The backend's: "nft" or "legacy".
  std::string iptables_mode = {};
  // OK where the plan is complete, and was applied if that was asked for.
  absl::Status status = {};
  uint32_t generation = 0;
  Retirement plan = {};
  // Empty where nothing could have been removed anyway.
  Dependents dependents = {};
  // The rules of all tables were read.
  bool surveyed = false;
  // plan.changes were made.
  bool applied = false;
};

// Removes, in one transaction, what another mode, bit or family left and nothing claims. Reads all
// rules of all tables, but only if something might be removed. Chains that the kernel reports to be
// in use although no rule shows it (verdict maps) stay.
//
// Errors are Backend::Read's and Backend::Apply's, with Aborted as by RetryAborted.
RetireReport Retire(netlink::Backend& backend, const Clock& clock, const RetireRequest& request);
// One attempt. Aborted: another process wrote meanwhile; nothing was done.
RetireReport TryRetire(netlink::Backend& backend, const RetireRequest& request);

// When a running agent retires what is stale.
class Retirer {
 public:
  // Without sources (--stale-chains=keep) nothing is retired.
  explicit Retirer(std::optional<RetirementSources> sources = {}) : sources_(std::move(sources)) {}

  // For after a round that left the desired state in place; nothing if it is not time. `quiet`: no
  // other process has just changed anything, or they never pause. One attempt, during which nothing
  // is repaired (1.5 s with 10,000 services). If the kernel refuses it, or everything stale is
  // claimed, the next follows ten minutes later; if it is aborted, at next().
  std::optional<RetireReport> Run(netlink::Backend& backend, const Clock& clock,
                                  const PolicyInput& input, const RuleSupport& support, bool quiet);

  // When to retry an aborted attempt, quiet or not: after ten times its duration. InfiniteFuture:
  // there is none.
  SteadyTime next() const { return next_try_; }

 private:
  std::optional<RetirementSources> sources_;
  SteadyTime next_survey_ = SteadyTime::InfinitePast();
  SteadyTime next_try_ = SteadyTime::InfiniteFuture();
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_RETIRER_H_
