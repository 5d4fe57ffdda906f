// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/rule_support.h
//
// From what is known of the kernel to what policy wants to know: can iptables hold rules here.
#ifndef KIPT_AGENT_DETECT_RULE_SUPPORT_H_
#define KIPT_AGENT_DETECT_RULE_SUPPORT_H_

#include <functional>
#include <utility>

#include "absl/strings/string_view.h"
#include "agent/detect/xt_compat.h"
#include "agent/policy/policy.h"

namespace kipt::agent {

// `iptables_mode` is the Backend's. Legacy iptables always holds rules; of nft, where nobody knows,
// they are tried.
RuleSupport SupportFor(absl::string_view iptables_mode, const XtCompatReading& reading,
                       HintPolicy hint);

// SupportFor over the life of a process: what a transaction showed counts where files tell nothing.
class SupportWatch {
 public:
  explicit SupportWatch(std::function<XtCompatReading()> read) : read_(std::move(read)) {}

  const RuleSupport& support() const { return support_; }

  // Reads again. True: `support` has changed.
  bool Look(absl::string_view iptables_mode, HintPolicy hint);
  // The kernel refused a rule for want of its match; Look takes that for an answer where it finds
  // none, from then on.
  void NoteRefusal() { refused_ = true; }

 private:
  std::function<XtCompatReading()> read_;
  RuleSupport support_;
  bool refused_ = false;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_RULE_SUPPORT_H_
