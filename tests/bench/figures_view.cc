// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/figures_view.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace kipt::testing {
namespace {

const nlohmann::json kNothing;
const nlohmann::json kNoCells = nlohmann::json::array();

const nlohmann::json& Cells(const nlohmann::json& table) {
  return table.contains("cells") ? table["cells"] : kNoCells;
}

template <typename T>
void AppendOnce(T value, std::vector<T>& all) {
  if (std::find(all.begin(), all.end(), value) == all.end()) all.push_back(std::move(value));
}

// Three digits that say something.
std::string Short(double value) {
  if (value >= 99.95) return NumberText(std::round(value));
  return value >= 9.995 ? absl::StrFormat("%.1f", value) : absl::StrFormat("%.2f", value);
}

}  // namespace

const nlohmann::json& FiguresView::Part(const std::string& name) const {
  const auto found = figures_.find(name);
  return found == figures_.end() ? kNothing : *found;
}

std::vector<int> FiguresView::Services(const std::string& mode) const {
  std::vector<int> services;
  for (const nlohmann::json& cell : Cells(Part("table"))) {
    if (cell["mode"] == mode) AppendOnce(cell["services"].get<int>(), services);
  }
  return services;
}

std::vector<FiguresView::Row> FiguresView::Rows(const std::string& mode) const {
  std::vector<Row> rows;
  for (const nlohmann::json& cell : Cells(Part("table"))) {
    if (cell["mode"] != mode) continue;
    AppendOnce(Row{cell["operation"].get<std::string>(), cell["contender"].get<std::string>()},
               rows);
  }
  return rows;
}

const nlohmann::json* FiguresView::Cell(const std::string& mode, int services,
                                        const Row& row) const {
  for (const nlohmann::json& cell : Cells(Part("table"))) {
    if (cell["mode"] == mode && cell["services"] == services &&
        cell["operation"] == row.operation && cell["contender"] == row.contender) {
      return &cell;
    }
  }
  return nullptr;
}

std::optional<double> FiguresView::Time(const std::string& mode, int services, const Row& row,
                                        const std::string& of, const std::string& statistic) const {
  const nlohmann::json* cell = Cell(mode, services, row);
  if (cell == nullptr || (*cell)[of].is_null()) return std::nullopt;
  return (*cell)[of][statistic].get<double>();
}

std::optional<double> FiguresView::Ratio(const std::string& mode, int services, const Row& more,
                                         const Row& less, const std::string& of) const {
  const std::optional<double> big = Time(mode, services, more, of);
  const std::optional<double> small = Time(mode, services, less, of);
  if (!big || !small || *small <= 0) return std::nullopt;
  return *big / *small;
}

std::string NumberText(double number) {
  std::string text = absl::StrFormat("%.0f", number);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, "\u202f");
  return text;
}

std::string TimeText(double microseconds) {
  if (microseconds < 1000) return absl::StrCat(Short(microseconds), " µs");
  if (microseconds < 1e6) return absl::StrCat(Short(microseconds / 1e3), " ms");
  return absl::StrCat(Short(microseconds / 1e6), " s");
}

std::string RatioText(std::optional<double> ratio) {
  return ratio ? absl::StrCat(Short(*ratio), "×") : "–";
}

}  // namespace kipt::testing
