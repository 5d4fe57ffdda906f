// SPDX-License-Identifier: Apache-2.0
//
// Incidents as records of a file that outlives the daemon: how they are written, and which of them
// are of the reader's boot and network namespace.
#ifndef KIPT_AGENT_REPORT_INCIDENT_RECORDS_H_
#define KIPT_AGENT_REPORT_INCIDENT_RECORDS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "agent/loop/incident.h"
#include "agent/process/origin.h"

namespace kipt::agent {

// An incident as one line of JSON, of at most `most_bytes`: without the writers' arguments, and
// with as much of the damage as fits. `origin`: nothing where it is unknown.
std::string IncidentRecord(absl::Time time, const Incident& incident,
                           const std::optional<Origin>& origin, size_t most_bytes);

struct IncidentRecords {
  // ReadRecords, of IncidentRecord. What is no incident is ignored.
  std::vector<std::string> records = {};
  // The reader's. An incident is current if its origin is the same; if this is unknown, none is.
  std::optional<Origin> here = {};
};

// The current ones for people, without the lines' ends.
std::vector<std::string> CurrentIncidentLines(const IncidentRecords& incidents);
// The current ones, and how many others there are; or with `all` every one, the others marked.
std::string IncidentsText(const IncidentRecords& incidents, bool all);
std::string IncidentsJson(const IncidentRecords& incidents, bool all);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_REPORT_INCIDENT_RECORDS_H_
