// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/audit/audit.h"
#include "agent/detect/routing.h"
#include "agent/process/network_namespaces.h"

namespace kipt::agent {
namespace {

using netlink::Family;
using netlink::Survey;

// Other programs may change the rules meanwhile.
constexpr int kMostAttempts = 5;

void AddProblem(NodeView& view, absl::string_view what, const absl::Status& status) {
  view.problems.push_back(absl::StrCat(what, ": ", status.message()));
}

absl::StatusOr<Survey> TakeSurvey(const BackendOrError& backend) {
  if (!backend.ok()) return backend.status();
  absl::StatusOr<Survey> survey = (*backend)->TakeSurvey({});
  for (int attempt = 1; absl::IsAborted(survey.status()) && attempt < kMostAttempts; ++attempt) {
    survey = (*backend)->TakeSurvey({});
  }
  return survey;
}

void AddSurvey(NodeView& view, absl::string_view what, absl::StatusOr<Survey> survey) {
  if (!survey.ok()) return AddProblem(view, what, survey.status());
  if (!survey->tables.empty()) view.surveys.push_back(*std::move(survey));
}

void SurveyNft(const ModeSources& sources, NodeView& view) {
  const absl::Status there = CheckNftIsThere(sources);
  // A kernel without nf_tables, or one that has not loaded it, has no tables.
  if (absl::IsUnavailable(there) || absl::IsFailedPrecondition(there)) return;
  absl::StatusOr<Survey> survey = there.ok() ? TakeSurvey(sources.open_nft()) : there;
  // The kernel may report that only when it is asked.
  if (!absl::IsUnavailable(survey.status())) AddSurvey(view, "nft tables", std::move(survey));
}

void SurveyLegacy(const ModeSources& sources, NodeView& view) {
  bool has_tables = false;
  for (const Family family : netlink::kFamilies) {
    const auto names = IptablesLegacyTableNames(family, sources);
    has_tables = has_tables || (names.ok() && !names->empty());
    if (!names.ok() && !absl::IsUnavailable(names.status())) {
      AddProblem(view, absl::StrCat("legacy tables of ", netlink::FamilyName(family)),
                 names.status());
    }
  }
  if (has_tables) AddSurvey(view, "legacy tables", TakeSurvey(sources.open_legacy()));
}

NodeView Gather(const ModeSources& sources) {
  NodeView view;
  SurveyNft(sources, view);
  SurveyLegacy(sources, view);
  absl::StatusOr<std::vector<FwmarkRule>> rules = ReadFwmarkRules();
  if (!rules.ok()) AddProblem(view, "ip rule", rules.status());
  if (rules.ok()) view.ip_rules = *std::move(rules);
  absl::StatusOr<std::vector<std::string>> exposed = ReadRouteLocalnet();
  if (exposed.ok()) {
    view.route_localnet = *std::move(exposed);
  } else if (!absl::IsNotFound(exposed.status())) {
    AddProblem(view, "route_localnet", exposed.status());
  }
  return view;
}

NodeView Visit(const NetworkNamespace& wanted, const ModeSources& sources) {
  NodeView view;
  const absl::StatusOr<VisitedNamespace> visited = VisitedNamespace::Open(wanted.path);
  absl::Status status = visited.status();
  // The path may be of a process that has ended, and another process may have its number now.
  if (visited.ok() && visited->inode() != wanted.inode) {
    status = absl::NotFoundError("it has ended since it was listed");
  }
  if (status.ok()) status = visited->Visit([&] { view = Gather(sources); });
  if (!status.ok()) AddProblem(view, "network namespace", status);
  view.name = wanted.name;
  return view;
}

}  // namespace

NodeView GatherNodeView(const ModeSources& sources, const CniConfigs& cni) {
  NodeView view = Gather(sources);
  view.cni = cni;
  return view;
}

std::vector<NodeView> GatherAllNamespaces(const ModeSources& sources, const CniConfigs& cni) {
  const NetworkNamespaces namespaces = ListNetworkNamespaces();
  std::vector<NodeView> views = {GatherNodeView(sources, cni)};
  for (const std::string& problem : namespaces.problems) {
    views.front().problems.push_back(
        absl::StrCat("there may be more network namespaces: ", problem));
  }
  for (const NetworkNamespace& each : namespaces.found) {
    if (!each.own) views.push_back(Visit(each, sources));
  }
  return views;
}

}  // namespace kipt::agent
