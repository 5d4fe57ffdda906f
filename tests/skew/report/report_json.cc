// SPDX-License-Identifier: Apache-2.0
//
// One list of fields for both directions: Fields(visit, value) names each, and visit is a Writer or
// a Reader. Reports include nlohmann/json here and in the page's data alone.
#include <concepts>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/skew/report/report_parts.h"

namespace kipt::skew {
namespace {

using Json = nlohmann::ordered_json;

template <typename T, typename Report>
concept Is = std::same_as<std::remove_const_t<T>, Report>;

using Receiver = std::pair<std::string, int>;

void Fields(auto& visit, Is<Receiver> auto& receiver) {
  visit("place", receiver.first);
  visit("times", receiver.second);
}

void Fields(auto& visit, Is<Probe> auto& probe) {
  visit("name", probe.name);
  visit("kind", probe.kind);
  visit("family", probe.family);
  visit("protocol", probe.protocol);
  visit("from", probe.from);
  visit("address", probe.address);
  visit("port", probe.port);
  visit("connections", probe.connections);
}

void Fields(auto& visit, Is<ProbeResult> auto& result) {
  visit("probe", result.probe);
  visit("outcome", result.outcome);
  visit("receivers", result.receivers);
  visit("seenSource", result.seen_source);
  visit("droppedBy", result.dropped_by);
  visit("sent", result.sent);
  visit("received", result.received);
  visit("detail", result.detail);
}

void Fields(auto& visit, Is<Check> auto& check) {
  visit("probe", check.probe);
  visit("result", check.result);
  visit("sound", check.sound);
  visit("expected", check.expected);
  visit("because", check.because);
  visit("complaint", check.complaint);
}

void Fields(auto& visit, Is<StreamCount> auto& count) {
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

void Fields(auto& visit, Is<StreamCheck> auto& stream) {
  visit("count", stream.count);
  visit("afterwards", stream.afterwards);
  visit("sound", stream.sound);
  visit("rule", stream.rule);
  visit("bad", stream.bad);
  visit("allowed", stream.allowed);
  visit("because", stream.because);
  visit("whileProxyAway", stream.while_proxy_away);
}

void Fields(auto& visit, Is<StepReport> auto& step) {
  visit("name", step.name);
  visit("done", step.done);
  visit("error", step.error);
  visit("errorExpected", step.error_expected);
  visit("errorBecause", step.error_because);
  visit("checks", step.checks);
  visit("streams", step.streams);
  visit("rules", step.rules);
}

void Fields(auto& visit, Is<CellReport> auto& cell) {
  visit("id", cell.id);
  visit("path", cell.path);
  visit("kubelet", cell.kubelet);
  visit("proxy", cell.proxy);
  visit("iptablesMode", cell.mode);
  visit("actor", cell.actor);
  visit("side", cell.side);
  visit("allowed", cell.allowed);
  visit("standsFor", cell.stands_for);
  visit("about", cell.about);
  visit("steps", cell.steps);
  visit("problem", cell.problem);
  visit("seconds", cell.seconds);
}

void Fields(auto& visit, Is<Compared> auto& compared) {
  visit("cells", compared.cells);
  visit("checks", compared.checks);
  visit("streams", compared.streams);
}

// ---- writing ----

template <typename T>
Json JsonOf(const T& value);
template <typename T>
Json JsonOf(const std::vector<T>& values);

class Writer {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    json_[name] = JsonOf(value);
  }
  Json Take() && { return std::move(json_); }

 private:
  Json json_ = Json::object();
};

template <typename T>
Json JsonOf(const T& value) {
  if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) {
    return value;
  } else if constexpr (std::is_enum_v<T>) {
    return WireName(value);
  } else {
    Writer writer;
    Fields(writer, value);
    return std::move(writer).Take();
  }
}

template <typename T>
Json JsonOf(const std::vector<T>& values) {
  Json json = Json::array();
  for (const T& value : values) json.push_back(JsonOf(value));
  return json;
}

// Bytes that are not UTF-8 become U+FFFD: what programs print need not be text.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// ---- reading ----

// Only what Writer has written is read. Throws where a field is missing or is not what it should
// be.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    Read(json_.at(name), value);
  }

 private:
  template <typename T>
  static void Read(const Json& json, T& value) {
    if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) {
      json.get_to(value);
    } else if constexpr (std::is_enum_v<T>) {
      for (size_t i = 0; i < CountOf(T{}); ++i) {
        value = static_cast<T>(i);
        if (json == WireName(value)) return;
      }
      throw std::invalid_argument(absl::StrCat("nothing is called ", json.dump()));
    } else {
      Reader reader(json);
      Fields(reader, value);
    }
  }

  template <typename T>
  static void Read(const Json& json, std::vector<T>& values) {
    for (const Json& item : json) Read(item, values.emplace_back());
  }

  const Json& json_;
};

Json TallyJson(const MatrixReport& report) {
  const auto [sound, known, unexpected, broken] = TallyOf(report);
  return {
      {"sound", sound}, {"knownFailure", known}, {"unexpected", unexpected}, {"broken", broken}};
}

}  // namespace

std::string CellJson(const CellReport& cell) { return Dump(JsonOf(cell)); }

absl::StatusOr<CellReport> ParseCellReport(const std::string& json) {
  try {
    const Json parsed = Json::parse(json);
    CellReport cell;
    Reader reader(parsed);
    Fields(reader, cell);
    return cell;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("cell report: ", error.what()));
  }
}

// A line for each cell, written one after the other: of a full matrix the whole tree would be some
// gigabytes.
std::string MatrixJson(const MatrixReport& report) {
  const Json head = {{"kernel", report.kernel},
                     {"iptables", report.iptables},
                     {"a", {{"name", report.a.name}, {"what", report.a.what}}},
                     {"b", {{"name", report.b.name}, {"what", report.b.what}}},
                     {"seconds", report.seconds},
                     {"problems", report.problems},
                     {"compared", JsonOf(report.compared)},
                     {"tally", TallyJson(report)},
                     {"allAsExpected", AllAsExpected(report)}};
  std::string text = Dump(head);
  text.pop_back();
  text += ",\"cells\":[";
  const char* separator = "\n";
  for (const CellReport& cell : report.cells) {
    Json json = JsonOf(cell);
    json["verdict"] = NameOf(VerdictOf(cell));
    absl::StrAppend(&text, separator, Dump(json));
    separator = ",\n";
  }
  text += "\n]}\n";
  return text;
}

}  // namespace kipt::skew
