// SPDX-License-Identifier: Apache-2.0
//
// File: agent/visiting_backend.h
#ifndef KIPT_AGENT_VISITING_BACKEND_H_
#define KIPT_AGENT_VISITING_BACKEND_H_

#include <memory>

#include "agent/process/network_namespaces.h"
#include "netlink/backend.h"

namespace kipt::agent {

// `inner`, called inside the namespace only, whichever namespace its caller is in: for legacy
// iptables, whose programs run where the thread is that starts them. (nf_tables needs none of it:
// its sockets stay where they were made.) `visited` must outlive it and its monitors. Errors are
// those of `inner` and VisitedNamespace::Visit's.
std::unique_ptr<netlink::Backend> NewVisitingBackend(std::unique_ptr<netlink::Backend> inner,
                                                     const VisitedNamespace& visited);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_VISITING_BACKEND_H_
