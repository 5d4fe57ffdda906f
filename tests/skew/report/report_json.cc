// SPDX-License-Identifier: Apache-2.0
//
// One list of fields for both directions: Fields(visit, value) names each, and visit is a Writer or
// a Reader. Reports include nlohmann/json here and in the page's data alone.
#include <concepts>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/skew/report/matrix_report.h"
#include "tests/skew/report/wire_names.h"

namespace kipt::skew {
namespace {

using Json = nlohmann::ordered_json;

template <typename T, typename Report>
concept Is = std::same_as<std::remove_const_t<T>, Report>;

using Receiver = std::pair<std::string, int>;

template <typename Visit>
void Fields(Visit& visit, Is<Receiver> auto& receiver) {
  visit("place", receiver.first);
  visit("times", receiver.second);
}

template <typename Visit>
void Fields(Visit& visit, Is<Probe> auto& probe) {
  visit("name", probe.name);
  visit("kind", probe.kind);
  visit("family", probe.family);
  visit("protocol", probe.protocol);
  visit("from", probe.from);
  visit("address", probe.address);
  visit("port", probe.port);
  visit("connections", probe.connections);
}

template <typename Visit>
void Fields(Visit& visit, Is<ProbeResult> auto& result) {
  visit("probe", result.probe);
  visit("outcome", result.outcome);
  visit("receivers", result.receivers);
  visit("seenSource", result.seen_source);
  visit("droppedBy", result.dropped_by);
  visit("sent", result.sent);
  visit("received", result.received);
  visit("detail", result.detail);
}

template <typename Visit>
void Fields(Visit& visit, Is<Check> auto& check) {
  visit("probe", check.probe);
  visit("result", check.result);
  visit("sound", check.sound);
  visit("expected", check.expected);
  visit("because", check.because);
  visit("complaint", check.complaint);
}

template <typename Visit>
void Fields(Visit& visit, Is<StreamCount> auto& count) {
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

template <typename Visit>
void Fields(Visit& visit, Is<StreamCheck> auto& stream) {
  visit("count", stream.count);
  visit("afterwards", stream.afterwards);
  visit("sound", stream.sound);
  visit("rule", stream.rule);
  visit("bad", stream.bad);
  visit("allowed", stream.allowed);
  visit("because", stream.because);
  visit("whileProxyAway", stream.while_proxy_away);
}

template <typename Visit>
void Fields(Visit& visit, Is<StepReport> auto& step) {
  visit("name", step.name);
  visit("done", step.done);
  visit("error", step.error);
  visit("errorExpected", step.error_expected);
  visit("errorBecause", step.error_because);
  visit("checks", step.checks);
  visit("streams", step.streams);
  visit("rules", step.rules);
}

template <typename Visit>
void Fields(Visit& visit, Is<CellReport> auto& cell) {
  visit("id", cell.id);
  visit("path", cell.path);
  visit("kubelet", cell.kubelet);
  visit("proxy", cell.proxy);
  visit("iptablesMode", cell.mode);
  visit("actor", cell.actor);
  visit("side", cell.side);
  visit("agentOnly", cell.agent_only);
  visit("allowed", cell.allowed);
  visit("standsFor", cell.stands_for);
  visit("about", cell.about);
  visit("steps", cell.steps);
  visit("problem", cell.problem);
  visit("seconds", cell.seconds);
}

template <typename Visit>
void Fields(Visit& visit, Is<LeftOut> auto& cell) {
  visit("id", cell.id);
  visit("path", cell.path);
  visit("why", cell.why);
}

template <typename Visit>
void Fields(Visit& visit, Is<Compared> auto& compared) {
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

// The first error counts; after it nothing more is read.
class Reader {
 public:
  Reader(const Json& json, std::string where, absl::Status& status)
      : json_(json), where_(std::move(where)), status_(status) {
    if (!json_.is_object()) Fail(where_, "is not an object");
  }

  template <typename T>
  void operator()(const char* name, T& value) {
    if (!status_.ok()) return;
    const auto found = json_.find(name);
    if (found == json_.end()) return Fail(where_, absl::StrCat("has no field \"", name, "\""));
    seen_.insert(name);
    Read(*found, where_.empty() ? name : absl::StrCat(where_, ".", name), value);
  }

  // After the last field.
  void RefuseOthers() {
    if (!status_.ok()) return;
    for (const auto& item : json_.items()) {
      if (!seen_.contains(item.key())) {
        return Fail(where_, absl::StrCat("has an unknown field \"", item.key(), "\""));
      }
    }
  }

 private:
  void Fail(const std::string& where, const std::string& what) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("cell report: ", where.empty() ? "it" : where, " ", what));
  }

  void Read(const Json& json, const std::string& where, std::string& value) {
    if (!json.is_string()) return Fail(where, "is not a string");
    value = json.get<std::string>();
  }

  void Read(const Json& json, const std::string& where, bool& value) {
    if (!json.is_boolean()) return Fail(where, "is neither true nor false");
    value = json.get<bool>();
  }

  void Read(const Json& json, const std::string& where, double& value) {
    if (!json.is_number()) return Fail(where, "is not a number");
    value = json.get<double>();
  }

  // Counts, none of which is negative.
  template <std::integral T>
  requires(!std::same_as<T, bool>) void Read(const Json& json, const std::string& where, T& value) {
    const uint64_t most = static_cast<uint64_t>(std::numeric_limits<T>::max());
    if (!json.is_number_unsigned() || json.get<uint64_t>() > most) {
      return Fail(where, absl::StrCat("is not a whole number from 0 to ", most));
    }
    value = static_cast<T>(json.get<uint64_t>());
  }

  template <typename T>
  requires std::is_enum_v<T>
  void Read(const Json& json, const std::string& where, T& value) {
    std::vector<std::string> names;
    for (const T candidate : AllOf(T{})) {
      names.emplace_back(WireName(candidate));
      if (json.is_string() && json.get_ref<const std::string&>() == names.back()) {
        value = candidate;
        return;
      }
    }
    Fail(where, absl::StrCat("is none of ", absl::StrJoin(names, ", ")));
  }

  template <typename T>
  void Read(const Json& json, const std::string& where, std::vector<T>& values) {
    if (!json.is_array()) return Fail(where, "is not a list");
    values.clear();
    for (const Json& item : json) {
      T value{};
      Read(item, absl::StrCat(where, "[", values.size(), "]"), value);
      if (!status_.ok()) return;
      values.push_back(std::move(value));
    }
  }

  template <typename T>
  requires requires(Reader& reader, T& value) { Fields(reader, value); }
  void Read(const Json& json, const std::string& where, T& value) {
    Reader reader(json, where, status_);
    Fields(reader, value);
    reader.RefuseOthers();
  }

  const Json& json_;
  std::string where_;
  absl::Status& status_;
  std::set<std::string> seen_;
};

Json TallyJson(const MatrixReport& report) {
  const Tally tally = TallyOf(report);
  return {{"sound", tally.sound},
          {"knownFailure", tally.known},
          {"unexpected", tally.unexpected},
          {"broken", tally.broken},
          {"leftOut", report.left_out.size()}};
}

}  // namespace

std::string CellJson(const CellReport& cell) { return Dump(JsonOf(cell)); }

absl::StatusOr<CellReport> ParseCellReport(const std::string& json) {
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return absl::InvalidArgumentError("cell report: it is not JSON");
  absl::Status status;
  CellReport cell;
  Reader reader(parsed, "", status);
  Fields(reader, cell);
  reader.RefuseOthers();
  if (!status.ok()) return status;
  return cell;
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
                     {"leftOut", JsonOf(report.left_out)},
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
