// SPDX-License-Identifier: Apache-2.0
//
// How audit and reports write JSON. Only sources that write it include this: nlohmann/json is slow
// to compile. Not installed.
#ifndef KIPT_AGENT_AUDIT_JSON_H_
#define KIPT_AGENT_AUDIT_JSON_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

// Abseil's string_view is not the standard one in Debian 12.
template <>
struct nlohmann::adl_serializer<absl::string_view> {
  static void to_json(nlohmann::ordered_json& json, absl::string_view text) {
    json = std::string(text);
  }
};
// Nothing is null.
template <typename T>
struct nlohmann::adl_serializer<std::optional<T>> {
  static void to_json(nlohmann::ordered_json& json, const std::optional<T>& value) {
    json = value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  }
};

namespace kipt::agent {

using Json = nlohmann::ordered_json;

struct AuditFinding;
// As audit prints it.
Json FindingJson(const AuditFinding& finding);

struct AuditReport;
Json ReportJson(const AuditReport& report);

// What `write` makes of each of `items`.
template <typename Items, typename Write>
Json List(const Items& items, Write write) {
  Json json = Json::array();
  for (const auto& item : items) json.emplace_back(write(item));
  return json;
}

// Names and comments are bytes of other people's choice: what is not UTF-8 becomes U+FFFD, and what
// is not ASCII is spelled \\uNNNN, because JSON is read on terminals, too.
inline std::string Print(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_JSON_H_
