// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/skew/report/report_parts.h"

namespace kipt::skew {
namespace {

using Json = nlohmann::ordered_json;

// Each value once, in the order in which it was first asked for.
template <typename Value>
class Table {
 public:
  size_t IndexOf(const Value& value) {
    const auto [found, added] = index_.try_emplace(value, index_.size());
    if (added) values_.push_back(value);
    return found->second;
  }
  const std::vector<Value>& values() const { return values_; }

 private:
  // Hashed: g++ 12 orders vectors of unsigned numbers wrongly on big-endian machines.
  absl::flat_hash_map<Value, size_t> index_;
  std::vector<Value> values_;
};

template <typename Item>
int StateOf(const Item& item) {
  if (!item.AsExpected()) return 2;
  return item.Sound() ? 0 : 1;
}

// A step's rules without what differs from run to run: the counters of base chains.
std::vector<std::string> RuleLines(const std::string& rules) {
  std::vector<std::string> lines = absl::StrSplit(rules, '\n', absl::SkipWhitespace());
  for (std::string& line : lines) {
    if (line[0] == ':') line.resize(std::min(line.rfind(" ["), line.size()));
  }
  return lines;
}

class PageBuilder {
 public:
  PageBuilder() { strings_.IndexOf(""); }

  void Add(const CellReport& cell) {
    Json steps = Json::array();
    for (const StepReport& step : cell.steps) steps.push_back(StepJson(step));
    const NotSound not_sound = NotSoundOf(cell);
    cells_.push_back({{"id", cell.id},
                      {"verdict", static_cast<int>(VerdictOf(cell))},
                      {"notSound", {{"checks", not_sound.checks}, {"streams", not_sound.streams}}},
                      {"allowed", cell.allowed},
                      {"about", cell.about},
                      {"problem", cell.problem},
                      {"seconds", cell.seconds},
                      {"steps", std::move(steps)}});
  }

  void MoveTo(Json& page) && {
    page["strings"] = strings_.values();
    page["probes"] = probes_.values();
    page["checks"] = checks_.values();
    page["lists"] = lists_.values();
    page["lines"] = lines_.values();
    page["rules"] = rules_.values();
    page["cells"] = std::move(cells_);
  }

 private:
  using Row = std::vector<size_t>;

  static void DropZeros(Row& row) {
    while (!row.empty() && row.back() == 0) row.pop_back();
  }

  size_t ProbeIndex(const Probe& probe) {
    return probes_.IndexOf({probe.name, WireName(probe.family), NameOf(probe.protocol),
                            NameOf(probe.from), Destination(probe), absl::StrCat(probe.connections),
                            WireName(probe.kind)});
  }

  size_t CheckIndex(const Check& check) {
    const ProbeResult& result = check.result;
    Row row = {ProbeIndex(check.probe),
               static_cast<size_t>(StateOf(check)),
               strings_.IndexOf(NameOf(result.outcome)),
               strings_.IndexOf(NameOf(check.expected)),
               strings_.IndexOf(NameOf(check.sound)),
               static_cast<size_t>(result.sent),
               static_cast<size_t>(result.received),
               strings_.IndexOf(ReceiversText(result)),
               strings_.IndexOf(result.seen_source),
               strings_.IndexOf(result.dropped_by),
               strings_.IndexOf(result.detail),
               strings_.IndexOf(check.because),
               strings_.IndexOf(check.complaint)};
    DropZeros(row);
    return checks_.IndexOf(row);
  }

  Row StreamRow(const StreamCheck& stream) {
    const StreamCount& count = stream.count;
    Row row = {strings_.IndexOf(NameOf(stream)),
               static_cast<size_t>(StateOf(stream)),
               count.sent,
               count.served,
               count.served_masqueraded,
               count.reached_host,
               count.forwarded,
               count.other,
               count.longest_gap,
               strings_.IndexOf(stream.rule),
               stream.bad,
               stream.allowed,
               strings_.IndexOf(stream.because)};
    DropZeros(row);
    return row;
  }

