// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/report_tables.h"

#include <map>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kipt::testing {
namespace {

using nlohmann::json;
using Row = FiguresView::Row;

std::string Line(const std::vector<std::string>& cells) {
  return absl::StrCat("| ", absl::StrJoin(cells, " | "), " |\n");
}

// The first column is text, the others are numbers.
std::string Head(const std::vector<std::string>& titles) {
  std::string rule = "|---|";
  for (size_t i = 1; i < titles.size(); ++i) rule += "---:|";
  return absl::StrCat(Line(titles), rule, "\n");
}

std::string ServicesHead(const FiguresView& figures, const std::string& mode,
                         const std::string& first) {
  std::vector<std::string> titles = {first};
  for (const int services : figures.Services(mode)) titles.push_back(NumberText(services));
  return Head(titles);
}

// What kubelet does where we do `row`; nothing where that is not its own work.
std::optional<Row> Yardstick(const Row& row) {
  if (row.contender == "kubelet" || row.contender == "kernel") return std::nullopt;
  if (row.operation == "cold") return kKubeletCold;
  if (absl::StartsWith(row.operation, "repair")) {
    return Row{row.operation.substr(0, row.operation.find(',')), "kubelet"};
  }
  if (row.operation == "check after a commit") return kKubeletAfterCommit;
  return kKubeletWarm;
}

std::string CountText(const json& cell, const char* name) {
  return cell[name].is_null() ? "–" : NumberText(cell[name].get<double>());
}

// Columns by columns what `text` says of a cell.
template <typename Text>
std::string PerServices(const FiguresView& figures, const std::string& mode, const Row& row,
                        const Text& text) {
  std::vector<std::string> cells = {RowTitle(row)};
  for (const int services : figures.Services(mode)) cells.push_back(text(services));
  return Line(cells);
}

}  // namespace

std::string ModeTitle(const std::string& mode) {
  return mode == "nft" ? "nf_tables" : "legacy iptables";
}

std::string RowTitle(const Row& row) {
  static const std::map<std::string, std::string> kContenders = {
      {"agent", "agent, in process"},
      {"agent program", "agent, whole program `sync`"},
      {"kubelet", "kubelet's sequence"},
      {"restore", "`iptables-restore --noflush`, one for each family"},
      {"nft", "`nft -f` (native rules)"},
      {"kernel", "the kernel itself"}};
  const auto found = kContenders.find(row.contender);
  return absl::StrCat(row.operation, ": ",
                      found == kContenders.end() ? row.contender : found->second);
}

std::string RatioTable(const FiguresView& figures, const std::string& mode) {
  std::string text = absl::StrCat("**", ModeTitle(mode), "**\n\n",
                                  ServicesHead(figures, mode, "kube-proxy services"));
  for (const Row& row : figures.Rows(mode)) {
    const std::optional<Row> yardstick = Yardstick(row);
    if (!yardstick || row.operation == "check what kubelet made") continue;
    absl::StrAppend(&text, PerServices(figures, mode, row, [&](int services) -> std::string {
      const std::optional<double> wall = figures.Ratio(mode, services, *yardstick, row);
      if (!wall) return "–";
      return absl::StrCat("**", RatioText(wall), "** (",
                          RatioText(figures.Ratio(mode, services, *yardstick, row, "cpu")), ")");
    }));
  }
  return text + "\n";
}

std::string WallTable(const FiguresView& figures, const std::string& mode) {
  std::string text = absl::StrCat("### Wall time, ", ModeTitle(mode), "\n\n",
                                  ServicesHead(figures, mode, "median (minimum, p90; samples)"));
  for (const Row& row : figures.Rows(mode)) {
    absl::StrAppend(&text, PerServices(figures, mode, row, [&](int services) -> std::string {
      const json* cell = figures.Cell(mode, services, row);
      if (cell == nullptr) return "–";
      const json& wall = (*cell)["wall"];
      return absl::StrCat("**", TimeText(wall["median"].get<double>()), "** (",
                          TimeText(wall["min"].get<double>()), ", ",
                          TimeText(wall["p90"].get<double>()), "; ", wall["n"].get<int>(), ")");
    }));
  }
  return text + "\n";
}

std::string CpuTable(const FiguresView& figures, const std::string& mode) {
  std::string text = absl::StrCat("### CPU time, user and system, with children, ", ModeTitle(mode),
                                  "\n\n", ServicesHead(figures, mode, "median"));
  for (const Row& row : figures.Rows(mode)) {
    absl::StrAppend(&text, PerServices(figures, mode, row, [&](int services) -> std::string {
      const std::optional<double> time = figures.Time(mode, services, row, "cpu");
      return time ? TimeText(*time) : "–";
    }));
  }
  return text + "\n";
}

