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

namespace kipt::agent {

// Finds out what the node can hold, and remembers it: from files, and from what transactions
// showed where files tell nothing. The reconciler asks it when rules are to be added.
class SupportSource {
 public:
  // What files tell: `read` of all matches (legacy iptables does not need it), `read_conn_label` of
  // connlabel, which is called only where labels are desired. Without them nobody knows.
  explicit SupportSource(std::function<XtCompatReading()> read = nullptr,
                         std::function<XtCompatReading()> read_conn_label = nullptr)
      : read_(std::move(read)), read_conn_label_(std::move(read_conn_label)) {}

  // Until the first Look: everything.
  const RuleSupport& known() const { return known_; }

  // Reads again. True: `known` has changed. `iptables_mode` is the Backend's.
  bool Look(absl::string_view iptables_mode, bool labels_desired);
  // The same, once: afterwards what is known counts until somebody calls Look.
  bool LookOnce(absl::string_view iptables_mode, bool labels_desired);
  // The next LookOnce reads again, for another configuration.
  void LookAnew() { looked_ = false; }

  // What a transaction showed, followed by Look.
  //
  // The kernel refused a rule because its match is missing: counts where files tell nothing.
  bool NoteRefusal(absl::string_view iptables_mode, bool labels_desired);
  // A rule that stands proves that there are matches (Plan::support_disproved): where files say
  // that there are none, that is no answer from then on.
  bool NoteDisproof(absl::string_view iptables_mode, bool labels_desired);
  // A rule was refused because connlabel is missing, whatever files tell: modprobe may have failed,
  // or legacy iptables may lack its extension. Counts until files tell something else than now, or
  // labels were not desired for a while. `refusal` is what was said.
  bool NoteConnLabelRefusal(absl::string_view iptables_mode, absl::string_view refusal);

  // For the log: what has changed since the last call, other than by LookOnce. Empty: nothing.
  std::string TakeNews() { return std::exchange(news_, ""); }

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

  XtCompatReading Read() const { return read_ ? read_() : XtCompatReading(); }
  XtCompatReading ReadConnLabel() const {
    return read_conn_label_ ? read_conn_label_() : XtCompatReading();
  }
  RuleSupport Now(absl::string_view iptables_mode, bool labels_desired);

  std::function<XtCompatReading()> read_;
  std::function<XtCompatReading()> read_conn_label_;
  RuleSupport known_;
  bool looked_ = false;
  bool refused_ = false;
  bool disproved_ = false;
  std::optional<Refusal> conn_label_refusal_;
  std::string news_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_RULE_SUPPORT_H_
