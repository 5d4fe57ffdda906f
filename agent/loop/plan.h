// SPDX-License-Identifier: Apache-2.0
//
// One check: what exists, compared with what is desired (Compare), and the removal of what is stale
// and unclaimed: at once for a command (Retire), at quiet moments for a running agent (Retirer).
#ifndef KIPT_AGENT_LOOP_PLAN_H_
#define KIPT_AGENT_LOOP_PLAN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "agent/loop/clock.h"
#include "agent/loop/events.h"
#include "agent/policy/diff.h"
#include "agent/policy/martians.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

// What one check found.
struct Plan {
  uint32_t generation = 0;
  // The families that were checked.
  std::vector<netlink::Family> families = {};
  Diff diff;
  // Families in which kube-proxy is active (ownership.h).
  std::vector<netlink::Family> claimed_by_kube_proxy = {};
  // Where kube-proxy's KUBE-SERVICES exists in table nat.
  std::vector<netlink::Family> with_services = {};
  // Where table nat lacks the jump to KUBE-POSTROUTING, and else only what `kube-proxy --cleanup`
  // deletes, and no base chain leads to KUBE-SERVICES.
  std::vector<netlink::Family> in_cleanup = {};
  // In the base chains that were read, each once, sorted.
  std::vector<ForeignJump> foreign_jumps = {};
  MartianProtection martians = {};
  // What to remove of diff.stale, and in the other iptables mode; if requested.
  std::optional<Retirement> retirement = {};
  std::optional<Retirement> other_retirement = {};

  bool operator==(const Plan&) const = default;
};

// What is damaged, repaired and fought over: one rule, anywhere in its chain, or one chain.
struct Item {
  netlink::ChainId chain;
  // "-A INPUT -j KUBE-FIREWALL", "-D INPUT ..." for a rule that is to be deleted, ":KUBE-FIREWALL
  // - [0:0]" for a chain.
  std::string text;

  auto operator<=>(const Item&) const = default;
};
Item ItemOf(const netlink::Operation& operation);

// Whether `change` adds the jump to KUBE-POSTROUTING of `family`, and whether it makes that chain
// or a rule of it.
bool IsPostroutingJump(const Change& change, netlink::Family family);
bool IsOfPostrouting(const Change& change, netlink::Family family);

// What `observed` lacks of `input` on a node that can hold `support`.
Plan Compare(const PolicyInput& input, const RuleSupport& support,
             const netlink::Snapshot& observed);

// Who depends on what, in addition to the rules of the backend itself.
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
  // Of the backend: "nft" or "legacy".
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
  // other process has just changed anything. One attempt, during which nothing is repaired (1.5 s
  // with 10,000 services). If the kernel refuses it, or everything stale is claimed, the next
  // follows ten minutes later; if it is aborted, at next().
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

#endif  // KIPT_AGENT_LOOP_PLAN_H_
