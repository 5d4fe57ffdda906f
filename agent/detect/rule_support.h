// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/rule_support.h
//
// From what is known of the kernel to what policy wants to know: can iptables hold rules here, and
// rules about connection labels.
#ifndef KIPT_AGENT_DETECT_RULE_SUPPORT_H_
#define KIPT_AGENT_DETECT_RULE_SUPPORT_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "agent/detect/xt_compat.h"
#include "agent/policy/policy.h"
#include "netlink/backend.h"

namespace kipt::agent {

// `kind` is the Backend's. The iptables-legacy backend can always hold rules; with nft they are
// tried if that is not known.
RuleSupport SupportFor(netlink::BackendKind kind, const XtCompatReading& reading, HintPolicy hint);

// Adds what ReadConnLabelMatch says, for whom labels are wanted. Where nobody knows they are tried
// (Reconciler::Sync).
void AddConnLabelSupport(const XtCompatReading& reading, RuleSupport& support);

// Both over the life of a process: what a transaction showed counts where files tell nothing.
class SupportWatch {
 public:
  // `read_conn_label` is called only where labels are wanted.
  SupportWatch(std::function<XtCompatReading()> read,
               std::function<XtCompatReading()> read_conn_label)
      : read_(std::move(read)), read_conn_label_(std::move(read_conn_label)) {}

  const RuleSupport& support() const { return support_; }

  // Reads again. True: `support` has changed.
  bool Look(netlink::BackendKind kind, HintPolicy hint, bool labels_wanted);
  // The kernel refused a rule for want of its match; Look takes that for an answer where it finds
  // none, from then on.
  void NoteRefusal() { refused_ = true; }
  // Plan::support_disproved: where files say that there is none, Look takes that for no answer,
  // from then on.
  void NoteDisproof() { disproved_ = true; }
  // The same of connlabel, and whatever Look finds: modprobe may have failed, or legacy iptables
  // may lack its extension. It counts until files tell something else than now, or labels were not
  // wanted for a while. `refusal` is what was said.
  void NoteConnLabelRefusal(absl::string_view refusal);

 private:
  // What files tell, of all matches and of connlabel.
  struct Readings {
    XtCompatReading xt;
    XtCompatReading conn_label;

    bool operator==(const Readings&) const = default;
  };
  struct Refusal {
    Readings at;
    std::string said;
  };

  std::function<XtCompatReading()> read_;
  std::function<XtCompatReading()> read_conn_label_;
  RuleSupport support_;
  bool refused_ = false;
  bool disproved_ = false;
  std::optional<Refusal> conn_label_refusal_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_RULE_SUPPORT_H_
