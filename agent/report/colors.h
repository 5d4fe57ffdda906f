// SPDX-License-Identifier: Apache-2.0
//
// Colours of reports on a terminal (--color).
#ifndef KIPT_AGENT_REPORT_COLORS_H_
#define KIPT_AGENT_REPORT_COLORS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace kipt::agent {

// Whether standard output gets colours: `when` is auto, always or never. auto: a terminal does,
// unless NO_COLOR is set and not empty, or TERM is "dumb".
bool UsesColors(absl::string_view when);
enum class ColoredText : uint8_t { kPlanOrStatus, kAudit, kExplain };
// `text`, with colours if `color`. Foreign bytes in it must be escaped.
std::string Colored(bool color, ColoredText kind, std::string text);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_REPORT_COLORS_H_
