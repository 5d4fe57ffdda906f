// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/cni_configs.h
//
// Which CNI configurations name a chain of kubelet's: `externalSetMarkChain` of the portmap plugin
// (containernetworking/plugins, plugins/meta/portmap) is the one way there is, and what it names
// must exist when the next pod with a host port starts. Any plugin's is believed.
#ifndef KIPT_AGENT_DETECT_CNI_CONFIGS_H_
#define KIPT_AGENT_DETECT_CNI_CONFIGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/detect/host_program.h"
#include "agent/policy/claims.h"

namespace kipt::agent {

// Where the CNI configurations of a node are found, relative to its root: /etc/cni/net.d
// (containerd, CRI-O), and the places of distributions that move it (k3s, RKE2, MicroK8s, ...).
absl::Span<const absl::string_view> KnownCniDirectories();

// The chains that one configuration names: a list ("plugins": [...]) or a single plugin. Takes any
// bytes. `file` only names it in the answer.
// InvalidArgument: not JSON, or no object, or an externalSetMarkChain that is no text.
absl::StatusOr<std::vector<CniReference>> ParseCniConfig(absl::string_view file,
                                                         absl::string_view text);

// Reads *.conflist, *.conf and *.json in the `given` directories or, where none are given, in those
// of the node: KnownCniDirectories under `root`, or a problem where the node's files cannot be seen
// from here. As libcni does, and since libcni 1.3 (CNI 1.1) also NETWORK/*.conf for the network of
// each *.conflist that does not have loadOnlyInlinedPlugins. A directory that does not exist is
// left out; one that cannot be read, a file that cannot be read or parsed, or is larger than 1 MiB,
// and a name that is no network's, is a problem.
CniConfigs ReadNodeCniConfigs(const HostRoot& root, const std::vector<std::string>& given = {});

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_CNI_CONFIGS_H_
