// SPDX-License-Identifier: Apache-2.0
//
// The only file that includes nlohmann/json, which is slow to compile.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>

#include "absl/strings/str_join.h"
#include "agent/config/config.h"
#include "agent/config/go_duration.h"
#include "agent/policy/native_martians.h"
#include "agent/report/report.h"
#include "agent/report/report_mode.h"

namespace kipt::agent {
namespace {

using Json = nlohmann::ordered_json;

// Abseil's string_view is not the standard one in Debian 12.
std::string Text(absl::string_view text) { return std::string(text); }

Json ChainJson(const netlink::ChainId& chain) {
  return {{"family", Text(netlink::FamilyName(chain.family))},
          {"table", Text(netlink::TableName(chain.table))},
          {"chain", chain.name}};
}

Json FamiliesJson(const std::vector<netlink::Family>& families) {
  Json json = Json::array();
  for (const netlink::Family family : families) json.push_back(Text(netlink::FamilyName(family)));
  return json;
}

Json SubjectJson(const Subject& subject, uint32_t generation) {
  Json json = {{"mode", Text(ModeName(subject.input.mode))},
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

absl::string_view OperationName(const netlink::Operation& operation) {
  struct Namer {
    absl::string_view operator()(const netlink::CreateChain&) { return "createChain"; }
    absl::string_view operator()(const netlink::AddRule&) { return "addRule"; }
    absl::string_view operator()(const netlink::DeleteRule&) { return "deleteRule"; }
    absl::string_view operator()(const netlink::DeleteChain&) { return "deleteChain"; }
    absl::string_view operator()(const netlink::WakeTable&) { return "wakeTable"; }
    absl::string_view operator()(const netlink::PutNativeTable&) { return "putNativeTable"; }
    absl::string_view operator()(const netlink::DeleteNativeTable&) { return "deleteNativeTable"; }
  };
  return std::visit(Namer{}, operation);
}

Json ChangesJson(const std::vector<Change>& changes) {
  Json json = Json::array();
  for (const Change& change : WithoutNative(changes)) {
    Json item = ChainJson(netlink::ChainOf(change.operation));
    item["operation"] = Text(OperationName(change.operation));
    item["text"] = netlink::ToString(change.operation);
    item["reason"] = change.reason;
    json.push_back(std::move(item));
  }
  return json;
}

Json StandingJson(const std::vector<Standing>& standing) {
  Json json = Json::array();
  for (const Standing& one : WithoutNative(standing)) {
    Json item = ChainJson(one.chain);
    item["text"] = one.text;
    item["reason"] = one.reason;
    json.push_back(std::move(item));
  }
  return json;
}

Json FindingsJson(const std::vector<Finding>& findings) {
  Json json = Json::array();
  for (const Finding& finding : findings) {
    Json item = ChainJson(finding.chain);
    item["condition"] = Text(ConditionName(finding.condition));
    item["severity"] = Text(SeverityName(SeverityOf(finding.condition)));
    item["mended"] = finding.mended;
    item["message"] = finding.message;
    json.push_back(std::move(item));
  }
  return json;
}

template <typename Operation>
bool Holds(const std::vector<Change>& changes) {
  return std::any_of(changes.begin(), changes.end(), [](const Change& change) {
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

Json RetirementJson(const Retirement& retirement) {
  Json kept = Json::array();
  for (const Claimed& one : retirement.kept) {
    Json item = ChainJson(one.standing.chain);
    item["text"] = one.standing.text;
    Json claims = Json::array();
    for (const Claim& claim : one.claims) {
      claims.push_back({{"kind", Text(ClaimKindName(claim.kind))}, {"text", claim.text}});
    }
    item["claims"] = std::move(claims);
    kept.push_back(std::move(item));
  }
  return {{"changes", ChangesJson(retirement.changes)},
          {"removesNativeTable", Holds<netlink::DeleteNativeTable>(retirement.changes)},
          {"unsettled", FamiliesJson(retirement.unsettled)},
          {"kept", std::move(kept)}};
}

Json RetiredModesJson(const std::vector<RetiredMode>& modes) {
  Json list = Json::array();
  for (const RetiredMode& mode : modes) {
    Json item = {{"iptablesMode", mode.iptables_mode}, {"generation", mode.report.generation}};
    item.update(RetirementJson(mode.report.plan));
    item["applied"] = mode.report.applied;
    item["error"] = Text(mode.report.status.message());
    list.push_back(std::move(item));
  }
  return list;
}

Json MartiansJson(const Subject& subject, const Plan& plan) {
  return {{"ruleStands", plan.martians.stands},
          {"packetsDropped", plan.martians.dropped},
          {"routeLocalnet", subject.route_localnet},
          {"exposed", !plan.martians.stands && !subject.route_localnet.empty()}};
}

void AddOtherMode(const Subject& subject, Json& json) {
  if (!subject.other_mode) return;
  Json chains = Json::array();
  for (const netlink::ChainId& chain : subject.other_mode->chains) {
    chains.push_back(ChainJson(chain));
  }
  json["otherMode"] = {{"iptablesMode", subject.other_mode->iptables_mode},
                       {"chains", std::move(chains)},
                       {"problem", subject.other_mode->problem}};
}

Json EvidenceJson(const std::vector<Evidence>& evidence) {
  Json json = Json::array();
  for (const Evidence& one : evidence) {
    json.push_back({{"source", Text(EvidenceSourceName(one.source))},
                    {"says", Text(IptablesModeName(one.says))},
                    {"text", one.text}});
  }
  return json;
}

// Comments in the kernel are bytes of other people's choice: what is not UTF-8 becomes U+FFFD, and
// what is not ASCII is spelled \\uNNNN, because JSON is read on terminals, too.
std::string Print(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string PlanJson(const Subject& subject, const Plan& plan) {
  Json json = SubjectJson(subject, plan.generation);
  json["changes"] = ChangesJson(plan.diff.changes);
  json["inPlace"] = StandingJson(plan.diff.in_place);
  json["stale"] = StandingJson(plan.diff.stale);
  json["findings"] = FindingsJson(plan.diff.findings);
  json["nativeTable"] = NativeJson(plan);
  if (plan.retirement) json["retirement"] = RetirementJson(*plan.retirement);
  if (plan.other_retirement) json["otherRetirement"] = RetirementJson(*plan.other_retirement);
  AddOtherMode(subject, json);
  return Print(json);
}

std::string SyncJson(const Subject& subject, const SyncReport& report) {
  Json json = SubjectJson(subject, report.plan.generation);
  json["looks"] = report.looks;
  json["applied"] = ChangesJson(report.applied);
  json["nativeTablePut"] = Holds<netlink::PutNativeTable>(report.applied);
  json["nativeTableRemoved"] = Holds<netlink::DeleteNativeTable>(report.applied);
  if (!report.retired.empty()) json["retired"] = RetiredModesJson(report.retired);
  json["findings"] = FindingsJson(report.plan.diff.findings);
  Json families = Json::array();
  for (const FamilyResult& result : report.families) {
    families.push_back({{"family", Text(netlink::FamilyName(result.family))},
                        {"ok", result.status.ok()},
                        {"error", Text(result.status.message())}});
  }
  json["families"] = std::move(families);
  json["error"] = Text(report.status.message());
  return Print(json);
}

std::string StatusJson(const Subject& subject, const Plan& plan) {
  Json json = SubjectJson(subject, plan.generation);
  json["changesNeeded"] = WithoutNative(plan.diff.changes).size();
  json["inPlace"] = StandingJson(plan.diff.in_place);
  json["stale"] = StandingJson(plan.diff.stale);
  json["findings"] = FindingsJson(plan.diff.findings);
  json["nativeTable"] = NativeJson(plan);
  json["martians"] = MartiansJson(subject, plan);
  if (plan.retirement) json["retirement"] = RetirementJson(*plan.retirement);
  AddOtherMode(subject, json);
  return Print(json);
}

std::string RetireJson(const std::vector<RetiredMode>& modes, bool dry_run) {
  return Print({{"dryRun", dry_run}, {"modes", RetiredModesJson(modes)}});
}

std::string DetectJson(absl::Span<const FamilyMode> modes) {
  Json families = Json::array();
  for (const FamilyMode& mode : modes) {
    families.push_back({{"family", Text(netlink::FamilyName(mode.family))},
                        {"iptablesMode", Text(IptablesModeName(mode.mode))},
                        {"evidence", EvidenceJson(mode.evidence)},
                        {"findings", mode.findings},
                        {"contradiction", mode.contradiction}});
  }
  return Print({{"families", std::move(families)}});
}

std::string GatesJson(featuregates::Version emulated_version,
                      const featuregates::FeatureGates& gates) {
  Json list = Json::array();
  for (const featuregates::GateState& gate : gates.States()) {
    list.push_back({{"name", gate.name},
                    {"component", gate.component},
                    {"stage", Text(featuregates::StageName(gate.stage))},
                    {"default", gate.enabled_by_default},
                    {"value", gate.enabled},
                    {"locked", gate.locked},
                    {"set", gate.explicitly_set}});
  }
  return Print({{"emulatedVersion", featuregates::ToString(emulated_version)}, {"gates", list}});
}

std::string ConfigJson(const Config& config) {
  Json gates = Json::object();
  for (const featuregates::GateState& gate : config.gates.States()) gates[gate.name] = gate.enabled;
  const Json file = {
      {"apiVersion", "kube-iptables-agent/v1alpha1"},
      {"kind", "KubeIPTablesAgentConfiguration"},
      {"emulatedVersion", featuregates::ToString(config.emulated_version)},
      {"featureGates", std::move(gates)},
      {"makeIPTablesUtilChains", config.make_iptables_util_chains},
      {"iptablesMasqueradeBit", config.bits.masquerade},
      {"iptablesDropBit", config.bits.drop},
      {"iptablesMasqueradeLabel", config.labels.masquerade},
      {"iptablesDropLabel", config.labels.drop},
      {"ipFamilies", config.families_by_kernel ? "auto" : FamiliesText(config.families)},
      {"iptablesMode",
       Text(config.iptables_mode ? IptablesModeName(*config.iptables_mode) : "auto")},
      {"iptablesSyncPeriod", FormatGoDuration(config.iptables_sync_period)},
      {"watch", Text(WatchModeName(config.watch))},
      {"observe", config.observe},
      {"healthzBindAddress", config.healthz_bind_address},
      {"metricsBindAddress", config.metrics_bind_address},
      {"staleChains", Text(StaleChainsName(config.stale_chains))},
      {"hintPolicy", Text(HintPolicyName(config.hint_policy))},
      {"cniConfDir", absl::StrJoin(config.cni_conf_dirs, ",")}};
  return Print({{"kube-iptables-agent", file}});
}

std::string VersionJson(const std::string& version) { return Print({{"version", version}}); }

}  // namespace kipt::agent
