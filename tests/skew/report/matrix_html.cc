// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "tests/skew/report/escape.h"
#include "tests/skew/report/matrix_report.h"
#include "tests/skew/report/page_data.h"
#include "tests/skew/report/page_parts.h"

namespace kipt::skew {
namespace {

// Replaces the one `mark` in `page`. Each is looked for from where the last one was put, so nothing
// that was put in is taken for a mark.
void Put(std::string& page, size_t& from, const std::string& mark, const std::string& text) {
  from = page.find(mark, from);
  if (from == std::string::npos) return;
  page.replace(from, mark.size(), text);
  from += text.size();
}

}  // namespace

std::string MatrixHtml(const MatrixReport& report) {
  std::string page = kPageHtml;
  size_t from = 0;
  Put(page, from, "@STYLE@", kPageStyle);
  Put(page, from, "@DATA@", ScriptJson(PageData(report)));
  Put(page, from, "@SCRIPT@", kPageScript);
  return page;
}

}  // namespace kipt::skew
