// SPDX-License-Identifier: Apache-2.0
//
// Manual pages of programs, from the description that their completions are made from: what a page
// says of commands and flags is what the program itself knows. Used while building; not installed.
#ifndef KIPT_DEPLOY_DEBIAN_MANUAL_PAGE_H_
#define KIPT_DEPLOY_DEBIAN_MANUAL_PAGE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "agent/config/completion.h"

namespace kipt::packages {

// `text` as man(7) takes it in running text: nothing in it is a request or an escape.
std::string Roff(absl::string_view text);

// `page` with %COMMANDS% and %OPTIONS% replaced by lists (.TP) of what `spec` has.
std::string ManualPage(const agent::CompletionSpec& spec, absl::string_view page);

// The program around it: copies standard input, a page, to standard output. For main() to return.
int RunManualPage(const agent::CompletionSpec& spec);

}  // namespace kipt::packages

#endif  // KIPT_DEPLOY_DEBIAN_MANUAL_PAGE_H_
