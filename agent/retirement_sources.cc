// SPDX-License-Identifier: Apache-2.0
#include "agent/retirement_sources.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/detect/backend_choice.h"
#include "agent/detect/cni_configs.h"
#include "agent/detect/routing.h"

namespace kipt::agent {
namespace {

// While somebody else writes.
constexpr int kAttempts = 10;

void LookAtOtherMode(netlink::BackendKind kind, const ModeSources& sources,
                     DependentsCollector& collector) {
  absl::Status status = CheckModeIsThere(kind, netlink::kFamilies, sources);
  if (absl::IsUnavailable(status) || absl::IsFailedPrecondition(status)) return;
  if (status.ok()) {
    BackendOrError backend = OpenMode(kind, sources);
    status = backend.status();
    // A rule that is seen twice, or is gone by the second time, adds no claim that matters.
    for (int attempt = 0; backend.ok() && attempt < kAttempts; ++attempt) {
      status = (*backend)->TakeSurvey(collector.OtherMode()).status();
      if (!absl::IsAborted(status)) break;
    }
  }
  if (status.ok() || HoldsNothing(kind, status)) return;
  collector.OtherModeUnreadable(absl::StrCat("rules of iptables ", netlink::BackendKindName(kind),
                                             ", which cannot be read: ", status.message()));
}

}  // namespace

CniConfigs ReadCniConfigsFor(const std::vector<std::string>& directories,
                             const ModeSources& sources) {
  return directories.empty() ? ReadNodeCniConfigs(sources.host_root) : ReadCniConfigs(directories);
}

std::vector<std::string> RouteLocalnetOrNone() {
  return ReadRouteLocalnet().value_or(std::vector<std::string>());
}

RetirementSources MakeRetirementSources(netlink::BackendKind kind,
                                        const std::vector<std::string>& cni_conf_dirs,
                                        const ModeSources& sources) {
  const netlink::BackendKind other = OtherThan(kind);
  return {.cni = [&sources, cni_conf_dirs] { return ReadCniConfigsFor(cni_conf_dirs, sources); },
          .route_localnet = RouteLocalnetOrNone,
          .other_mode =
              [&sources, other](DependentsCollector& collector) {
                LookAtOtherMode(other, sources, collector);
              }};
}

std::optional<RetiredMode> RetireOtherMode(netlink::BackendKind managed,
                                           absl::Span<const netlink::Family> families,
                                           const std::vector<std::string>& cni_conf_dirs,
                                           const ModeSources& sources, bool martians_dropped,
                                           bool apply) {
  const netlink::BackendKind kind = OtherThan(managed);
  RetiredMode other = {.iptables_mode = std::string(netlink::BackendKindName(kind)), .report = {}};
  const absl::Status there = CheckModeIsThere(kind, families, sources);
  if (absl::IsUnavailable(there) || absl::IsFailedPrecondition(there)) return std::nullopt;
  BackendOrError backend = there.ok() ? OpenMode(kind, sources) : BackendOrError(there);
  if (HoldsNothing(kind, backend.status())) return std::nullopt;
  if (!backend.ok()) {
    other.report.status = backend.status();
    return other;
  }
  const Ruleset nothing = DesiredRuleset(Mode::kOff, families, MarkBits{});
  RetirementSources dependents = MakeRetirementSources(kind, cni_conf_dirs, sources);
  if (martians_dropped) dependents.route_localnet = [] { return std::vector<std::string>(); };
  other.report =
      Reconciler(backend->get(), SteadyClock())
          .Retire(nothing, dependents, {.canaries = true, .when_off = true, .hints = true}, apply);
  return other;
}

}  // namespace kipt::agent
