// SPDX-License-Identifier: Apache-2.0
//
// What the formats of a report share: tables, sentences, names, and the page's data.
#ifndef KIPT_TESTS_SKEW_REPORT_REPORT_PARTS_H_
#define KIPT_TESTS_SKEW_REPORT_REPORT_PARTS_H_

#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "tests/skew/node/test_node.h"
#include "tests/skew/report/matrix_report.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

// A matrix as tables: one per path, iptables mode and company.

// One pair of versions, on one path and in one mode. Null: no such cell was run. Both point into
// the report, whose cells they are.
struct GridPair {
  size_t row = 0;
  size_t column = 0;
  const CellReport* a = nullptr;
  const CellReport* b = nullptr;

  // Either; they agree in all that is not the side's.
  const CellReport& any() const { return a != nullptr ? *a : *b; }
};

struct Grid {
  std::string path;
  std::string mode;
  // The part of the cells' ids between kube-proxy and the mode, "third-parties", or nothing.
  std::string company;
  // Generations of kubelet, and of kube-proxy: by mode, "ipvs" after iptables, then by version.
  std::vector<std::string> rows = {};
  std::vector<std::string> columns = {};
  // Ordered by row, then column. A place without one was not run; no place has two.
  std::vector<GridPair> pairs = {};

  // "fresh boot", "fresh boot, third parties".
  std::string Title() const;
};

// Paths and companies in the order of the report. `report` must outlive what is returned.
std::vector<Grid> GridsOf(const MatrixReport& report);

// "lb-refused/udp/ipv4: expected dropped, got reached the host (from refused client to ...)".
std::string Sentence(const Check& check);
std::string Sentence(const StreamCheck& stream);
// "10.180.0.1:80", "[fd00::1]:80".
std::string Destination(const Probe& probe);
// "pod a 31, pod b 35".
std::string ReceiversText(const ProbeResult& result);
// "1.9 s", "2 min 5 s".
std::string Duration(double seconds);

// Enumerations in JSON: the names that people read.

template <typename Enumeration>
const char* WireName(Enumeration value) {
  return NameOf(value);
}
inline const char* WireName(ProbeKind kind) {
  return kind == ProbeKind::kConnect ? "connect" : "martian";
}

// How many values the argument's type has.
constexpr size_t CountOf(Outcome) { return 8; }
constexpr size_t CountOf(Place) { return std::size(kAllPlaces); }
constexpr size_t CountOf(Protocol) { return 2; }
constexpr size_t CountOf(testing::IpFamily) { return 2; }
constexpr size_t CountOf(ProbeKind) { return 2; }

// The files page.* of this folder, whole, as the build puts them into the program (page.cmake):
// kPageHtml has @STYLE@, @DATA@ and @SCRIPT@ where the others go.
extern const char kPageHtml[];
extern const char kPageStyle[];
extern const char kPageScript[];

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_REPORT_REPORT_PARTS_H_
