// SPDX-License-Identifier: Apache-2.0
//
// From what was measured to what is read: figures.json, the report and the points of the plot.
#ifndef KIPT_TESTS_BENCH_REPORT_H_
#define KIPT_TESTS_BENCH_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/figures_view.h"

namespace kipt::testing {

// The machine, as far as a figure depends on it: kernel, number of CPUs, versions of programs and
// libraries, and how busy it is with other things.
nlohmann::json DescribeMachine();

// Puts the files that the measuring commands left in `parts` together: table.json, machine.json,
// micro.json, audits.json, and any number of incidents*.json and storms*.json. Those that are
// missing are left out; one that is no JSON is an error. `stamp` is the version and commit that
// were measured.
absl::StatusOr<nlohmann::json> Collect(const std::string& parts, const std::string& stamp);

// "Measured with v0.8.0 (0123abc) on Linux ...", a paragraph.
std::string StampText(const FiguresView& figures);

// OK if there is a stamp and every cell of the table is complete; names the first that is not.
absl::Status CheckComplete(const FiguresView& figures);

// Markdown: the summary that is committed (report.md), and every table (details.md).
std::string SummaryText(const FiguresView& figures);
std::string DetailsText(const FiguresView& figures);
// A line for each number of services, columns in the order of cost.gnuplot, in milliseconds; "?"
// where nothing was measured. No services at all stand at 10 of the logarithmic axis.
std::string PlotPoints(const FiguresView& figures);

// Whether every target was measured and met.
bool AllMet(const FiguresView& figures);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_REPORT_H_
