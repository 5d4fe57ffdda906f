// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/mode_evidence.h
//
// Gathers what DecideMode weighs, opens the backend of the iptables in use, and reads what the
// other one holds. Nothing that is done here leaves a trace:
//
//   * A chain that is asked for is not created, nor is its table. iptables-legacy-save -t TABLE
//     does create TABLE, so ip_tables_names is read first, and a table that is not in it is not
//     looked at. It is the calling thread's: /proc/net is the main thread's.
//   * Any request to nf_tables loads the module where it is not loaded. So the kernel's own lists
//     are read first (rule_support.h); where nf_tables is not loaded there is nothing to be seen
//     in it, in any namespace, and nothing is asked.
//   * The host's iptables program is recognised by its links and never run. A container's own
//     program is not looked at.
#ifndef KIPT_AGENT_DETECT_MODE_EVIDENCE_H_
#define KIPT_AGENT_DETECT_MODE_EVIDENCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/detect/host_files.h"
#include "agent/detect/iptables_mode.h"
#include "agent/detect/rule_support.h"
#include "agent/policy/diff.h"
#include "agent/process/command.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

using BackendOrError = absl::StatusOr<std::unique_ptr<netlink::Backend>>;
using ChainsOrError = absl::StatusOr<std::vector<netlink::ListedChain>>;

// Where evidence is found. Tests give their own.
struct ModeSources {
  HostRoot host_root;
  KernelPaths kernel;
  // As IptablesLegacyOptions::table_names_path.
  std::string table_names_path = "/proc/thread-self/net/%s_tables_names";
  std::function<BackendOrError()> open_nft;
  std::function<ChainsOrError(netlink::Family)> list_nft;
  std::function<BackendOrError()> open_legacy;
  // Whether iptables-nft can hold rules.
  std::function<XtCompatReading(KernelSymbols)> xt_compat;
  // Whether rules about connection labels can be had, with either iptables.
  std::function<XtCompatReading(KernelSymbols)> conn_label_match;
  // Those of the iptables-legacy tables that exist.
  std::function<ChainsOrError(netlink::Family)> list_legacy;
};

// This machine, as seen from the calling thread's network namespace. `host_root` is the value of
// --host-root; nothing: see OwnHostRoot. `runner` must outlive the result. `legacy` is how
// iptables-legacy is read and written.
ModeSources SystemModeSources(const std::optional<std::string>& host_root, CommandRunner* runner,
                              IptablesLegacyOptions legacy = {});

enum class Thoroughness : uint8_t {
  // Rules, of which there may be tens of thousands, only where neither hint nor canary stands.
  kUntilDecided,
  kAll,
};

ModeQuestion GatherEvidence(netlink::Family family, std::optional<IptablesMode> flag,
                            const ModeSources& sources, Thoroughness thoroughness);

// GatherEvidence and DecideMode, for each family.
std::vector<FamilyMode> DetectModes(absl::Span<const netlink::Family> families,
                                    std::optional<IptablesMode> flag, const ModeSources& sources,
                                    Thoroughness thoroughness);

// Whether nf_tables can be asked without loading it. Unavailable: this kernel has none.
// FailedPrecondition: it is not loaded, so there is nothing in it. Unknown: it cannot be told.
absl::Status CheckNftIsThere(const ModeSources& sources);

// The tables that iptables-legacy has in `family`, raw and security too, in the calling thread's
// network namespace. Unavailable: this kernel has no iptables-legacy. Else a status that says why
// it is not known: PermissionDenied, for the file is root's.
absl::StatusOr<std::vector<std::string>> IptablesLegacyTableNames(netlink::Family family,
                                                                  const ModeSources& sources);

// One mode for all families, kNft or kLegacy, of what was detected for each. A family in which
// nothing tells goes with the others; where nothing tells in any, nft. (A kernel that lacks one of
// the two tells.)
//
// FailedPrecondition, with what to give on the command line: a family is unknown, or two families
// use different modes.
absl::StatusOr<IptablesMode> ChooseMode(absl::Span<const FamilyMode> modes);

struct BackendRequest {
  // Empty for --iptables-mode=auto.
  std::optional<IptablesMode> flag = {};
  std::vector<netlink::Family> families = {};
  // Nothing is wanted (--make-iptables-util-chains=false): a mode that is unknown is no error, nft
  // is looked at.
  bool off = false;
  // Only looks: nf_tables is not loaded for that. Where it is not there, the backend shows an empty
  // node.
  bool read_only = false;
};

// The backend of --iptables-mode or, for auto, of ChooseMode. Errors are ChooseMode's,
// NewNftBackend's and NewIptablesLegacyBackend's.
absl::StatusOr<std::unique_ptr<netlink::Backend>> ChooseBackend(const BackendRequest& request,
                                                                const ModeSources& sources);

// Does `work` with the backend of `kind`, where the iptables of that kind may hold anything in one
// of `families`, be it in raw or security; creates and loads nothing. Not called, and OK, where it
// holds nothing: a kernel without nf_tables may report that only when it is asked, so Unavailable
// of nft's `work` is OK, too. (iptables-legacy that fails may hold anything.) Else the error of
// `work`, or why it was not called.
absl::Status VisitMode(netlink::BackendKind kind, absl::Span<const netlink::Family> families,
                       const ModeSources& sources,
                       absl::FunctionRef<absl::Status(netlink::Backend& backend)> work);

// The kubelet chains of `families` in the iptables that `managed` is not; creates and loads
// nothing.
OtherMode ReadOtherMode(netlink::BackendKind managed, absl::Span<const netlink::Family> families,
                        const ModeSources& sources);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_MODE_EVIDENCE_H_
