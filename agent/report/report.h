// SPDX-License-Identifier: Apache-2.0
//
// The values of the data flow as text for people and as JSON for programs. The JSON's field names
// are a promise, the text is not.
#ifndef KIPT_AGENT_REPORT_REPORT_H_
#define KIPT_AGENT_REPORT_REPORT_H_

#include <cstddef>
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
#include "agent/report/daemon_state.h"
#include "agent/report/incident_records.h"
#include "featuregates/feature_gates.h"

namespace kipt::agent {

struct Config;

// What a report is about.
struct Subject {
  featuregates::Version emulated_version;
  std::string iptables_mode;
  PolicyInput input;
  std::optional<OtherMode> other_mode = {};  // where it was read; for plan and status
  RouteLocalnet route_localnet = {};         // ReadRouteLocalnet; for status
  IncidentRecords incidents = {};            // for status
  bool show_all = false;                     // for plan: what is unchanged, too
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

// The version of the documents below. Fields may be added to it; readers ignore what they do not
// know.
inline constexpr absl::string_view kReportApiVersion = "kube-iptables-agent/v1";

// What a running agent knows, in one line, without the writers' arguments. A copy of the lists in
// `state`, which are as long as what they report.
std::string DaemonStateJson(const DaemonState& state);
// A round that ended at `time`, likewise. Lists are cut until it fits into `most_bytes`.
std::string EventJson(absl::Time time, const Event& event, size_t most_bytes = size_t{64} << 10);

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

// What a program was built from, and how.
struct Build {
  std::string version;
  std::string git_commit;      // "unknown" without git
  std::string git_tree_state;  // "clean", "dirty" or "unknown"
  std::string platform;        // as in "linux/amd64"
  std::string compiler;
  std::string build_type;              // CMake's
  std::vector<std::string> hardening;  // the compiler's options for that
};

// The text form is the caller's.
std::string VersionJson(const Build& build);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_REPORT_REPORT_H_
