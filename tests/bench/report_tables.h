// SPDX-License-Identifier: Apache-2.0
//
// The tables of the report, each as Markdown with its heading.
#ifndef KIPT_TESTS_BENCH_REPORT_TABLES_H_
#define KIPT_TESTS_BENCH_REPORT_TABLES_H_

#include <string>

#include "tests/bench/figures_view.h"

namespace kipt::testing {

// "nf_tables", "legacy iptables".
std::string ModeTitle(const std::string& mode);
// How a row of the table is called in all of them.
std::string RowTitle(const FiguresView::Row& row);

// How many times less wall and CPU time than kubelet's sequence everything takes.
std::string RatioTable(const FiguresView& figures, const std::string& mode);
// Median, minimum and p90 of wall time; median of CPU time.
std::string WallTable(const FiguresView& figures, const std::string& mode);
std::string CpuTable(const FiguresView& figures, const std::string& mode);
// What was counted beside `services` services.
std::string CountTable(const FiguresView& figures, const std::string& mode, int services);

// Of the daemon; empty where nothing was measured.
std::string IncidentTable(const FiguresView& figures);
std::string ListeningTable(const FiguresView& figures);
std::string MicroTable(const FiguresView& figures);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_REPORT_TABLES_H_
