// SPDX-License-Identifier: Apache-2.0
#include "agent/report/incident_records.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/report/json_parts.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

struct Parsed {
  Json json;
  std::optional<Origin> origin;
  bool current = false;
};

std::optional<uint64_t> Number(const Json& json, const char* name) {
  if (!json.contains(name) || !json[name].is_number_unsigned()) return std::nullopt;
  return json[name].get<uint64_t>();
}

bool IsText(const Json& json, const char* name) {
  return json.contains(name) && json[name].is_string();
}

// Nothing: it is unknown, as in records of the format without it.
std::optional<Origin> OriginOf(const Json& json) {
  if (!IsText(json, "bootID") || !json.contains("networkNamespace")) return std::nullopt;
  const Json& netns = json["networkNamespace"];
  const std::optional<uint64_t> device = Number(netns, "device");
  const std::optional<uint64_t> inode = Number(netns, "inode");
  if (!device || !inode) return std::nullopt;
  return Origin{
      .boot_id = json["bootID"],
      .network_namespace = {.device = *device, .inode = *inode, .cookie = Number(netns, "cookie")}};
}

void PutOrigin(const std::optional<Origin>& origin, Json& json) {
  json["bootID"] = nullptr;
  json["networkNamespace"] = nullptr;
  if (!origin) return;
  const NetworkNamespaceId& netns = origin->network_namespace;
  json["bootID"] = origin->boot_id;
  json["networkNamespace"] = {
      {"device", netns.device}, {"inode", netns.inode}, {"cookie", netns.cookie}};
}

// Those of our own spelling.
std::vector<Parsed> ParseAll(const IncidentRecords& incidents) {
  std::vector<Parsed> all;
  for (const std::string& record : incidents.records) {
    Json json = Json::parse(record, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !IsText(json, "time") || !IsText(json, "text")) continue;
    std::optional<Origin> origin = OriginOf(json);
    PutOrigin(origin, json);
    const bool current = origin && origin == incidents.here;
    json["current"] = current;
    all.push_back({.json = std::move(json), .origin = std::move(origin), .current = current});
  }
  return all;
}

std::string LineOf(const Parsed& incident, absl::string_view mark = "") {
  return absl::StrCat(incident.json["time"].get<std::string>(), " ", mark,
                      incident.json["text"].get<std::string>());
}

// Why an incident is not current.
std::string MarkOf(const std::optional<Origin>& origin, const std::optional<Origin>& here) {
  if (!origin) return "(unknown boot and network namespace) ";
  if (!here) return "(boot and network namespace not compared) ";
  if (origin->boot_id != here->boot_id) return "(an earlier boot) ";
  const NetworkNamespaceId& netns = origin->network_namespace;
  const NetworkNamespaceId& own = here->network_namespace;
  const bool reused = netns.device == own.device && netns.inode == own.inode;
  return absl::StrCat("(network namespace ", netns.inode, reused ? ", which has ended" : "", ") ");
}

Json ListOf(const std::vector<Parsed>& incidents, bool all) {
  Json list = Json::array();
  for (const Parsed& incident : incidents) {
    if (all || incident.current) list.push_back(incident.json);
  }
  return list;
}

size_t CountOthers(const std::vector<Parsed>& incidents) {
  size_t others = 0;
  for (const Parsed& incident : incidents) others += incident.current ? 0 : 1;
  return others;
}

}  // namespace

std::string IncidentRecord(absl::Time time, const Incident& incident,
                           const std::optional<Origin>& origin, size_t most_bytes) {
  return FittingLine(most_bytes, [&](size_t most) {
    Json json = IncidentJson(time, incident, most);
    PutOrigin(origin, json);
    return json;
  });
}

std::vector<std::string> CurrentIncidentLines(const IncidentRecords& incidents) {
  std::vector<std::string> lines;
  for (const Parsed& incident : ParseAll(incidents)) {
    if (incident.current) lines.push_back(LineOf(incident));
  }
  return lines;
}

std::string IncidentsText(const IncidentRecords& incidents, bool all) {
  const std::vector<Parsed> parsed = ParseAll(incidents);
  std::string text;
  for (const Parsed& incident : parsed) {
    if (!all && !incident.current) continue;
    AppendLine(text,
               LineOf(incident, incident.current ? "" : MarkOf(incident.origin, incidents.here)));
  }
  const size_t others = CountOthers(parsed);
  if (all || others == 0) return text;
  return absl::StrCat(text, others, others == 1 ? " incident" : " incidents",
                      " of other boots or network namespaces: --all shows ",
                      others == 1 ? "it" : "them", "\n");
}

std::string IncidentsJson(const IncidentRecords& incidents, bool all) {
  const std::vector<Parsed> parsed = ParseAll(incidents);
  return Print({{"incidents", ListOf(parsed, all)}, {"otherCount", CountOthers(parsed)}});
}

Json CurrentIncidentsJson(const IncidentRecords& incidents) {
  return ListOf(ParseAll(incidents), /*all=*/false);
}

}  // namespace kipt::agent
