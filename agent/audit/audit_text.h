// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/audit_text.h
//
// Paragraphs for terminals. Not installed.
#ifndef KIPT_AGENT_AUDIT_AUDIT_TEXT_H_
#define KIPT_AGENT_AUDIT_AUDIT_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace kipt::agent {

// `text` in lines of at most 96 columns, each indented by `indent` spaces, the first led in by
// `lead`, which stands in that indentation; ends with a newline. Words are not cut.
std::string Wrapped(absl::string_view text, size_t indent, absl::string_view lead = "");

// What other people put into the kernel, fit for a terminal: control characters as "\x1b".
std::string Printable(absl::string_view text);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_TEXT_H_
