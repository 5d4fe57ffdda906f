// SPDX-License-Identifier: Apache-2.0
//
// The matrix as the page's script wants it: compact, because a matrix says the same thing many
// times. Not the JSON of --json, and nobody else's business. page_read.js reads it.
//
//   strings  every text that checks and streams name by its index; 0 is ""
//   probes   [name, family, protocol, from, to, connections, kind]
//   checks   [probe, state, got, expected, sound, sent, received, receivers, seen source, dropped
//            by, detail, because, complaint], zeros at the end left out; texts as indexes of
//            `strings`
//   lists    the checks of a step, as indexes of `checks`
//   lines    lines of rules, "# IPv4, nft" above the tables that are that
//   rules    what stood after a step, as indexes of `lines`
//   cells    each with the numbers of what was not sound, and its steps, whose `checks` is an index
//            of `lists`, and `rules` one of `rules`; a step's streams: [name, state, sent, served,
//            masqueraded, reached host, forwarded, other, longest gap, rule, bad, allowed, because]
//   leftOut  [id, why] of each cell that was not run
//   compared the numbers of the agent's cells, checks and streams that were held against kubelet's
//   grids    each pair is [row, column, kubelet's cell, the agent's], -1 where there is none
//
// A state is 0 for sound, 1 for a known failure, 2 for unexpected; verdicts besides 3 for broken.
#ifndef KIPT_TESTS_SKEW_REPORT_PAGE_DATA_H_
#define KIPT_TESTS_SKEW_REPORT_PAGE_DATA_H_

#include <string>
#include <vector>

#include "tests/skew/report/matrix_report.h"

namespace kipt::skew {

// JSON in ASCII.
std::string PageData(const MatrixReport& report);

// Lines of iptables-save without what differs from run to run: counters, and its own comments, in
// which there are dates.
std::vector<std::string> RuleLines(const std::string& rules);

// The files page.* of this folder, whole, as the build puts them into the program (page.cmake):
// kPageHtml has @STYLE@, @DATA@ and @SCRIPT@ where the others go.
extern const char kPageHtml[];
extern const char kPageStyle[];
extern const char kPageScript[];

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_REPORT_PAGE_DATA_H_
