// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/rule_support.h
//
// What the running kernel has of its modules, by reading files only: the first request to a part of
// netfilter that is not there makes the kernel run modprobe, in the host's namespaces and whoever
// asks. So this is read first.
//
// It decides whether iptables-nft can make rules at all: its matches are xtables', which nf_tables
// runs through nft_compat. Cloud images of the RHEL 10 class have neither nft_compat nor xt_*: a
// bare chain can be made there, so the hint chain too, but no rule. And whether there is one match
// more, which few kernels lack and few people miss: connlabel.
#ifndef KIPT_AGENT_DETECT_RULE_SUPPORT_H_
#define KIPT_AGENT_DETECT_RULE_SUPPORT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "agent/policy/policy.h"
#include "netlink/backend.h"

namespace kipt::agent {

enum class ModuleState : uint8_t {
  // Loaded, or built in.
  kPresent,
  // Built in or not there at all: this kernel loads no modules (any more), so asking is harmless.
  kNothingToLoad,
  // Not loaded. It is on disk, or nobody knows whether it is.
  kLoadable,
  // Not loaded, and not among the modules of this kernel.
  kMissing,
  // It may be built in, or not loaded: neither modules.builtin nor the kernel's symbols can be
  // read.
  kUnknown,
};

struct KernelPaths {
  // Lists what is loaded. A kernel without loadable modules has no such file.
  std::string proc_modules = "/proc/modules";
  // Exists where proc(5) is mounted at all.
  std::string proc_version = "/proc/version";
  // "1" where no module can be loaded any more.
  std::string modules_disabled = "/proc/sys/kernel/modules_disabled";
  // Has a directory for each module that is loaded, and for some that are built in.
  std::string sys_module = "/sys/module";
  // Symbols of modules end in "[MODULE]"; the others are built in.
  std::string kallsyms = "/proc/kallsyms";
  // Directories with modules.builtin and modules.dep of the running kernel (depmod(8)); the first
  // that has a file counts.
  std::vector<std::string> module_directories;
};

// The machine's, with the module directories under `host_root` before this process's own.
KernelPaths SystemKernelPaths(absl::string_view host_root);

// `symbol` is a function of the module that every build of it has, such as "nf_tables_newtable":
// where there is no modules.builtin, as in most containers, it tells whether the module is built
// in.
ModuleState FindModule(const KernelPaths& paths, absl::string_view module,
                       absl::string_view symbol);

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

// The same of the match connlabel alone, xt_connlabel, which iptables-legacy needs as well. That
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
  // What files tell: `read` of all matches (iptables-legacy does not need it), `read_conn_label` of
  // connlabel, which is called only where labels are desired. Without them nobody knows.
  explicit SupportSource(
      std::function<XtCompatReading()> read = [] { return XtCompatReading(); },
      std::function<XtCompatReading()> read_conn_label = [] { return XtCompatReading(); })
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
  // or iptables-legacy may lack its extension. Counts until files tell something else than now, or
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
