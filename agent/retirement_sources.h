// SPDX-License-Identifier: Apache-2.0
//
// File: agent/retirement_sources.h
//
// Who on this machine depends on kubelet's chains, as the reconciler asks for it.
#ifndef KIPT_AGENT_RETIREMENT_SOURCES_H_
#define KIPT_AGENT_RETIREMENT_SOURCES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "agent/detect/mode_evidence.h"
#include "agent/loop/reconciler.h"
#include "agent/policy/dependents.h"
#include "netlink/backend.h"

namespace kipt::agent {

// The CNI configurations of `directories` or, where none are given, of the node.
CniConfigs ReadCniConfigsFor(const std::vector<std::string>& directories,
                             const ModeSources& sources);

// For retirement with the backend of `kind`. What of the other mode cannot be read (legacy
// iptables, by a daemon that may run no programs) counts as claiming every mark. `sources` must
// outlive the result.
RetirementSources MakeRetirementSources(netlink::BackendKind kind,
                                        const std::vector<std::string>& cni_conf_dirs,
                                        const ModeSources& sources);

// Retires what stands of `families` in the mode that `managed` is not; nothing: nothing stands
// there. Nothing of kubelet's is wanted there, so hint and canary go too, which would lead programs
// that look for them into that mode. Where the managed mode drops martian packets
// (`martians_dropped`), that mode's rule against them may go.
std::optional<RetiredMode> RetireOtherMode(netlink::BackendKind managed,
                                           absl::Span<const netlink::Family> families,
                                           const std::vector<std::string>& cni_conf_dirs,
                                           const ModeSources& sources, bool martians_dropped,
                                           bool apply);

// The interfaces, or none where that cannot be read.
std::vector<std::string> RouteLocalnetOrNone();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_RETIREMENT_SOURCES_H_