std::string CountTable(const FiguresView& figures, const std::string& mode, int services) {
  const bool nft = mode == "nft";
  std::string text = absl::StrCat("### What is asked of the kernel, ", ModeTitle(mode), ", beside ",
                                  NumberText(services), " services\n\n");
  std::vector<std::string> titles = {"one time", "programs", "system calls"};
  if (nft) {
    titles.insert(titles.end(), {"bytes to netlink", "from netlink", "generations"});
  } else {
    titles.emplace_back("bytes of socket options");
  }
  titles.insert(titles.end(), {"allocations", "bytes of these", "peak RSS of a program, KiB"});
  absl::StrAppend(&text, Head(titles));
  for (const Row& row : figures.Rows(mode)) {
    const json* cell = figures.Cell(mode, services, row);
    if (cell == nullptr) continue;
    std::vector<std::string> cells = {RowTitle(row)};
    std::vector<const char*> names = {"programs", "system_calls"};
    if (nft) {
      names.insert(names.end(), {"netlink_sent", "netlink_received", "commits"});
    } else {
      names.push_back("xtables_bytes");
    }
    names.insert(names.end(), {"allocations", "allocated_bytes", "program_peak_kib"});
    for (const char* name : names) cells.push_back(CountText(*cell, name));
    absl::StrAppend(&text, Line(cells));
  }
  return text + "\n";
}

std::string IncidentTable(const FiguresView& figures) {
  const json& runs = figures.Part("incidents");
  if (runs.is_null()) return "";
  std::string text =
      absl::StrCat("### From damage to repaired, by the daemon\n\n",
                   Head({"mode, services", "incidents", "outage: min", "median", "p99", "max",
                         "our own share: median", "p99", "writing: median", "p99"}));
  for (const json& run : runs) {
    for (const json& incident : run["incidents"]) {
      const json& outage = incident["outage"];
      if (outage.is_null()) continue;
      const auto time = [](const json& summary, const char* name) {
        return TimeText(summary[name].get<double>());
      };
      absl::StrAppend(
          &text, Line({absl::StrCat(incident["mode"].get<std::string>(), ", ",
                                    NumberText(incident["services"].get<double>())),
                       NumberText(outage["n"].get<double>()), time(outage, "min"),
                       time(outage, "median"), time(outage, "p99"), time(outage, "max"),
                       time(incident["own"], "median"), time(incident["own"], "p99"),
                       time(incident["writing"], "median"), time(incident["writing"], "p99")}));
    }
  }
  return text + "\n";
}

std::string ListeningTable(const FiguresView& figures) {
  const json& runs = figures.Part("storms");
  if (runs.is_null()) return "";
  std::string text = absl::StrCat(
      "### What the daemon's listening costs those who write\n\n",
      Head({"daemon", "many rules in one commit: min", "median", "one chain: min", "median"}));
  for (const json& run : runs) {
    for (const json& row : run["listening"]) {
      std::vector<std::string> cells = {absl::StrCat(row["daemon"].get<std::string>(), " (",
                                                     NumberText(row["rules"].get<double>()),
                                                     " rules)")};
      for (const char* what : {"big", "small"}) {
        for (const char* name : {"min", "median"}) {
          cells.push_back(TimeText(row[what][name].get<double>()));
        }
      }
      absl::StrAppend(&text, Line(cells));
    }
  }
  return text + "\n";
}

std::string MicroTable(const FiguresView& figures) {
  const json& micro = figures.Part("micro");
  if (micro.is_null()) return "";
  std::string text = absl::StrCat("### Our own parts by themselves (Google Benchmark)\n\n",
                                  Head({"part", "wall", "CPU", "items a second", "MB a second"}));
  for (const json& benchmark : micro["benchmarks"]) {
    if (benchmark.value("aggregate_name", "median") != "median") continue;
    const auto rate = [&](const char* name, double unit) -> std::string {
      return benchmark.contains(name) ? NumberText(benchmark[name].get<double>() / unit) : "–";
    };
    std::string name = benchmark["run_name"].get<std::string>();
    absl::StrAppend(&text, Line({name, TimeText(benchmark["real_time"].get<double>() / 1e3),
                                 TimeText(benchmark["cpu_time"].get<double>() / 1e3),
                                 rate("items_per_second", 1), rate("bytes_per_second", 1e6)}));
  }
  return text + "\n";
}

}  // namespace kipt::testing
