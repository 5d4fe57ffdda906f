// SPDX-License-Identifier: Apache-2.0
//
// Reports as JSON.
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "agent/audit/json.h"
#include "agent/config/config.h"
#include "agent/config/settings.h"
#include "agent/policy/diff.h"
#include "agent/report/json_parts.h"
#include "agent/report/report.h"

namespace kipt::agent {

Json AboutChain(const netlink::ChainId& chain, const Json& rest) {
  Json json = {{"family", netlink::FamilyName(chain.family)},
               {"table", netlink::TableName(chain.table)},
               {"chain", chain.name}};
  json.update(rest);
  return json;
}

namespace {

Json FamiliesJson(const std::vector<netlink::Family>& families) {
  return List(families, netlink::FamilyName);
}

Json SubjectJson(const Subject& subject, uint32_t generation) {
  Json json = {{"mode", ModeName(subject.input.mode)},
               {"emulatedVersion", featuregates::ToString(subject.emulated_version)},
               {"iptablesMode", subject.iptables_mode},
               {"ipFamilies", FamiliesJson(subject.input.families)}};
  if (subject.input.mode == Mode::kLegacy) {
    json["iptablesMasqueradeBit"] = subject.input.bits.masquerade;
    json["iptablesDropBit"] = subject.input.bits.drop;
  }
  if (subject.input.labels) {
    json["iptablesMasqueradeLabel"] = subject.input.labels->masquerade;
    json["iptablesDropLabel"] = subject.input.labels->drop;
  }
  json["generation"] = generation;
  return json;
}

// In the order of netlink::Operation.
constexpr absl::string_view kOperationNames[] = {"putNativeTable",   "createChain", "addRule",
                                                 "deleteRule",       "deleteChain", "wakeTable",
                                                 "deleteNativeTable"};
static_assert(std::size(kOperationNames) == std::variant_size_v<netlink::Operation>);

Json ChangesJson(const std::vector<Change>& changes) {
  return List(WithoutNative(changes), [](const Change& change) {
    return AboutChain(netlink::ChainOf(change.operation),
                      {{"operation", kOperationNames[change.operation.index()]},
                       {"text", netlink::ToString(change.operation)},
                       {"reason", change.reason}});
  });
}

}  // namespace

Json ExistingJson(const std::vector<ExistingItem>& items) {
  return List(WithoutNative(items), [](const ExistingItem& one) {
    return AboutChain(one.chain, {{"text", one.text}, {"reason", one.reason}});
  });
}

Json FindingsJson(const std::vector<Finding>& findings) {
  return List(findings, [](const Finding& finding) {
    return AboutChain(finding.chain, {{"condition", ConditionName(finding.condition)},
                                      {"severity", SeverityName(SeverityOf(finding.condition))},
                                      {"repaired", finding.repaired},
                                      {"message", finding.message}});
  });
}

namespace {

template <typename Operation>
bool Holds(const std::vector<Change>& changes) {
  return absl::c_any_of(changes, [](const Change& change) {
    return std::holds_alternative<Operation>(change.operation);
  });
}

Json NativeJson(const Plan& plan) {
  std::string state = "absent";
  std::string reason;
  const auto note = [&](const auto& items, const char* as) {
    for (const auto& item : items) {
      if (!IsNative(item)) continue;
      state = as;
      reason = item.reason;
    }
  };
  note(plan.diff.in_place, "inPlace");
  note(plan.diff.stale, "stale");
  note(plan.diff.changes, Holds<netlink::PutNativeTable>(plan.diff.changes) ? "put" : "remove");
  return {{"state", state}, {"reason", reason}, {"packetsDropped", plan.martians.dropped_natively}};
}

}  // namespace

Json KeptJson(const Claimed& kept) {
  const auto claim_json = [](const Claim& claim) {
    return Json{{"kind", ClaimKindName(claim.kind)}, {"text", claim.text}};
  };
  return AboutChain(kept.item.chain, {{"text", kept.item.text},
                                      {"claims", List(kept.claims, claim_json)},
                                      {"ofKubeProxy", kept.of_kube_proxy}});
}

Json MartiansJson(bool rule_exists, uint64_t dropped, const std::string& elsewhere,
                  const RouteLocalnet& route_localnet) {
  return {{"ruleExists", rule_exists},
          {"packetsDropped", dropped},
          {"droppedElsewhere", elsewhere},
          {"routeLocalnet", route_localnet.interfaces},
          {"routeLocalnetUnread", route_localnet.unread},
          {"exposed", !rule_exists && elsewhere.empty() && !route_localnet.empty()}};
}

namespace {

Json RetirementJson(const Retirement& retirement) {
  return {{"changes", ChangesJson(retirement.changes)},
          {"removesNativeTable", Holds<netlink::DeleteNativeTable>(retirement.changes)},
          {"unsettled", FamiliesJson(retirement.unsettled)},
          {"kept", List(retirement.kept, KeptJson)}};
}

Json RetiredModesJson(const std::vector<RetireReport>& modes) {
  return List(modes, [](const RetireReport& mode) {
    Json item = {{"iptablesMode", mode.iptables_mode}, {"generation", mode.generation}};
    item.update(RetirementJson(mode.plan));
    item["applied"] = mode.applied;
    item["error"] = mode.status.message();
    return item;
  });
}

void AddExisting(const Plan& plan, Json& json) {
  json["inPlace"] = ExistingJson(plan.diff.in_place);
  json["stale"] = ExistingJson(plan.diff.stale);
  json["ofKubeProxy"] = ExistingJson(plan.diff.of_kube_proxy);
  json["findings"] = FindingsJson(plan.diff.findings);
  json["nativeTable"] = NativeJson(plan);
}

void AddOtherMode(const Subject& subject, Json& json) {
  if (!subject.other_mode) return;
  json["otherMode"] = {{"iptablesMode", subject.other_mode->iptables_mode},
                       {"chains", List(subject.other_mode->chains,
                                       [](const auto& chain) { return AboutChain(chain); })},
                       {"problem", subject.other_mode->problem}};
}

}  // namespace

std::string CheckJson(const AgentState& state) {
  return Print({{"ready", IsReady(state)}, {"reason", StatusLine(state)}});
}

std::string PlanJson(const Subject& subject, const Plan& plan) {
  Json json = SubjectJson(subject, plan.generation);
  json["changes"] = ChangesJson(plan.diff.changes);
  AddExisting(plan, json);
  if (plan.retirement) json["retirement"] = RetirementJson(*plan.retirement);
  if (plan.other_retirement) json["otherRetirement"] = RetirementJson(*plan.other_retirement);
  AddOtherMode(subject, json);
  return Print(json);
}

std::string SyncJson(const Subject& subject, const SyncReport& report) {
  Json json = SubjectJson(subject, report.plan.generation);
  json["checks"] = report.checks;
  json["applied"] = ChangesJson(report.applied);
  json["nativeTablePut"] = Holds<netlink::PutNativeTable>(report.applied);
  json["nativeTableRemoved"] = Holds<netlink::DeleteNativeTable>(report.applied);
  if (!report.retired.empty()) json["retired"] = RetiredModesJson(report.retired);
  json["findings"] = FindingsJson(report.plan.diff.findings);
  json["families"] = List(report.families, [](const FamilyResult& result) {
    return Json{{"family", netlink::FamilyName(result.family)},
                {"ok", result.status.ok()},
                {"error", result.status.message()}};
  });
  json["error"] = report.status.message();
  return Print(json);
}

std::string StatusJson(const Subject& subject, const Plan& plan) {
  Json json = SubjectJson(subject, plan.generation);
  json["changesNeeded"] = WithoutNative(plan.diff.changes).size();
  AddExisting(plan, json);
  json["martians"] = MartiansJson(plan.martians.in_place, plan.martians.dropped,
                                  plan.martians.elsewhere, subject.route_localnet);
  if (plan.retirement) json["retirement"] = RetirementJson(*plan.retirement);
  AddOtherMode(subject, json);
  json["incidents"] = CurrentIncidentsJson(subject.incidents);
  return Print(json);
}

std::string RetireJson(const std::vector<RetireReport>& modes, bool dry_run) {
  return Print({{"dryRun", dry_run}, {"modes", RetiredModesJson(modes)}});
}

std::string DetectJson(absl::Span<const FamilyMode> modes) {
  const auto evidence_json = [](const Evidence& one) {
    return Json{{"source", EvidenceSourceName(one.source)},
                {"says", IptablesModeName(one.says)},
                {"text", one.text}};
  };
  const auto mode_json = [&](const FamilyMode& mode) {
    return Json{{"family", netlink::FamilyName(mode.family)},
                {"iptablesMode", IptablesModeName(mode.mode)},
                {"evidence", List(mode.evidence, evidence_json)},
                {"findings", mode.findings},
                {"contradiction", mode.contradiction},
                {"problem", mode.mode == IptablesMode::kUnknown ? WhyUnknown(mode) : ""}};
  };
  return Print({{"families", List(modes, mode_json)}});
}

std::string CapabilitiesJson(const CapabilityReport& report) {
  const auto capability_json = [](const Capability& one) {
    return Json{{"feature", one.feature}, {"since", one.since},
                {"until", one.until},     {"why", one.why},
                {"needed", one.needed},   {"state", CapabilityStateName(one.state)},
                {"reason", one.reason}};
  };
  const auto software_json = [&](const SoftwareCapabilities& one) {
    return Json{{"name", one.software},
                {"state", CapabilityStateName(one.state)},
                {"findings", one.findings},
                {"capabilities", List(one.capabilities, capability_json)}};
  };
  return Print({{"kernel", report.kernel}, {"software", List(report.software, software_json)}});
}

std::string GatesJson(featuregates::Version emulated_version,
                      const featuregates::FeatureGates& gates) {
  const auto gate_json = [](const featuregates::GateState& gate) {
    return Json{{"name", gate.name},
                {"component", gate.component},
                {"stage", featuregates::StageName(gate.stage)},
                {"default", gate.enabled_by_default},
                {"value", gate.enabled},
                {"locked", gate.locked},
                {"set", gate.explicitly_set}};
  };
  return Print({{"emulatedVersion", featuregates::ToString(emulated_version)},
                {"gates", List(gates.States(), gate_json)}});
}

std::string ConfigJson(const Config& config) {
  Json gates = Json::object();
  for (const featuregates::GateState& gate : config.gates.States()) gates[gate.name] = gate.enabled;
  Json file = {{"apiVersion", "kube-iptables-agent/v1alpha1"},
               {"kind", "KubeIPTablesAgentConfiguration"}};
  for (const Setting& setting : kSettings) {
    if (setting.file == InFile::kNever) continue;
    const std::string text = setting.print(config);
    // The types of a file: text is in quotes there, booleans and numbers are not.
    const bool plain = setting.is_bool() || setting.type == "int32";
    file[std::string(setting.field)] = plain ? Json::parse(text) : Json(text);
  }
  file["featureGates"] = std::move(gates);  // in its place
  return Print({{"kube-iptables-agent", file}});
}

std::string VersionJson(const Build& build) {
  return Print({{"version", build.version},
                {"gitCommit", build.git_commit},
                {"gitTreeState", build.git_tree_state},
                {"platform", build.platform},
                {"compiler", build.compiler},
                {"buildType", build.build_type},
                {"hardening", build.hardening}});
}

}  // namespace kipt::agent
