// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/rule_support.h"

namespace kipt::agent {

RuleSupport SupportFor(absl::string_view iptables_mode, const XtCompatReading& reading,
                       HintPolicy hint) {
  const bool absent = iptables_mode != "legacy" && reading.compat == XtCompat::kAbsent;
  return {.xt = !absent, .reason = absent ? reading.reason : "", .hint = hint};
}

bool SupportWatch::Look(absl::string_view iptables_mode, HintPolicy hint) {
  XtCompatReading reading = read_();
  if (reading.compat == XtCompat::kUnknown && refused_) {
    reading = {.compat = XtCompat::kAbsent,
               .reason = "the kernel refused a rule of iptables-nft for want of a match"};
  }
  const RuleSupport before = std::exchange(support_, SupportFor(iptables_mode, reading, hint));
  return support_ != before;
}

}  // namespace kipt::agent
