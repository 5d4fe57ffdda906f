// SPDX-License-Identifier: Apache-2.0
#include "served_namespace.h"

#include <utility>

#include "absl/base/log_severity.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "host_log.h"

namespace node_agent {
namespace {

using ::kipt::agent::Event;
using ::kipt::agent::FamilyPhase;
using ::kipt::agent::FamilyState;
using ::kipt::agent::Incident;
using ::kipt::agent::NodeAgent;
using ::kipt::agent::NodeAgentOptions;
using ::kipt::agent::Writer;

std::string Describe(const Incident& incident) {
  const std::string writers =
      absl::StrJoin(incident.by.writers, " and ", [](std::string* out, const Writer& writer) {
        absl::StrAppend(out, kipt::agent::ToString(writer));
      });
  return absl::StrCat("incident: ", incident.damage.size(), " damaged by ",
                      writers.empty() ? "a process that was not seen" : writers, ", repaired in ",
                      absl::FormatDuration(incident.latency));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedNamespace>> ServedNamespace::Create(
    const Serving& serving, const NodeSettings& settings) {
  absl::StatusOr<NodeAgentOptions> options = OptionsFor(serving, settings);
  if (!options.ok()) return options.status();
  std::unique_ptr<ServedNamespace> served(new ServedNamespace(serving));
  absl::StatusOr<std::unique_ptr<NodeAgent>> agent = NodeAgent::Create(
      *std::move(options),
      {.round = [self = served.get()](const Event& round) { self->LogRound(round); },
       .notice = [about = serving.netns](absl::LogSeverity severity,
                                         absl::string_view text) { Log(severity, about, text); }});
  if (!agent.ok()) return agent.status();
  served->agent_ = *std::move(agent);
  return served;
}

void ServedNamespace::Apply(const NodeSettings& settings) {
  absl::StatusOr<NodeAgentOptions> options = OptionsFor(serving_, settings);
  const absl::Status status =
      options.ok() ? agent_->SetOptions(*std::move(options)) : options.status();
  if (!status.ok()) Log(absl::LogSeverity::kError, serving_.netns, status.message());
}

void ServedNamespace::LogRound(const Event& round) const {
  if (round.incident) {
    Log(absl::LogSeverity::kWarning, serving_.netns, Describe(*round.incident));
  }
  for (const FamilyState& family : round.changed_families) {
    Log(family.phase == FamilyPhase::kInPlace ? absl::LogSeverity::kInfo
                                              : absl::LogSeverity::kWarning,
        serving_.netns,
        absl::StrCat(serving_.iptables_mode, " ", kipt::netlink::FamilyName(family.family), " ",
                     kipt::agent::FamilyPhaseName(family.phase),
                     family.reason.empty() ? "" : absl::StrCat(": ", family.reason)));
  }
}

}  // namespace node_agent