  size_t RulesIndex(const std::string& rules) {
    Row row;
    for (const std::string& line : RuleLines(rules)) row.push_back(lines_.IndexOf(line));
    return rules_.IndexOf(row);
  }

  Json StepJson(const StepReport& step) {
    Row checks;
    for (const Check& check : step.checks) checks.push_back(CheckIndex(check));
    std::vector<Row> streams;
    for (const StreamCheck& stream : step.streams) streams.push_back(StreamRow(stream));
    const int error = step.error.empty() ? 0 : step.error_expected ? 1 : 2;
    return {{"name", step.name},
            {"verdict", static_cast<int>(VerdictOf(step))},
            {"done", step.done},
            {"error", step.error},
            {"errorState", error},
            {"errorBecause", step.error_because},
            {"checks", lists_.IndexOf(checks)},
            {"streams", streams},
            {"rules", RulesIndex(step.rules)}};
  }

  Table<std::string> strings_;
  Table<std::vector<std::string>> probes_;
  Table<Row> checks_;
  Table<Row> lists_;
  Table<std::string> lines_;
  Table<Row> rules_;
  Json cells_ = Json::array();
};

Json GridJson(const Grid& grid, const MatrixReport& report) {
  const auto index = [&report](const CellReport* cell) {
    return cell == nullptr ? std::ptrdiff_t{-1} : cell - report.cells.data();
  };
  Json pairs = Json::array();
  for (const GridPair& pair : grid.pairs) {
    pairs.push_back({pair.row, pair.column, index(pair.a), index(pair.b)});
  }
  return {{"path", grid.path}, {"title", grid.Title()},   {"mode", grid.mode},
          {"rows", grid.rows}, {"columns", grid.columns}, {"pairs", std::move(pairs)}};
}

// The matrix in the form that the page's script reads (page_read.js), in ASCII: compact, because a
// matrix repeats many texts.
//
//   strings  every text that checks and streams name by its index; 0 is ""
//   probes   [name, family, protocol, from, to, connections, kind]
//   checks   [probe, state, got, expected, sound, sent, received, receivers, seen source, dropped
//            by, detail, because, complaint], zeros at the end left out; texts as indexes of
//            `strings`
//   lists    the checks of a step, as indexes of `checks`
//   lines    lines of rules, "# IPv4, nft" above the tables that are that
//   rules    the rules after a step, as indexes of `lines`
//   cells    each with its steps, its `checks` an index of `lists`, its `rules` of `rules`;
//            a step's streams: [name, state, sent, served, masqueraded, reached host, forwarded,
//            other, longest gap, rule, bad, allowed, because]
//   grids    each pair is [row, column, A's cell, B's], -1 where there is none
//
// A state is 0 for sound, 1 for a known failure, 2 for unexpected; verdicts besides 3 for broken.
std::string PageData(const MatrixReport& report) {
  Json page = {
      {"kernel", report.kernel},
      {"iptables", report.iptables},
      {"a", {{"name", report.a.name}, {"what", report.a.what}}},
      {"b", {{"name", report.b.name}, {"what", report.b.what}}},
      {"duration", Duration(report.seconds)},
      {"problems", report.problems},
      {"compared", {report.compared.cells, report.compared.checks, report.compared.streams}},
      {"tally", TallyOf(report)}};
  PageBuilder builder;
  for (const CellReport& cell : report.cells) builder.Add(cell);
  std::move(builder).MoveTo(page);
  Json grids = Json::array();
  for (const Grid& grid : GridsOf(report)) grids.push_back(GridJson(grid, report));
  page["grids"] = std::move(grids);
  return page.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

}  // namespace

std::string MatrixHtml(const MatrixReport& report) {
  // In a `script` element nothing may end it, or begin a comment. Outside of strings JSON has none
  // of these.
  const std::string data =
      absl::StrReplaceAll(PageData(report), {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
  // Inserted text is not searched again.
  return absl::StrReplaceAll(
      kPageHtml, {{"@STYLE@", kPageStyle}, {"@DATA@", data}, {"@SCRIPT@", kPageScript}});
}

}  // namespace kipt::skew
