// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/skew/report/report_parts.h"

namespace kipt::skew {
namespace {

// "1.25 gate on" is {25, "gate on"}. A name without a minor is of no version; it comes first.
std::pair<int, std::string> Generation(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, absl::MaxSplits(' ', 1));
  const std::vector<std::string> version = absl::StrSplit(parts[0], '.');
  int minor = 0;
  if (version.size() < 2 || !absl::SimpleAtoi(version[1], &minor)) minor = 0;
  return {minor, parts.size() > 1 ? parts[1] : ""};
}

bool KubeletBefore(const std::string& a, const std::string& b) {
  return std::pair(Generation(a), a) < std::pair(Generation(b), b);
}

bool ProxyBefore(const std::string& a, const std::string& b) {
  const auto [minor_a, kind_a] = Generation(a);
  const auto [minor_b, kind_b] = Generation(b);
  return std::tie(kind_a, minor_a, a) < std::tie(kind_b, minor_b, b);
}

// Of "boot/kubelet-1.25/proxy-1.27/other-bit/nft/kubelet": "other-bit".
std::string CompanyOf(const CellReport& cell) {
  const std::vector<std::string> parts = absl::StrSplit(cell.id, '/');
  return parts.size() == 6 ? parts[3] : "";
}

template <typename Less>
void Order(std::vector<std::string>& names, Less less) {
  std::sort(names.begin(), names.end(), less);
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

size_t IndexOf(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

}  // namespace

std::string Grid::Title() const {
  if (company.empty()) return path;
  return absl::StrCat(path, ", ", absl::StrReplaceAll(company, {{"-", " "}}));
}

std::vector<Grid> GridsOf(const MatrixReport& report) {
  std::vector<Grid> grids;
  // Of each its cells.
  std::vector<std::vector<const CellReport*>> cells;
  for (const CellReport& cell : report.cells) {
    const std::string company = CompanyOf(cell);
    const auto found = std::find_if(grids.begin(), grids.end(), [&](const Grid& grid) {
      return grid.path == cell.path && grid.mode == cell.mode && grid.company == company;
    });
    const auto at = static_cast<size_t>(found - grids.begin());
    if (found == grids.end()) {
      grids.push_back({.path = cell.path, .mode = cell.mode, .company = company});
      cells.emplace_back();
    }
    cells[at].push_back(&cell);
    grids[at].rows.push_back(cell.kubelet);
    grids[at].columns.push_back(cell.proxy);
  }
  for (size_t i = 0; i < grids.size(); ++i) {
    Grid& grid = grids[i];
    Order(grid.rows, KubeletBefore);
    Order(grid.columns, ProxyBefore);
    std::map<std::pair<size_t, size_t>, GridPair> pairs;
    for (const CellReport* cell : cells[i]) {
      const size_t row = IndexOf(grid.rows, cell->kubelet);
      const size_t column = IndexOf(grid.columns, cell->proxy);
      GridPair& pair = pairs[{row, column}];
      pair.row = row;
      pair.column = column;
      (cell->side == "b" ? pair.b : pair.a) = cell;
    }
    for (const auto& [place, pair] : pairs) grid.pairs.push_back(pair);
  }
  return grids;
}

}  // namespace kipt::skew
