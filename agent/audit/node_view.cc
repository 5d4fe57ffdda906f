// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/node_view.h"

#include <array>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/audit_sieve.h"
#include "agent/audit/change_facts.h"
#include "agent/policy/martians.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"
#include "agent/process/network_namespaces.h"

namespace kipt::agent {
namespace {

using netlink::Survey;

constexpr std::array<absl::string_view, 4> kChangeNames = {
    "ownership-cleanup", "kube-proxy-nftables", "kube-proxy-ipvs-removal", "iptables-nft"};

absl::StatusOr<Survey> TakeAll(netlink::Backend& backend) { return backend.TakeSurvey({}); }

void SurveyModes(const ModeSources& sources, const TakeSurvey& take, NodeView& view) {
  const auto survey_of = [&](const BackendOrError& backend) -> absl::StatusOr<Survey> {
    if (!backend.ok()) return backend.status();
    absl::StatusOr<Survey> survey = TakeSettled([&] { return take(**backend); });
    view.torn |= absl::IsAborted(survey.status());
    return survey;
  };
  const auto add = [&](absl::string_view what, absl::StatusOr<Survey> survey) {
    if (!survey.ok()) return AddProblem(view, what, survey.status());
    if (!survey->tables.empty()) view.surveys.push_back(*std::move(survey));
  };
  const absl::Status nft = CheckNftIsThere(sources);
  std::vector<absl::Status> unknown;
  const bool legacy = HasIptablesLegacyTables(sources, unknown);
  for (const absl::Status& status : unknown) {
    AddProblem(view, "iptables-legacy tables", status);
  }
  // A kernel without nf_tables, or one that has not loaded it, has no tables.
  if (!absl::IsUnavailable(nft) && !absl::IsFailedPrecondition(nft)) {
    absl::StatusOr<Survey> survey = nft.ok() ? survey_of(sources.open_nft()) : nft;
    // The kernel may report that only when it is asked.
    if (!absl::IsUnavailable(survey.status())) add("nft tables", std::move(survey));
  }
  if (legacy) add("iptables-legacy tables", survey_of(sources.open_legacy()));
}

// As `status` judges, in either iptables mode.
bool AreMartiansDropped(const ModeSources& sources) {
  bool in_place = false;
  const auto read = [&](netlink::Backend& backend) {
    const absl::StatusOr<netlink::Snapshot> observed =
        backend.Read(ChainsToRead({netlink::Family::kIPv4}), &NativeMartians());
    in_place = observed.ok() && FindMartianProtection(*observed).in_place;
    return observed.status();
  };
  for (const auto kind : {netlink::BackendKind::kNft, netlink::BackendKind::kIptablesLegacy}) {
    VisitMode(kind, {netlink::Family::kIPv4}, sources, read).IgnoreError();
    if (in_place) return true;
  }
  return !ReadWhoDropsMartians(sources).empty();
}

NodeView Gather(const ModeSources& sources, const TakeSurvey& take = TakeAll) {
  NodeView view;
  SurveyModes(sources, take, view);
  absl::StatusOr<std::vector<FwmarkRule>> rules = ReadFwmarkRules();
  if (!rules.ok()) AddProblem(view, "ip rule", rules.status());
  if (rules.ok()) view.ip_rules = *std::move(rules);
  DeviceMarks devices = ReadDeviceMarks();
  view.device_marks = std::move(devices.found);
  absl::c_move(devices.problems, std::back_inserter(view.problems));
  view.route_localnet = ReadRouteLocalnet();
  if (!view.route_localnet.unread.empty()) {
    view.problems.push_back(absl::StrCat("route_localnet: ", view.route_localnet.unread));
  }
  if (!view.route_localnet.empty()) view.martians_dropped = AreMartiansDropped(sources);
  return view;
}

}  // namespace

void AddProblem(NodeView& view, absl::string_view what, const absl::Status& status) {
  view.problems.push_back(absl::StrCat(what, ": ", status.message()));
}

absl::string_view ChangeName(NodeChange change) {
  return kChangeNames.at(static_cast<size_t>(change));
}

std::optional<NodeChange> ChangeFromName(absl::string_view name) {
  const auto* const found = absl::c_find(kChangeNames, name);
  if (found == kChangeNames.end()) return std::nullopt;
  return static_cast<NodeChange>(found - kChangeNames.begin());
}

NodeView GatherRules(const ModeSources& sources, const TakeSurvey& take) {
  NodeView view;
  SurveyModes(sources, take, view);
  return view;
}

NodeView GatherNodeView(const ModeSources& sources, const CniConfigs& cni, NodeChange change) {
  NodeView view = Gather(sources);
  view.cni = cni;
  GatherChangeFacts(sources, {&change, 1}, view);
  return view;
}

NodeView SiftedNodeView(const ModeSources& sources, const CniConfigs& cni,
                        absl::Span<const NodeChange> changes, const SiftOptions& options) {
  std::map<std::string, LeftOut> left;
  NodeView view = Gather(sources, [&](netlink::Backend& backend) {
    AuditSieve sieve(options);
    absl::StatusOr<Survey> survey = backend.SiftSurvey(sieve);
    if (survey.ok()) left[survey->mode] = sieve.left_out();
    return survey;
  });
  view.left_out = std::move(left);
  for (const auto& [mode, left_out] : view.left_out) {
    if (left_out.too_many == 0) continue;
    view.problems.push_back(
        absl::StrCat(mode, " tables: ", left_out.too_many, " rules more than are kept in memory"));
  }
  view.cni = cni;
  if (!changes.empty()) GatherChangeFacts(sources, changes, view);
  return view;
}

std::vector<NodeView> GatherAllNamespaces(const ModeSources& sources, const CniConfigs& cni,
                                          NodeChange change) {
  const NetworkNamespaces namespaces = ListNetworkNamespaces();
  std::vector<NodeView> views = {GatherNodeView(sources, cni, change)};
  for (const std::string& problem : namespaces.problems) {
    views.front().problems.push_back(
        absl::StrCat("there may be more network namespaces: ", problem));
  }
  for (const NetworkNamespace& each : namespaces.found) {
    if (each.own) continue;
    NodeView& view = views.emplace_back();
    const absl::Status status = VisitListed(each, [&] { view = Gather(sources); });
    if (!status.ok()) AddProblem(view, "network namespace", status);
    view.name = each.name;
  }
  return views;
}

}  // namespace kipt::agent
