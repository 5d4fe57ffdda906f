// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/report.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/report_tables.h"
#include "tests/bench/table.h"
#include "tests/bench/verdicts.h"

namespace kipt::testing {
namespace {

using nlohmann::json;
using Row = FiguresView::Row;

constexpr const char* kModes[] = {"nft", "legacy"};

std::string VerdictTable(const FiguresView& figures) {
  std::string text = "## Targets\n\n| promise | target | measured | |\n|---|---:|---:|---|\n";
  for (const Verdict& verdict : Verdicts(figures)) {
    absl::StrAppend(&text, "| ", verdict.what, " | ", verdict.target, " | ", verdict.measured,
                    " | ",
                    !verdict.met   ? "–"
                    : *verdict.met ? "met"
                                   : "**missed**",
                    " |\n");
  }
  return text + "\n";
}

std::string LeftOutText(const FiguresView& figures) {
  const json& table = figures.Part("table");
  std::string text = absl::StrFormat(
      "## Left out\n\n* After %g s in all, preparations included, an operation got no further "
      "round: "
      "the number of samples in the tables says how often each was measured (%d rounds at most).\n"
      "* What takes more than %g s was not done again to be counted.\n",
      table["budget_seconds"].get<double>(), table["repeats"].get<int>(), kMostToCount / 1e6);
  for (const json& sentence : table["left_out"]) {
    absl::StrAppend(&text, "* ", sentence.get<std::string>(), ".\n");
  }
  return text;
}

constexpr char kSummaryIntroduction[] = R"(# What it costs

Written by `tests/bench/run`; `tests/bench/README.md` explains how it measures. Each run leaves every
figure in `build/bench/figures.json` and every table in `build/bench/details.md`.

)";

constexpr char kDetailsIntroduction[] = R"(# What it costs, in detail

Written by `tests/bench/run`; `tests/bench/README.md` explains how it measures. `figures.json` next to
this file holds every figure.

)";

constexpr char kInShort[] = R"(## In short

A cell says how many times less wall time (in brackets: CPU time) a row takes than kubelet's sequence of
iptables programs: medians of one run, both families. Repairs and `cold` are compared with what kubelet
runs to create the same missing rules. Every other row is compared with kubelet's sequence when everything
is in place, which changes nothing; `check after a commit` with that sequence right after such a commit.

)";

constexpr char kRows[] = R"(## The rows

`unchanged` asks the kernel for its generation. `check` reads and compares all of kubelet's rules, in a hot
loop; `after a commit` does so right after another process committed; `and 60 ms` after other work has used
the caches. `check: the kernel itself` asks the same questions and discards the answers. `cold` starts without
any of kubelet's rules. A repair starts with one chain, its rules and the jumps to it missing, 60 ms after they
were removed, or `at once`: then the kernel waits until it has freed what was deleted (an RCU grace period and
more). `tick` is what kubelet's monitor does once a minute.

)";

// The number of services whose counts are shown: the usual one for a big cluster, else the most.
int CountedServices(const FiguresView& figures, const std::string& mode) {
  const std::vector<int> all = figures.Services(mode);
  const bool has_many = std::find(all.begin(), all.end(), 10000) != all.end();
  return has_many ? 10000 : *std::max_element(all.begin(), all.end());
}

}  // namespace

std::string StampText(const FiguresView& figures) {
  std::string text = absl::StrCat("Measured with ", figures.Part("stamp").get<std::string>());
  const json& machine = figures.Part("machine");
  if (machine.is_null()) return absl::StrCat(text, ".\n\n");
  return absl::StrFormat(
      "%s on Linux %s, %d CPUs; %s; %s. Load average of the machine at the start (1 minute): "
      "%.2f.\n\n",
      text, machine["kernel"].get<std::string>(), machine["cpus"].get<int>(),
      machine["programs"].get<std::string>(), machine["libraries"].get<std::string>(),
      machine["load"].get<double>());
}

