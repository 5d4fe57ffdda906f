// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/other_mode.h
//
// Looks into the iptables mode that is not managed; nothing is done to it.
#ifndef KIPT_AGENT_DETECT_OTHER_MODE_H_
#define KIPT_AGENT_DETECT_OTHER_MODE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "agent/detect/mode_evidence.h"
#include "agent/policy/other_mode.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

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

#endif  // KIPT_AGENT_DETECT_OTHER_MODE_H_
