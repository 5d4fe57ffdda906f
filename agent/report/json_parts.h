// SPDX-License-Identifier: Apache-2.0
//
// What several reports have in common. As agent/audit/json.h: only for sources that write JSON.
#ifndef KIPT_AGENT_REPORT_JSON_PARTS_H_
#define KIPT_AGENT_REPORT_JSON_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "agent/audit/json.h"
#include "agent/loop/incident.h"
#include "agent/policy/diff.h"
#include "agent/policy/retirement.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// A chain, or with `rest` something about one.
Json AboutChain(const netlink::ChainId& chain, const Json& rest = Json::object());
Json ExistingJson(const std::vector<ExistingItem>& items);
Json FindingsJson(const std::vector<Finding>& findings);
Json KeptJson(const Claimed& kept);
Json MartiansJson(bool rule_exists, uint64_t dropped, const std::string& elsewhere,
                  const RouteLocalnet& route_localnet);
// Without the writers' arguments, and with at most `most` of each list.
Json IncidentJson(absl::Time time, const Incident& incident, size_t most);
struct IncidentRecords;
Json CurrentIncidentsJson(const IncidentRecords& incidents);

// One line, without its end. ASCII, as Print.
std::string Line(const Json& json);
// What `make` makes of at most `most` items of each list, in at most `most_bytes`, or with none.
std::string FittingLine(size_t most_bytes, absl::FunctionRef<Json(size_t most)> make);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_REPORT_JSON_PARTS_H_
