// SPDX-License-Identifier: Apache-2.0
//
// File: agent/report/report.h
//
// The boxes of the data flow as text for people and as JSON for programs. Both say the same; the
// JSON's field names are a promise, the text is not.
#ifndef KIPT_AGENT_REPORT_REPORT_H_
#define KIPT_AGENT_REPORT_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "agent/detect/iptables_mode.h"
#include "agent/loop/reconciler.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "featuregates/feature_gates.h"
#include "featuregates/version.h"

namespace kipt::agent {

struct Config;

// What a report is about.
struct Subject {
  featuregates::Version emulated_version;
  // "nft" or "legacy": the Backend's kind.
  std::string iptables_mode;
  PolicyInput input;
  // Shown by plan and status where it was looked at.
  std::optional<OtherMode> other_mode = {};
  // ReadRouteLocalnet: shown by status.
  std::vector<std::string> route_localnet = {};
};

std::string PlanText(const Subject& subject, const Plan& plan);
std::string PlanJson(const Subject& subject, const Plan& plan);

std::string SyncText(const Subject& subject, const SyncReport& report);
std::string SyncJson(const Subject& subject, const SyncReport& report);

// Where everything stands, in place or not.
std::string StatusText(const Subject& subject, const Plan& plan);
std::string StatusJson(const Subject& subject, const Plan& plan);

// What `retire` found in one iptables mode, and did, or would do (`dry_run`).
std::string RetireText(const RetireReport& report, bool dry_run);

std::string RetireJson(const std::vector<RetireReport>& modes, bool dry_run);

std::string GatesText(featuregates::Version emulated_version,
                      const featuregates::FeatureGates& gates);
std::string GatesJson(featuregates::Version emulated_version,
                      const featuregates::FeatureGates& gates);

// {"kube-iptables-agent": {...}}: the effective configuration, spelled as a configuration file of
// our own kind that would give it. What flags alone can say (--host-root) is left out.
std::string ConfigJson(const Config& config);

// What the mode oracle found.
std::string DetectText(absl::Span<const FamilyMode> modes);
std::string DetectJson(absl::Span<const FamilyMode> modes);

// {"version": ...}; the text form is the caller's.
std::string VersionJson(const std::string& version);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_REPORT_REPORT_H_
