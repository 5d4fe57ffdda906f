// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/skew/report/report_parts.h"

namespace kipt::skew {
namespace {

// "1.25 gate on" is {25, "gate on"}.
struct Generation {
  int minor = 0;
  std::string kind;
};

Generation ParseGeneration(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, absl::MaxSplits(' ', 1));
  const std::vector<std::string> version = absl::StrSplit(parts[0], '.');
  Generation generation;
  // A name without a minor is of no version; it comes first.
  if (version.size() < 2 || !absl::SimpleAtoi(version[1], &generation.minor)) generation.minor = 0;
  if (parts.size() > 1) generation.kind = parts[1];
  return generation;
}

bool KubeletBefore(const std::string& a, const std::string& b) {
  const Generation left = ParseGeneration(a);
  const Generation right = ParseGeneration(b);
  return std::tie(left.minor, left.kind, a) < std::tie(right.minor, right.kind, b);
}

bool ProxyBefore(const std::string& a, const std::string& b) {
  const Generation left = ParseGeneration(a);
  const Generation right = ParseGeneration(b);
  return std::tie(left.kind, left.minor, a) < std::tie(right.kind, right.minor, b);
}

// Of "boot/kubelet-1.25/proxy-1.27/other-bit/nft/kubelet": "other-bit".
std::string CompanyOf(const CellReport& cell) {
  const std::vector<std::string> parts = absl::StrSplit(cell.id, '/');
  const auto proxy = std::find_if(parts.begin(), parts.end(), [](const std::string& part) {
    return part.compare(0, 6, "proxy-") == 0;
  });
  if (parts.end() - proxy < 4) return "";
  std::string company;
  for (auto part = proxy + 1; part != parts.end() - 2; ++part) {
    absl::StrAppend(&company, company.empty() ? "" : "/", *part);
  }
  return company;
}

template <typename Less>
void Order(std::vector<std::string>& names, Less less) {
  std::sort(names.begin(), names.end(), less);
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

size_t IndexOf(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

class GridBuilder {
 public:
  void Add(const CellReport& cell) {
    const std::string company = CompanyOf(cell);
    for (Draft& draft : drafts_) {
      if (draft.grid.path == cell.path && draft.grid.mode == cell.mode &&
          draft.grid.company == company) {
        draft.cells.push_back(&cell);
        return;
      }
    }
    drafts_.push_back({{.path = cell.path, .mode = cell.mode, .company = company}, {&cell}});
  }

  std::vector<Grid> Build() && {
    std::vector<Grid> grids;
    for (Draft& draft : drafts_) {
      Fill(draft);
      grids.push_back(std::move(draft.grid));
    }
    return grids;
  }

 private:
  struct Draft {
    Grid grid;
    std::vector<const CellReport*> cells;
  };

  static void Fill(Draft& draft) {
    Grid& grid = draft.grid;
    for (const CellReport* cell : draft.cells) {
      grid.rows.push_back(cell->kubelet);
      grid.columns.push_back(cell->proxy);
    }
    Order(grid.rows, KubeletBefore);
    Order(grid.columns, ProxyBefore);
    for (const CellReport* cell : draft.cells) {
      GridPair& pair =
          PairAt(grid, IndexOf(grid.rows, cell->kubelet), IndexOf(grid.columns, cell->proxy));
      (cell->side == "b" ? pair.b : pair.a) = cell;
    }
    std::sort(grid.pairs.begin(), grid.pairs.end(), [](const GridPair& a, const GridPair& b) {
      return std::tie(a.row, a.column) < std::tie(b.row, b.column);
    });
  }

  static GridPair& PairAt(Grid& grid, size_t row, size_t column) {
    for (GridPair& pair : grid.pairs) {
      if (pair.row == row && pair.column == column) return pair;
    }
    grid.pairs.push_back({.row = row, .column = column});
    return grid.pairs.back();
  }

  std::vector<Draft> drafts_;
};

}  // namespace

std::string Grid::Title() const {
  if (company.empty()) return path;
  return absl::StrCat(path, ", ", absl::StrReplaceAll(company, {{"-", " "}}));
}

std::vector<Grid> GridsOf(const MatrixReport& report) {
  GridBuilder builder;
  for (const CellReport& cell : report.cells) builder.Add(cell);
  return std::move(builder).Build();
}

}  // namespace kipt::skew
