// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/xt_compat.h
//
// Whether iptables-nft can make rules at all on this kernel: its matches are xtables', which
// nf_tables runs through nft_compat. Cloud images of the RHEL 10 class have neither nft_compat nor
// xt_*: a bare chain can be made there, so the hint chain too, but no rule. And whether there is
// one match more, which few kernels lack and few people miss: connlabel.
#ifndef KIPT_AGENT_DETECT_XT_COMPAT_H_
#define KIPT_AGENT_DETECT_XT_COMPAT_H_

#include <cstdint>
#include <string>

#include "agent/detect/kernel_modules.h"

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

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_XT_COMPAT_H_
