// SPDX-License-Identifier: Apache-2.0
//
// The values of the data flow as text for people and as JSON for programs. The JSON's field names
// are a promise, the text is not.
#ifndef KIPT_AGENT_REPORT_REPORT_H_
#define KIPT_AGENT_REPORT_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/detect/capabilities.h"
#include "agent/detect/iptables_mode.h"
#include "agent/loop/events.h"
#include "agent/loop/reconciler.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "featuregates/feature_gates.h"

namespace kipt::agent {

struct Config;

// What a report is about.
struct Subject {
  featuregates::Version emulated_version;
  std::string iptables_mode;
  PolicyInput input;
  std::optional<OtherMode> other_mode = {};      // where it was read; for plan and status
  std::vector<std::string> route_localnet = {};  // ReadRouteLocalnet; for status
  std::vector<std::string> incidents = {};       // ReadRecords, of IncidentRecord; for status
};

std::string PlanText(const Subject& subject, const Plan& plan);
std::string PlanJson(const Subject& subject, const Plan& plan);

std::string SyncText(const Subject& subject, const SyncReport& report);
std::string SyncJson(const Subject& subject, const SyncReport& report);

// What is in place, what is not.
std::string StatusText(const Subject& subject, const Plan& plan);
std::string StatusJson(const Subject& subject, const Plan& plan);

// What `retire` found in one iptables mode, and did, or would do (`dry_run`).
std::string RetireText(const RetireReport& report, bool dry_run);
std::string RetireJson(const std::vector<RetireReport>& modes, bool dry_run);

// An incident as one line of JSON, of at most `most_bytes`: without the writers' arguments, and
// with as much of the damage as fits.
std::string IncidentRecord(absl::Time time, const Incident& incident, size_t most_bytes);
// For people, without the line's end. Empty: it is none.
std::string IncidentLine(const std::string& record);
std::string IncidentsText(const std::vector<std::string>& records);
std::string IncidentsJson(const std::vector<std::string>& records);

// Whether the node is ready, and if not, why.
std::string CheckJson(const AgentState& state);
// The same in one line of at most 80 bytes, as node-problem-detector takes it.
std::string NpdLine(absl::string_view text);

std::string GatesText(featuregates::Version emulated_version,
                      const featuregates::FeatureGates& gates);
std::string GatesJson(featuregates::Version emulated_version,
                      const featuregates::FeatureGates& gates);

// {"kube-iptables-agent": {...}}: the effective configuration, as a configuration file that would
// give it. Has no settings that are flags only (--host-root).
std::string ConfigJson(const Config& config);

// What the mode oracle found.
std::string DetectText(absl::Span<const FamilyMode> modes);
std::string DetectJson(absl::Span<const FamilyMode> modes);

// What the kernel can do.
std::string CapabilitiesText(const CapabilityReport& report);
std::string CapabilitiesJson(const CapabilityReport& report);

// {"version": ...}; the text form is the caller's.
std::string VersionJson(const std::string& version);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_REPORT_REPORT_H_
