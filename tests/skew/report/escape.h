// SPDX-License-Identifier: Apache-2.0
//
// Text of programs and rules, made safe for where it is shown.
#ifndef KIPT_TESTS_SKEW_REPORT_ESCAPE_H_
#define KIPT_TESTS_SKEW_REPORT_ESCAPE_H_

#include <string>

namespace kipt::skew {

// For a terminal: featuregates::Printable, but line ends stay.
std::string TerminalText(const std::string& text);

// For a `script` element: `json` with all that could end it, or begin a comment, as \u escapes.
std::string ScriptJson(const std::string& json);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_REPORT_ESCAPE_H_
