// SPDX-License-Identifier: Apache-2.0
//
// The structs of the C API as values of ours.
#ifndef KIPT_AGENT_CAPI_OPTIONS_H_
#define KIPT_AGENT_CAPI_OPTIONS_H_

#include "absl/status/statusor.h"
#include "agent/capi/kube_iptables_agent.h"
#include "agent/node_agent.h"

namespace kipt::agent {

// Null: the defaults. InvalidArgument: a size, number, count or pointer is wrong. NodeAgent checks
// the rest.
absl::StatusOr<NodeAgentOptions> OptionsFrom(const kube_iptables_agent_options* given);

// Null: no callbacks. InvalidArgument: a size is wrong.
absl::StatusOr<kube_iptables_agent_handlers> HandlersFrom(
    const kube_iptables_agent_handlers* given);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CAPI_OPTIONS_H_
