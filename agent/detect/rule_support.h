// SPDX-License-Identifier: Apache-2.0
//
// Which modules the running kernel has, by reading files only: a request to a part of netfilter
// that is not loaded makes the kernel run modprobe.
//
// iptables-nft makes rules with xtables' matches, which nf_tables runs through nft_compat. Cloud
// images of the RHEL 10 class have neither nft_compat nor xt_*, so they can hold chains (and the
// hint) but no rules. A few other kernels lack connlabel.
#ifndef KIPT_AGENT_DETECT_RULE_SUPPORT_H_
#define KIPT_AGENT_DETECT_RULE_SUPPORT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/policy/policy.h"
#include "netlink/backend.h"

namespace kipt::agent {

enum class ModuleState : uint8_t {
  kPresent,        // loaded, or built in
  kNothingToLoad,  // this kernel loads no modules, so a request is harmless
  kLoadable,       // not loaded; on disk, or that is unknown
  kMissing,        // not loaded, and not among the modules of this kernel
  kUnknown,        // neither modules.builtin nor the kernel's symbols can be read
};

struct KernelPaths {
  // proc(5). Of it: `modules`, which a kernel without loadable modules lacks; `version`;
  // `sys/kernel/modules_disabled`; and `kallsyms`, where symbols of modules end in "[MODULE]".
  std::string proc = "/proc";
  // Has a directory for each module that is loaded, and for some that are built in.
  std::string sys_module = "/sys/module";
  // Directories with modules.builtin and modules.dep of the running kernel (depmod(8)). The first
  // that has a file counts.
  std::vector<std::string> module_directories;
};

// This machine's, with the module directories under `host_root` before this process's own.
KernelPaths SystemKernelPaths(absl::string_view host_root);

struct ModuleQuery {
  absl::string_view module;
  // A function that every build of the module has: without modules.builtin, as in most containers,
  // it shows whether the module is built in.
  absl::string_view symbol;
};

struct ModuleReading {
  ModuleState state = ModuleState::kUnknown;  // never kNothingToLoad
  // "xt_nfacct is not loaded and not in /lib/modules/6.1.0/modules.dep"
  std::string reason = {};
};

// One for each query; reads the kernel's symbols at most once.
std::vector<ModuleReading> ReadModules(const KernelPaths& paths,
                                       absl::Span<const ModuleQuery> queries);

// `symbol` as ModuleQuery's.
ModuleState FindModule(const KernelPaths& paths, absl::string_view module,
                       absl::string_view symbol);

enum class XtCompat : uint8_t {
  kPresent,  // loaded, built in, or loadable
  kAbsent,   // not among the modules of this kernel
  kUnknown,  // only a transaction can show it: NotFound for a match means absent
};

struct XtCompatReading {
  XtCompat compat = XtCompat::kUnknown;
  // Which module decides, and how that is known: "nft_compat is not loaded and not in
  // /lib/modules/6.1.0/modules.dep".
  std::string reason = {};

  bool operator==(const XtCompatReading&) const = default;
};

// Whether to read the kernel's symbols (40 ms) if no other file shows what is built in. kSkip: the
// caller tries a transaction, which is faster.
enum class KernelSymbols : uint8_t { kRead, kSkip };

// Whether the kernel has nft_compat and the matches that kubelet's rules need: xt_comment,
// xt_conntrack, and xt_mark (xt_MARK and xt_MASQUERADE come with it and with xt_nat).
XtCompatReading ReadXtCompat(const KernelPaths& paths,
                             KernelSymbols symbols = KernelSymbols::kRead);

// Whether the kernel has the match connlabel (xt_connlabel), and so keeps labels
// (net/netfilter/Kconfig). Also absent if the file of label names at `label_names_path` would keep
// iptables from printing such a rule (ConnLabelNamesProblem).
XtCompatReading ReadConnLabelMatch(const KernelPaths& paths, const std::string& label_names_path,
                                   KernelSymbols symbols = KernelSymbols::kRead);

// What the node can hold, by files and, where they are inconclusive, by what transactions showed.
// The reconciler asks it when rules are to be added.
class SupportSource {
 public:
  // `read` reads all matches; `read_conn_label`, only called if labels are desired, connlabel.
  explicit SupportSource(
      std::function<XtCompatReading()> read = [] { return XtCompatReading(); },
      std::function<XtCompatReading()> read_conn_label = [] { return XtCompatReading(); })
      : read_(std::move(read)), read_conn_label_(std::move(read_conn_label)) {}

  // Everything, until the first Read.
  const RuleSupport& known() const { return known_; }

  // Reads again. Returns whether `known` has changed.
  bool Read(netlink::BackendKind kind, bool labels_desired);
  // The same, but only if nothing was read since the last ReadAgain, and silently (TakeNews).
  bool ReadOnce(netlink::BackendKind kind, bool labels_desired);
  // The configuration has changed: the next ReadOnce reads again.
  void ReadAgain() { looked_ = false; }

  // What transactions showed; each call ends with Read. The kernel refused a rule because its match
  // is missing, which counts if files are inconclusive:
  bool NoteRefusal(netlink::BackendKind kind, bool labels_desired) {
    refused_ = true;
    return Read(kind, labels_desired);
  }
  // A rule proves that there are matches (Diff::support_disproved), whatever files show:
  bool NoteDisproof(netlink::BackendKind kind, bool labels_desired) {
    disproved_ = true;
    return Read(kind, labels_desired);
  }
  // A rule was refused with `refusal` because connlabel is missing, which counts until the files
  // change, or a Read without labels:
  bool NoteConnLabelRefusal(netlink::BackendKind kind, absl::string_view refusal);

  // For the log: what Read has changed since the last call; may be empty.
  std::string TakeNews() { return std::exchange(news_, ""); }

 private:
  // All matches, and connlabel.
  using Readings = std::pair<XtCompatReading, XtCompatReading>;
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

// Without a source, everything.
inline RuleSupport KnownSupport(const SupportSource* source) {
  return source != nullptr ? source->known() : RuleSupport();
}

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_RULE_SUPPORT_H_
