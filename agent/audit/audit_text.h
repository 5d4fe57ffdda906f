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

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_TEXT_H_
