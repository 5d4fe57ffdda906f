// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/mode_evidence.h
//
// Gathers what DecideMode weighs. Nothing that is done here leaves a trace:
//
//   * A chain that is asked for is not created, nor is its table. iptables-legacy-save -t TABLE
//     does create TABLE, so ip_tables_names is read first, and a table that is not in it is not
//     looked at. It is the calling thread's: /proc/net is the main thread's.
//   * Any request to nf_tables loads the module where it is not loaded. So the kernel's own lists
//     are read first (kernel_modules.h); where nf_tables is not loaded there is nothing to be seen
//     in it, in any namespace, and nothing is asked.
//   * The host's iptables program is recognised by its links and never run. A container's own
//     program is not looked at.
#ifndef KIPT_AGENT_DETECT_MODE_EVIDENCE_H_
#define KIPT_AGENT_DETECT_MODE_EVIDENCE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/detect/host_program.h"
#include "agent/detect/iptables_mode.h"
#include "agent/detect/kernel_modules.h"
#include "agent/detect/rule_support.h"
#include "agent/process/command.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

using BackendOrError = absl::StatusOr<std::unique_ptr<netlink::Backend>>;
using ChainsByName = std::map<netlink::ChainId, netlink::ObservedChain>;

// Where evidence is found. Tests give their own.
struct ModeSources {
  HostRoot host_root;
  KernelPaths kernel;
  // As IptablesLegacyOptions::table_names_path.
  std::string table_names_path = "/proc/thread-self/net/%s_tables_names";
  std::function<BackendOrError()> open_nft;
  std::function<absl::StatusOr<std::vector<netlink::ListedChain>>(netlink::Family)> list_nft;
  std::function<BackendOrError()> open_legacy;
  // Whether iptables-nft can hold rules.
  std::function<XtCompatReading(KernelSymbols)> xt_compat;
  // Whether rules about connection labels can be had, with either iptables.
  std::function<XtCompatReading(KernelSymbols)> conn_label_match;
  // Everything in the legacy tables that exist.
  std::function<absl::StatusOr<ChainsByName>(netlink::Family)> list_legacy;
};

// This machine, as seen from the calling thread's network namespace. `host_root` is the value of
// --host-root; nothing: see OwnHostRoot. `runner` must outlive the result. `legacy` is how legacy
// iptables is read and written.
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

// The tables that legacy iptables has in `family`, raw and security too, in the calling thread's
// network namespace. Unavailable: this kernel has no legacy iptables. Else a status that says why
// it is not known: PermissionDenied, for the file is root's.
absl::StatusOr<std::vector<std::string>> IptablesLegacyTableNames(netlink::Family family,
                                                                  const ModeSources& sources);

// Those of them that are mangle, nat or filter.
absl::StatusOr<std::vector<netlink::Table>> RegisteredIptablesLegacyTables(
    netlink::Family family, const ModeSources& sources);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_MODE_EVIDENCE_H_
