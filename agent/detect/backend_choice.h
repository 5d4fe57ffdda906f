// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/backend_choice.h
//
// Which Backend a command works through, and what the other iptables mode holds.
#ifndef KIPT_AGENT_DETECT_BACKEND_CHOICE_H_
#define KIPT_AGENT_DETECT_BACKEND_CHOICE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/detect/iptables_mode.h"
#include "agent/detect/mode_evidence.h"
#include "agent/policy/diff.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

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

// The kubelet chains of `families` in `snapshot`, which holds what ChainsToRead() asks for.
OtherMode ListOtherMode(netlink::BackendKind kind, absl::Span<const netlink::Family> families,
                        const netlink::Snapshot& snapshot);

// Whether the iptables of `kind` may hold anything in one of `families`, be it in raw or
// security; creates and loads nothing. FailedPrecondition, Unavailable: it holds nothing. Else a
// status that says why it is not known.
absl::Status CheckModeIsThere(netlink::BackendKind kind, absl::Span<const netlink::Family> families,
                              const ModeSources& sources);

// Whether `error`, met when the backend of `kind` was opened or read, means that it holds nothing:
// a kernel without nf_tables reports it only then. iptables-legacy that fails may hold anything.
bool HoldsNothing(netlink::BackendKind kind, const absl::Status& error);

// Opens the backend of `kind`.
BackendOrError OpenMode(netlink::BackendKind kind, const ModeSources& sources);

// Reads the iptables that `managed` is not; creates and loads nothing.
OtherMode ReadOtherMode(netlink::BackendKind managed, absl::Span<const netlink::Family> families,
                        const ModeSources& sources);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_BACKEND_CHOICE_H_
