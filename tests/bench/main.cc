// SPDX-License-Identifier: Apache-2.0
//
// tests/bench/run builds and starts this; its header says what there is to measure.
#include <sched.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/audits.h"
#include "tests/bench/incidents.h"
#include "tests/bench/report.h"
#include "tests/bench/storms.h"
#include "tests/bench/table.h"

namespace kipt::testing {
namespace {

using nlohmann::json;

// sysexits.h.
constexpr int kExitUsage = 64;
constexpr int kExitFailed = 2;

// What is measured here is when this process wakes up: it goes before whatever else the machine
// does. What it starts does not inherit that. Without the right to it, figures are a little worse.
void GoFirst() {
  const sched_param first = {.sched_priority = 1};
  sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first);
}

int Fail(absl::string_view message) {
  std::fprintf(stderr, "kipt_bench: %s\n", std::string(message).c_str());
  return kExitFailed;
}

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return file.good();
}

// Keeps what was measured, where that was asked for.
int Finish(const absl::StatusOr<json>& measured, const std::string& path) {
  if (!measured.ok()) return Fail(measured.status().message());
  if (!path.empty() && !Write(path, measured->dump(1) + "\n")) {
    return Fail(absl::StrCat(path, " cannot be written"));
  }
  return measured->value("met", true) ? 0 : 1;
}

json ReadJson(const std::string& path) {
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return json::parse(text, nullptr, false);
}

int AuditsReport(const std::string& path, const std::string& directory) {
  const json figures = ReadJson(path);
  if (figures.is_discarded()) return Fail(absl::StrCat(path, " is no JSON"));
  const FiguresView view(figures);
  if (!view.Part("stamp").is_string() || view.Part("audits").is_null()) {
    return Fail(absl::StrCat(path, " has no stamp or no audits"));
  }
  const std::string text = AuditsText(view);
  if (!Write(directory + "/audits.md", text)) return Fail("cannot write into " + directory);
  std::fputs(text.c_str(), stdout);
  return view.Part("audits")["met"].get<bool>() ? 0 : 1;
}

int Report(const std::string& path, const std::string& directory) {
  const json figures = ReadJson(path);
  if (figures.is_discarded()) return Fail(absl::StrCat(path, " is no JSON"));
  const FiguresView view(figures);
  if (absl::Status status = CheckComplete(view); !status.ok()) return Fail(status.message());
  const std::string summary = SummaryText(view);
  if (!Write(directory + "/report.md", summary) ||
      !Write(directory + "/details.md", DetailsText(view)) ||
      !Write(directory + "/cost.dat", PlotPoints(view))) {
    return Fail(absl::StrCat("cannot write into ", directory));
  }
  std::fputs(summary.c_str(), stdout);
  return AllMet(view) ? 0 : 1;
}

struct Options {
  double slack = 1;
  // Where figures are kept; empty: printed only.
  std::string json_path;
  std::string parts;
  std::string figures;
  // Version and commit of what was measured (tests/stamp).
  std::string stamp;
  std::string directory;
  AuditsOptions audits;
  IncidentOptions incidents;
  StormOptions storms;
  TableOptions table;
};

class Commands {
 public:
  Commands() : app_("Measures kube-iptables-agent") {
    app_.require_subcommand(1);
    app_.add_option("--slack", options_.slack)->check(CLI::PositiveNumber);
    app_.add_option("--json", options_.json_path);
    Audits();
    Incidents();
    Storms();
    Table();
    collect_ = app_.add_subcommand("collect")->fallthrough();
    collect_->add_option("--parts", options_.parts)->required();
    collect_->add_option("--stamp", options_.stamp)->required();
    report_ = app_.add_subcommand("report")->fallthrough();
    audits_report_ = app_.add_subcommand("audits-report")->fallthrough();
    for (CLI::App* command : {report_, audits_report_}) {
      command->add_option("--figures", options_.figures)->required();
      command->add_option("--output", options_.directory)->required();
    }
  }

  int Run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app_.exit(error) == 0 ? 0 : kExitUsage;
    }
    options_.audits.slack = options_.slack;
    options_.incidents.slack = options_.slack;
    options_.storms.slack = options_.slack;
    const std::string& path = options_.json_path;
    if (report_->parsed()) return Report(options_.figures, options_.directory);
    if (audits_report_->parsed()) return AuditsReport(options_.figures, options_.directory);
    if (collect_->parsed()) return Finish(Collect(options_.parts, options_.stamp), path);
    if (machine_->parsed()) return Finish(DescribeMachine(), path);
    if (table_->parsed()) return Finish(MeasureTable(options_.table), path);
    if (storms_->parsed()) return Finish(MeasureStorms(options_.storms), path);
    GoFirst();
    if (audits_->parsed()) return Finish(MeasureAudits(options_.audits), path);
    return Finish(MeasureIncidents(options_.incidents), path);
  }

 private:
  void Audits() {
    audits_ = app_.add_subcommand("audits")->fallthrough();
    audits_->add_option("--services", options_.audits.services)->delimiter(',');
    audits_->add_option("--repairs", options_.audits.repairs)->check(CLI::PositiveNumber);
    audits_->add_option("--audits", options_.audits.audits)->check(CLI::PositiveNumber);
    audits_->add_option_function<double>(
        "--budget", [this](double seconds) { options_.audits.budget = absl::Seconds(seconds); });
    audits_->add_option("--mode", options_.audits.modes)
        ->delimiter(',')
        ->transform(CLI::CheckedTransformer(modes_));
  }

  void Incidents() {
    CLI::App* command = app_.add_subcommand("incidents")->fallthrough();
    command->add_option("--count", options_.incidents.count)->check(CLI::PositiveNumber);
    command->add_option("--services", options_.incidents.services)->delimiter(',');
    command->add_option("--mode", options_.incidents.mode)
        ->transform(CLI::CheckedTransformer(modes_));
  }

  void Storms() {
    storms_ = app_.add_subcommand("storms")->fallthrough();
    storms_->add_option("--repeats", options_.storms.repeats)->check(CLI::PositiveNumber);
  }

  void Table() {
    machine_ = app_.add_subcommand("machine")->fallthrough();
    table_ = app_.add_subcommand("table")->fallthrough();
    table_->add_option("--services", options_.table.services)
        ->delimiter(',')
        ->check(CLI::Range(0, 100000));
    table_->add_option("--legacy-most", options_.table.legacy_most)->check(CLI::NonNegativeNumber);
    table_->add_option("--repeats", options_.table.repeats)->check(CLI::PositiveNumber);
    table_->add_option("--mode", options_.table.modes)
        ->delimiter(',')
        ->transform(CLI::CheckedTransformer(modes_));
    table_->add_option("--only", options_.table.only);
    table_->add_option_function<double>(
        "--budget", [this](double seconds) { options_.table.budget = absl::Seconds(seconds); });
  }

  const std::map<std::string, IptablesMode> modes_ = {{"nft", IptablesMode::kNft},
                                                      {"legacy", IptablesMode::kLegacy}};
  CLI::App app_;
  Options options_;
  CLI::App* audits_ = nullptr;
  CLI::App* storms_ = nullptr;
  CLI::App* table_ = nullptr;
  CLI::App* machine_ = nullptr;
  CLI::App* collect_ = nullptr;
  CLI::App* report_ = nullptr;
  CLI::App* audits_report_ = nullptr;
};

}  // namespace
}  // namespace kipt::testing

int main(int argc, char** argv) { return kipt::testing::Commands().Run(argc, argv); }
