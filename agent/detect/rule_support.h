// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/rule_support.h
//
// Whether iptables-nft can make rules at all on this kernel: its matches are xtables', which
// nf_tables runs through nft_compat. Cloud images of the RHEL 10 class have neither nft_compat nor
// xt_*: a bare chain can be made there, so the hint chain too, but no rule. And whether there is
// one match more, which few kernels lack and few people miss: connlabel.
#ifndef KIPT_AGENT_DETECT_RULE_SUPPORT_H_
#define KIPT_AGENT_DETECT_RULE_SUPPORT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "agent/detect/kernel_modules.h"
#include "agent/policy/policy.h"
#include "netlink/backend.h"

namespace kipt::agent {

enum class XtCompat : uint8_t {
  kPresent,  // loaded, built in, or loadable
  kAbsent,   // not among the modules of this kernel
  kUnknown,  // nobody knows but a transaction: NotFound for a match means absent
};

struct XtCompatReading {
  XtCompat compat = XtCompat::kUnknown;
  // Which module it hangs on, and how that is known: "nft_compat is not loaded and not in
  // /lib/modules/6.1.0/modules.dep".
  std::string reason = {};

  bool operator==(const XtCompatReading&) const = default;
};

// Whether the kernel's symbols may be read, some 40 ms, where nothing else tells what is built in.
// kSkip is for those who will try: the kernel tells them sooner.
enum class KernelSymbols : uint8_t { kRead, kSkip };

// By files only; loads nothing. Looks at nft_compat and at the matches that kubelet's rules need:
// xt_comment, xt_conntrack, and xt_mark (xt_MARK and xt_MASQUERADE are its and xt_nat's).
XtCompatReading ReadXtCompat(KernelPaths paths, KernelSymbols symbols = KernelSymbols::kRead);

// The same of the match connlabel alone, xt_connlabel, which legacy iptables needs as well. That
// the kernel keeps labels at all (CONFIG_NF_CONNTRACK_LABELS) goes with it: the module's own option
// selects that one (net/netfilter/Kconfig). `reason` also says how it is there.
//
// Absent, too, where iptables of either kind could not print a rule with that match for what is in
// its file of names, at `label_names_path` (ConnLabelNamesProblem): such a rule must not be made.
XtCompatReading ReadConnLabelMatch(KernelPaths paths, const std::string& label_names_path,
                                   KernelSymbols symbols = KernelSymbols::kRead);

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

  // Reads again. True: `known` has changed. `kind` is the Backend's.
  bool Look(netlink::BackendKind kind, bool labels_desired);
  // The same, once: afterwards what is known counts until somebody calls Look.
  bool LookOnce(netlink::BackendKind kind, bool labels_desired);
  // The next LookOnce reads again, for another configuration.
  void LookAnew() { looked_ = false; }

  // What a transaction showed, followed by Look.
  //
  // The kernel refused a rule because its match is missing: counts where files tell nothing.
  bool NoteRefusal(netlink::BackendKind kind, bool labels_desired);
  // A rule that stands proves that there are matches (Plan::support_disproved): where files say
  // that there are none, that is no answer from then on.
  bool NoteDisproof(netlink::BackendKind kind, bool labels_desired);
  // A rule was refused because connlabel is missing, whatever files tell: modprobe may have failed,
  // or legacy iptables may lack its extension. Counts until files tell something else than now, or
  // labels were not desired for a while. `refusal` is what was said.
  bool NoteConnLabelRefusal(netlink::BackendKind kind, absl::string_view refusal);

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
  RuleSupport Now(netlink::BackendKind kind, bool labels_desired);

  std::function<XtCompatReading()> read_;
  std::function<XtCompatReading()> read_conn_label_;
  RuleSupport known_;
  bool looked_ = false;
  bool refused_ = false;
  bool disproved_ = false;
  std::optional<Refusal> conn_label_refusal_;
  std::string news_;
};

// Without a source the node can hold everything.
inline RuleSupport KnownSupport(const SupportSource* source) {
  return source != nullptr ? source->known() : RuleSupport();
}

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_RULE_SUPPORT_H_
