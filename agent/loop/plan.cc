// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/plan.h"

#include <algorithm>
#include <set>
#include <variant>

#include "absl/algorithm/container.h"
#include "agent/policy/chain_diff.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"
#include "netlink/kernel_error.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedRule;
using netlink::Table;

// In table nat of `family`: the jump to KUBE-POSTROUTING, and else only that chain or
// KUBE-MARK-MASQ. A flush of the table also empties KUBE-MARK-DROP.
bool LacksWhatACleanupDeletes(const Diff& diff, Family family) {
  bool jump = false;
  for (const Change& change : diff.changes) {
    const ChainId& chain = netlink::ChainOf(change.operation);
    if (chain.family != family || chain.table != Table::kNat) continue;
    if (std::holds_alternative<netlink::DeleteRule>(change.operation)) return false;
    jump |= IsPostroutingJump(change, family);
    if (!IsOfPostrouting(change, family) && chain.name != kMarkMasqChain) return false;
  }
  return jump;
}

std::vector<ForeignJump> ForeignJumps(const netlink::Snapshot& snapshot) {
  std::set<ForeignJump> jumps;
  for (const auto& [id, chain] : snapshot.chains) {
    if (netlink::FindBaseChain(id.table, id.name) == nullptr) continue;
    for (const ObservedRule& rule : chain.rules) {
      const std::string* target = netlink::JumpTarget(rule);
      if (target != nullptr && !IsKubeletChain({id.family, id.table, *target})) {
        jumps.insert({id, *target});
      }
    }
  }
  return {jumps.begin(), jumps.end()};
}

// A survey takes up to a second with 10,000 services.
constexpr absl::Duration kSurveyPause = absl::Minutes(10);
// Where others wrote meanwhile.
constexpr absl::Duration kShortestPause = absl::Milliseconds(50);

// Plans and applies until the kernel finds no more chains in use.
absl::Status RetireUnused(netlink::Backend& backend, const RetireRequest& request,
                          const netlink::Snapshot& snapshot, const Diff& diff,
                          RetireReport& report) {
  for (;;) {
    report.plan = PlanRetirement(request.input, snapshot, diff, report.dependents, request.options);
    if (!request.apply || report.plan.empty()) return absl::OkStatus();
    absl::Status status = backend.Apply(ToTransaction(report.plan.changes, snapshot.generation));
    const auto refused = absl::c_find_if(report.plan.changes, [&](const Change& change) {
      const auto* remove = std::get_if<netlink::DeleteChain>(&change.operation);
      return remove != nullptr && netlink::ToString(remove->chain) == netlink::ChainInUse(status);
    });
    // Each refusal keeps one more chain.
    if (refused == report.plan.changes.end()) {
      report.applied = status.ok();
      return status;
    }
    report.dependents.references.push_back({netlink::ChainOf(refused->operation),
                                            "a use that no rule shows",
                                            "the kernel reports that it is in use"});
  }
}

absl::Status RetireOnce(netlink::Backend& backend, const RetireRequest& request,
                        RetireReport& report) {
  const auto observed = backend.Read(ChainsToRead(), &NativeMartians());
  if (!observed.ok()) return observed.status();
  const netlink::Snapshot& snapshot = *observed;
  report.generation = snapshot.generation;
  const Diff diff = ComputeDiff(request.input, snapshot, request.support);
  if (MayRetire(request.input, snapshot, diff, request.options)) {
    DependentsCollector collector;
    const absl::StatusOr<netlink::Survey> survey = backend.TakeSurvey(collector.ManagedMode());
    if (!survey.ok()) return survey.status();
    if (survey->generation != snapshot.generation) {
      return absl::AbortedError("the ruleset changed while it was surveyed");
    }
    request.sources.other_mode(collector);
    for (const Marking& each : request.sources.without_rules()) collector.Note(each);
    report.dependents = collector.Finish(request.sources.cni(), request.sources.route_localnet());
    report.surveyed = true;
  }
  return RetireUnused(backend, request, snapshot, diff, report);
}

}  // namespace

bool IsPostroutingJump(const Change& change, Family family) {
  const auto* add = std::get_if<netlink::AddRule>(&change.operation);
  const auto* jump = add == nullptr ? nullptr : std::get_if<netlink::Jump>(&add->rule.target);
  return jump != nullptr && jump->chain == kPostroutingChain && add->chain.family == family;
}

bool IsOfPostrouting(const Change& change, Family family) {
  const ChainId& chain = netlink::ChainOf(change.operation);
  return IsPostroutingJump(change, family) ||
         (chain.family == family && chain.table == Table::kNat && chain.name == kPostroutingChain);
}

Item ItemOf(const netlink::Operation& operation) {
  const netlink::ChainId& chain = netlink::ChainOf(operation);
  const auto* add = std::get_if<netlink::AddRule>(&operation);
  return {chain, add != nullptr ? RuleText(chain, add->rule) : netlink::ToString(operation)};
}

Plan Compare(const PolicyInput& input, const RuleSupport& support,
             const netlink::Snapshot& observed) {
  Plan plan{.generation = observed.generation,
            .families = input.families,
            .diff = ComputeDiff(input, observed, support),
            .claimed_by_kube_proxy = {},
            .with_services = {},
            .in_cleanup = {},
            .foreign_jumps = ForeignJumps(observed),
            .martians = FindMartianProtection(observed)};
  for (const Family family : netlink::kFamilies) {
    if (IsClaimedByKubeProxy(observed, family)) plan.claimed_by_kube_proxy.push_back(family);
    const bool services = observed.Find({family, Table::kNat, "KUBE-SERVICES"}) != nullptr;
    if (services) plan.with_services.push_back(family);
    if ((!services || KubeProxyLeaves(observed, family)) &&
        LacksWhatACleanupDeletes(plan.diff, family)) {
      plan.in_cleanup.push_back(family);
    }
  }
  return plan;
}

RetireReport TryRetire(netlink::Backend& backend, const RetireRequest& request) {
  RetireReport report = {.iptables_mode = std::string(netlink::BackendKindName(backend.kind()))};
  report.status = RetireOnce(backend, request, report);
  return report;
}

RetireReport Retire(netlink::Backend& backend, const Clock& clock, const RetireRequest& request) {
  RetireReport report;
  report.status = RetryAborted(clock, [&] {
    report = TryRetire(backend, request);
    return report.status;
  });
  return report;
}

std::optional<RetireReport> Retirer::Run(netlink::Backend& backend, const Clock& clock,
                                         const PolicyInput& input, const RuleSupport& support,
                                         bool quiet) {
  const SteadyTime start = clock.now();
  const bool is_time = quiet || start >= next_try_;
  if (!sources_ || !is_time || start < next_survey_) return std::nullopt;
  RetireReport report =
      TryRetire(backend, {.input = input, .support = support, .sources = *sources_, .apply = true});
  const SteadyTime end = clock.now();
  const bool again = absl::IsAborted(report.status);
  next_try_ =
      again ? end + std::max(kShortestPause, 10 * (end - start)) : SteadyTime::InfiniteFuture();
  // In a family that waits for a repair, claims were not examined.
  const bool judged = !report.status.ok() || report.plan.unsettled.empty();
  if (report.surveyed && !report.applied && !again && judged) next_survey_ = end + kSurveyPause;
  return report;
}

}  // namespace kipt::agent
