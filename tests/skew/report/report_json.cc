// SPDX-License-Identifier: Apache-2.0
//
// One list of fields for both directions: Fields(visit, value) names each, and visit writes it or
// reads it. Reports include nlohmann/json here and in the page's data alone.
#include <concepts>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/skew/report/report_parts.h"

namespace kipt::skew {
namespace {

using Json = nlohmann::ordered_json;

template <typename T, typename Report>
concept Is = std::same_as<std::remove_const_t<T>, Report>;

using Receiver = std::pair<std::string, int>;

void Fields(const auto& visit, Is<Receiver> auto& receiver) {
  visit("place", receiver.first);
  visit("times", receiver.second);
}

void Fields(const auto& visit, Is<Probe> auto& probe) {
  visit("name", probe.name);
  visit("kind", probe.kind);
  visit("family", probe.family);
  visit("protocol", probe.protocol);
  visit("from", probe.from);
  visit("address", probe.address);
  visit("port", probe.port);
  visit("connections", probe.connections);
}

void Fields(const auto& visit, Is<ProbeResult> auto& result) {
  visit("probe", result.probe);
  visit("outcome", result.outcome);
  visit("receivers", result.receivers);
  visit("seenSource", result.seen_source);
  visit("droppedBy", result.dropped_by);
  visit("sent", result.sent);
  visit("received", result.received);
  visit("detail", result.detail);
}

void Fields(const auto& visit, Is<Check> auto& check) {
  visit("probe", check.probe);
  visit("result", check.result);
  visit("sound", check.sound);
  visit("expected", check.expected);
  visit("because", check.because);
  visit("complaint", check.complaint);
}

void Fields(const auto& visit, Is<StreamCount> auto& count) {
  visit("probe", count.probe);
  visit("sent", count.sent);
  visit("served", count.served);
  visit("servedMasqueraded", count.served_masqueraded);
  visit("reachedHost", count.reached_host);
  visit("forwarded", count.forwarded);
  visit("other", count.other);
  visit("longestGap", count.longest_gap);
  visit("lateMilliseconds", count.late_milliseconds);
  visit("lateInAllMilliseconds", count.late_in_all_milliseconds);
}

void Fields(const auto& visit, Is<StreamCheck> auto& stream) {
  visit("count", stream.count);
  visit("afterwards", stream.afterwards);
  visit("sound", stream.sound);
  visit("rule", stream.rule);
  visit("bad", stream.bad);
  visit("allowed", stream.allowed);
  visit("because", stream.because);
  visit("whileProxyAway", stream.while_proxy_away);
}

void Fields(const auto& visit, Is<StepReport> auto& step) {
  visit("name", step.name);
  visit("done", step.done);
  visit("error", step.error);
  visit("errorExpected", step.error_expected);
  visit("errorBecause", step.error_because);
  visit("checks", step.checks);
  visit("streams", step.streams);
  visit("rules", step.rules);
}

void Fields(const auto& visit, Is<CellReport> auto& cell) {
  visit("id", cell.id);
  visit("path", cell.path);
  visit("kubelet", cell.kubelet);
  visit("proxy", cell.proxy);
  visit("iptablesMode", cell.mode);
  visit("actor", cell.actor);
  visit("side", cell.side);
  visit("allowed", cell.allowed);
  visit("about", cell.about);
  visit("steps", cell.steps);
  visit("problem", cell.problem);
  visit("seconds", cell.seconds);
}

}  // namespace

// What has such a list, and the enumerations.
template <typename T>
concept Reported = std::is_enum_v<T> || requires(T& value) {
  Fields(0, value);
};

}  // namespace kipt::skew

// Reading throws where a field is missing or is not what it should be.
template <kipt::skew::Reported T>
struct nlohmann::adl_serializer<T> {
  static void to_json(auto& json, const T& value) {
    if constexpr (std::is_enum_v<T>) {
      json = kipt::skew::WireName(value);
    } else {
      const auto visit = [&json](const char* name, const auto& field) { json[name] = field; };
      kipt::skew::Fields(visit, value);
    }
  }
  static void from_json(const auto& json, T& value) {
    if constexpr (std::is_enum_v<T>) {
      for (size_t i = 0; i < kipt::skew::CountOf(T{}); ++i) {
        value = static_cast<T>(i);
        if (json == kipt::skew::WireName(value)) return;
      }
      throw std::invalid_argument(absl::StrCat("nothing is called ", json.dump()));
    } else {
      const auto visit = [&json](const char* name, auto& field) { json.at(name).get_to(field); };
      kipt::skew::Fields(visit, value);
    }
  }
};

namespace kipt::skew {
namespace {

// Bytes that are not UTF-8 become U+FFFD: what programs print need not be text.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json TallyJson(const MatrixReport& report) {
  const auto [sound, known, unexpected, broken] = TallyOf(report);
  return {
      {"sound", sound}, {"knownFailure", known}, {"unexpected", unexpected}, {"broken", broken}};
}

}  // namespace

std::string CellJson(const CellReport& cell) { return Dump(Json(cell)); }

absl::StatusOr<CellReport> ParseCellReport(const std::string& json) {
  try {
    return Json::parse(json).get<CellReport>();
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("cell report: ", error.what()));
  }
}

// A line for each cell, written one after the other: of a full matrix the whole tree would be some
// gigabytes.
std::string MatrixJson(const MatrixReport& report) {
  const Compared& compared = report.compared;
  const Json head = {
      {"kernel", report.kernel},
      {"iptables", report.iptables},
      {"a", {{"name", report.a.name}, {"what", report.a.what}}},
      {"b", {{"name", report.b.name}, {"what", report.b.what}}},
      {"seconds", report.seconds},
      {"problems", report.problems},
      {"compared",
       {{"cells", compared.cells}, {"checks", compared.checks}, {"streams", compared.streams}}},
      {"tally", TallyJson(report)},
      {"allAsExpected", AllAsExpected(report)}};
  std::string text = Dump(head);
  text.pop_back();
  text += ",\"cells\":[";
  const char* separator = "\n";
  for (const CellReport& cell : report.cells) {
    Json json = cell;
    json["verdict"] = NameOf(VerdictOf(cell));
    absl::StrAppend(&text, separator, Dump(json));
    separator = ",\n";
  }
  text += "\n]}\n";
  return text;
}

}  // namespace kipt::skew
