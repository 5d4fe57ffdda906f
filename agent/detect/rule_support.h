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