absl::Status CheckComplete(const FiguresView& figures) {
  if (!figures.Part("stamp").is_string() || figures.Part("stamp").get<std::string>().empty()) {
    return absl::DataLossError("the figures carry neither version nor commit");
  }
  const json& table = figures.Part("table");
  if (table.is_null() || table["cells"].empty()) return absl::DataLossError("there is no table");
  for (const json& cell : table["cells"]) {
    for (const char* name : {"wall", "cpu"}) {
      for (const char* statistic : {"n", "min", "p10", "median", "p90", "max"}) {
        if (cell[name].is_object() && cell[name][statistic].is_number()) continue;
        return absl::DataLossError(absl::StrCat(name, " is missing in ", cell.dump()));
      }
    }
    if (cell["wall"]["min"].get<double>() > kMostToCount) continue;
    for (const char* name : {"system_calls", "programs", "netlink_sent", "netlink_received",
                             "xtables_bytes", "allocations", "allocated_bytes"}) {
      if (!cell[name].is_number()) {
        return absl::DataLossError(absl::StrCat(name, " is missing in ", cell.dump()));
      }
    }
    // Something that does nothing was not measured.
    if (cell["system_calls"] == 0 || cell["wall"]["min"] == 0) {
      return absl::DataLossError(absl::StrCat("nothing was done in ", cell.dump()));
    }
  }
  const json& micro = figures.Part("micro");
  if (micro.is_null()) return absl::OkStatus();
  for (const json& benchmark : micro["benchmarks"]) {
    if (benchmark.value("error_occurred", false) || !benchmark.contains("real_time")) {
      return absl::DataLossError(absl::StrCat("nothing was measured in ", benchmark.dump()));
    }
  }
  return absl::OkStatus();
}

std::string SummaryText(const FiguresView& figures) {
  std::string text = absl::StrCat(kSummaryIntroduction, StampText(figures), kInShort);
  for (const char* mode : kModes) {
    if (!figures.Services(mode).empty()) absl::StrAppend(&text, RatioTable(figures, mode));
  }
  absl::StrAppend(&text, VerdictTable(figures),
                  "## Cost against the number of services\n\n"
                  "![wall time against the number of services](cost.svg)\n");
  return text;
}

std::string DetailsText(const FiguresView& figures) {
  std::string text = absl::StrCat(kDetailsIntroduction, StampText(figures), kRows);
  for (const char* mode : kModes) {
    const std::vector<int> services = figures.Services(mode);
    if (services.empty()) continue;
    absl::StrAppend(&text, WallTable(figures, mode), CpuTable(figures, mode),
                    CountTable(figures, mode, services.front()));
    const int many = CountedServices(figures, mode);
    if (many != services.front()) absl::StrAppend(&text, CountTable(figures, mode, many));
  }
  absl::StrAppend(&text, IncidentTable(figures), ListeningTable(figures), MicroTable(figures),
                  LeftOutText(figures));
  return text;
}

std::string PlotPoints(const FiguresView& figures) {
  struct Column {
    const char* mode;
    Row row;
  };
  // In the order of cost.gnuplot.
  const Column columns[] = {{"legacy", kKubeletCold},
                            {"legacy", kKubeletWarm},
                            {"legacy", {"cold", "agent"}},
                            {"legacy", {"check", "agent"}},
                            {"nft", kKubeletCold},
                            {"nft", kKubeletWarm},
                            {"nft", {"cold", "agent"}},
                            {"nft", {"warm", "agent program"}},
                            {"nft", {"check after a commit", "agent"}},
                            {"nft", {"unchanged", "agent"}}};
  std::vector<int> all = figures.Services("nft");
  for (const int services : figures.Services("legacy")) {
    if (std::find(all.begin(), all.end(), services) == all.end()) all.push_back(services);
  }
  std::sort(all.begin(), all.end());
  std::string text;
  for (const int services : all) {
    absl::StrAppend(&text, std::max(services, 10));
    for (const Column& column : columns) {
      const std::optional<double> time = figures.Time(column.mode, services, column.row);
      absl::StrAppend(&text, " ", time ? absl::StrCat(*time / 1e3) : "?");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

bool AllMet(const FiguresView& figures) {
  const std::vector<Verdict> verdicts = Verdicts(figures);
  return std::all_of(verdicts.begin(), verdicts.end(),
                     [](const Verdict& verdict) { return verdict.met.value_or(false); });
}

}  // namespace kipt::testing
