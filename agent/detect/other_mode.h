// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/other_mode.h
//
// Looks into the iptables mode that is not managed; nothing is done to it.
#ifndef KIPT_AGENT_DETECT_OTHER_MODE_H_
#define KIPT_AGENT_DETECT_OTHER_MODE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/detect/mode_evidence.h"
#include "agent/policy/other_mode.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// The kubelet chains of `families` in `snapshot`, which holds what ChainsToRead() asks for.
OtherMode ListOtherMode(absl::string_view iptables_mode, absl::Span<const netlink::Family> families,
                        const netlink::Snapshot& snapshot);

// Whether `mode`, "nft" or "legacy", may hold anything in one of `families`, be it in raw or
// security; creates and loads nothing. FailedPrecondition, Unavailable: it holds nothing. Else a
// status that says why it is not known.
absl::Status CheckModeIsThere(absl::string_view mode, absl::Span<const netlink::Family> families,
                              const ModeSources& sources);

// Whether `error`, met when `mode` was opened or read, says that it holds nothing: a kernel without
// nf_tables says so only then. Legacy iptables that fails may hold anything.
bool HoldsNothing(absl::string_view mode, const absl::Status& error);

// Opens the backend of `mode`.
BackendOrError OpenMode(absl::string_view mode, const ModeSources& sources);

// Looks into the mode that `managed` is not; creates and loads nothing.
OtherMode ReadOtherMode(absl::string_view managed, absl::Span<const netlink::Family> families,
                        const ModeSources& sources);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_OTHER_MODE_H_
