// SPDX-License-Identifier: Apache-2.0
//
// What all layouts have in common: the chains of endpoints, and how one of them is chosen.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_ENDPOINT_RULES_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_ENDPOINT_RULES_H_

#include <string>
#include <vector>

#include "tests/skew/kube_proxy/port_words.h"
#include "tests/skew/kube_proxy/restore_text.h"

namespace kipt::skew {

// The endpoint's own chain: its traffic to itself is masqueraded (hairpin), and all is sent to it.
void WriteEndpoint(const PortWords& words, const Endpoint& endpoint, TableText* nat);

// In a chain of the service: who was here before goes where it was (affinity), all others at
// random.
void WriteBalancing(const PortWords& words, const std::string& chain,
                    const std::vector<Endpoint>& endpoints, TableText* nat);

// filter KUBE-NODEPORTS lets the port of the health check in: from 1.21 on.
void WriteHealthCheck(const PortWords& words, TableText* filter);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_ENDPOINT_RULES_H_
