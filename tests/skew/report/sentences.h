// SPDX-License-Identifier: Apache-2.0
//
// What was found, in sentences: those that the terminal and the page share.
#ifndef KIPT_TESTS_SKEW_REPORT_SENTENCES_H_
#define KIPT_TESTS_SKEW_REPORT_SENTENCES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tests/skew/report/matrix_report.h"

namespace kipt::skew {

// "lb-refused/udp/ipv4: expected dropped, got reached the host (from refused client to 1.2.3.4:80,
// udp; received by node 1 of 1)".
std::string Sentence(const Check& check);
// "stream martian/udp: none may reach the host: broken by 12 of 400 packets, 0 of which
// are explained;
// ...".
std::string Sentence(const StreamCheck& stream);
// "10.180.0.1:80", "[fd00::1]:80".
std::string Destination(const Probe& probe);
// "pod a 31, pod b 35".
std::string ReceiversText(const ProbeResult& result);
// "1.9 s", "2 min 5 s".
std::string Duration(double seconds);

struct Finding {
  // The step's name.
  std::string step;
  std::string text;
};
// All in which the cell is not as expected, in order.
std::vector<Finding> UnexpectedOf(const CellReport& cell);

// `text` in lines of at most `columns` bytes, each ended by a newline: the first begins with
// `first`, the others with `indent`. Broken between words, which spaces and newlines part, and
// within a word that is longer than a line.
std::string Wrapped(const std::string& first, const std::string& indent, const std::string& text,
                    size_t columns = 100);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_REPORT_SENTENCES_H_
