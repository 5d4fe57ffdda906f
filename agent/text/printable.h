// SPDX-License-Identifier: Apache-2.0
//
// What every report, log line and endpoint prints: foreign text (comments and names of rules,
// chains, processes, files) escaped, in lines, wrapped. Pure functions.
#ifndef KIPT_AGENT_TEXT_PRINTABLE_H_
#define KIPT_AGENT_TEXT_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "featuregates/go_text.h"

namespace kipt::agent {

// The one escape is the feature gates', which quote as Go does and depend on no other folder.
using featuregates::FirstRune;
using featuregates::GoQuote;
using featuregates::Printable;
using featuregates::Rune;

// GoQuote, cut after 60 bytes: how a message repeats what it was given.
std::string QuoteForMessage(absl::string_view text);

// One line of a report: StrCat of `parts`, printable.
template <typename... Parts>
void AppendLine(std::string& report, const Parts&... parts) {
  absl::StrAppend(&report, Printable(absl::StrCat(parts...)), "\n");
}

// "1 rule", "2 rules".
std::string Counted(auto count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// `text` in lines of at most `columns` columns, indented by `indent` spaces and `lead`, which
// begins the first line; ends with a newline. Words are not cut.
std::string Wrapped(absl::string_view text, size_t indent, absl::string_view lead = "",
                    size_t columns = 96);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_TEXT_PRINTABLE_H_
