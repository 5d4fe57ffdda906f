// SPDX-License-Identifier: Apache-2.0
//
// Gathers what DecideMode weighs, opens the backend of the iptables in use, and reads the other
// one, without creating or loading anything:
//
//   * iptables-legacy-save -t TABLE creates TABLE, so only tables listed in the calling thread's
//     ip_tables_names are read. (/proc/net is the main thread's.)
//   * A request to nf_tables loads the module, so the kernel's lists are read first
//     (rule_support.h). If it is not loaded, it holds nothing in any namespace.
//   * The host's iptables program is recognised by its links and never run. A container's own
//     program is not evidence.
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

// Where evidence is found.
struct ModeSources {
  HostRoot host_root;
  KernelPaths kernel;
  // As IptablesLegacyOptions::table_names_path.
  std::string table_names_path = "/proc/thread-self/net/%s_tables_names";
  std::function<BackendOrError()> open_nft;
  // The chains of nf_tables, at least up to the first that shows that the mode is in use.
  std::function<ChainsOrError(netlink::Family)> list_nft;
  std::function<BackendOrError()> open_legacy;
  // ReadXtCompat and ReadConnLabelMatch.
  std::function<XtCompatReading(KernelSymbols)> xt_compat;
  std::function<XtCompatReading(KernelSymbols)> conn_label_match;
  // The chains of the iptables-legacy tables that exist.
  std::function<ChainsOrError(netlink::Family)> list_legacy;
};

// This machine, in the calling thread's network namespace. `host_root` is --host-root's value, by
// default OwnHostRoot. `runner` must outlive the result.
ModeSources SystemModeSources(const std::optional<std::string>& host_root, CommandRunner* runner,
                              IptablesLegacyOptions legacy = {});

enum class Thoroughness : uint8_t {
  // As kUntilDecided, without the rules that show kubelet: cheap enough for every minute.
  kAgain,
  // Reads rules, possibly tens of thousands, only if there is neither hint nor canary nor a program
  // of the host's; of the mode that this does not select, also the few that show kubelet.
  kUntilDecided,
  kAll,
};

ModeQuestion GatherEvidence(netlink::Family family, std::optional<IptablesMode> flag,
                            const ModeSources& sources, Thoroughness thoroughness);

// GatherEvidence and DecideMode, for each family.
std::vector<FamilyMode> DetectModes(absl::Span<const netlink::Family> families,
                                    std::optional<IptablesMode> flag, const ModeSources& sources,
                                    Thoroughness thoroughness);

// OK: a request does not load nf_tables. Unavailable: this kernel has none. FailedPrecondition: it
// is not loaded, so it holds nothing. Unknown: files do not show it.
absl::Status CheckNftIsThere(const ModeSources& sources);

// The iptables-legacy tables of `family`, raw and security too, in the calling thread's network
// namespace. Unavailable: this kernel has no iptables-legacy. PermissionDenied: the file is root's.
absl::StatusOr<std::vector<std::string>> IptablesLegacyTableNames(netlink::Family family,
                                                                  const ModeSources& sources);

// Whether one of `families` has any. `unknown` gets the error of each family that cannot be read.
bool HasIptablesLegacyTables(const ModeSources& sources, std::vector<absl::Status>& unknown,
                             absl::Span<const netlink::Family> families = netlink::kFamilies);

// WhyUnknown of the first family in which kubelet writes in another mode than that of the host's
// program; empty where there is none, or `flag` is given.
std::string ModeContradiction(absl::Span<const netlink::Family> families,
                              std::optional<IptablesMode> flag, const ModeSources& sources);

// One mode for all families: kNft or kLegacy. A family without evidence follows the others; without
// any, nft. FailedPrecondition, with the flags to set: a family is unknown, or two families use
// different modes.
absl::StatusOr<IptablesMode> ChooseMode(absl::Span<const FamilyMode> modes);

struct BackendRequest {
  // Empty for --iptables-mode=auto.
  std::optional<IptablesMode> flag = {};
  std::vector<netlink::Family> families = {};
  // Nothing is desired (--make-iptables-util-chains=false), nor to be removed: an unknown mode is
  // no error but nft.
  bool off = false;
  // Does not load nf_tables: if it is not loaded, the backend shows an empty node.
  bool read_only = false;
};

// The backend of --iptables-mode or, for auto, of ChooseMode. Errors are ChooseMode's,
// NewNftBackend's and NewIptablesLegacyBackend's.
BackendOrError ChooseBackend(const BackendRequest& request, const ModeSources& sources);

// Does `work` with the backend of `kind` if that may hold anything in one of `families`, in raw and
// security too; otherwise OK. An Unavailable error of nft's `work` is OK, too: a kernel may report
// only then that it has no nf_tables.
absl::Status VisitMode(netlink::BackendKind kind, absl::Span<const netlink::Family> families,
                       const ModeSources& sources,
                       absl::FunctionRef<absl::Status(netlink::Backend& backend)> work);

// What `take` returns: again, up to five times, while it is Aborted, because other programs change
// the rules meanwhile.
absl::StatusOr<netlink::Survey> TakeSettled(
    absl::FunctionRef<absl::StatusOr<netlink::Survey>()> take);

// WhoDropsMartians in the iptables modes `kinds`; empty also where that cannot be read, which is no
// protection. Reads every chain, so a node whose martian rule is in place does without it.
std::string ReadWhoDropsMartians(const ModeSources& sources,
                                 absl::Span<const netlink::BackendKind> kinds = {
                                     netlink::BackendKind::kNft,
                                     netlink::BackendKind::kIptablesLegacy});

// The kubelet chains of `families` in the other iptables.
OtherMode ReadOtherMode(netlink::BackendKind managed, absl::Span<const netlink::Family> families,
                        const ModeSources& sources);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_MODE_EVIDENCE_H_
