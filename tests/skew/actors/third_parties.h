// SPDX-License-Identifier: Apache-2.0
//
// Others on the node that meet kubelet's chains. All act in the calling thread's network namespace,
// the node's, in both families unless said.
#ifndef KIPT_TESTS_SKEW_ACTORS_THIRD_PARTIES_H_
#define KIPT_TESTS_SKEW_ACTORS_THIRD_PARTIES_H_

#include <string>

#include "tests/skew/actors/actors.h"

namespace kipt::skew {

// The real CNI plugin portmap, of /usr/lib/cni or /opt/cni/bin, maps a port of the node to a pod's
// for TCP and UDP: IPv4 alone, with `externalSetMarkChain: KUBE-MARK-MASQ`.
struct PortMapping {
  int host_port = 0;
  std::string pod_address;
  int pod_port = 0;
};
// Where it may be.
inline constexpr const char* kPluginDirectories[] = {"/usr/lib/cni", "/opt/cni/bin"};
// `pod_netns` is a path to the pod's namespace. The plugin runs this iptables.
Act AddPortmap(const IptablesChoice& iptables, const PortMapping& mapping,
               const std::string& pod_netns);
// Writes the conflist that names the chain into `directory`, as an administrator has it.
Act WriteCniConfig(const std::string& directory);

// A chain of somebody's own that leads packets to `port` of the node, TCP and UDP, to
// KUBE-MARK-DROP ("USER-DROPS"), or packets that are forwarded to `port` to KUBE-MARK-MASQ
// ("USER-MASQ"). Where kubelet's chain does not exist iptables refuses the rule: an Act that is
// not ok.
Act AddUserOfMarkDrop(const IptablesChoice& iptables, int port);
Act AddUserOfMarkMasq(const IptablesChoice& iptables, int port);

// The ports at which somebody leads packets to chains of ConnLabelMarking, first to last.
struct LabelledPorts {
  int drop_first = 0;
  int drop_last = 0;
  int masq_first = 0;
  int masq_last = 0;
};
// A chain of somebody's own ("USER-LABELS") that leads packets to these ports, TCP and UDP, whoever
// sends them to whom, to KUBELET-MARK-DROP and KUBELET-MARK-MASQ; refused where these do not exist.
Act AddUserOfLabels(const IptablesChoice& iptables, const LabelledPorts& ports);
// And its end.
Act RemoveUserOfLabels(const IptablesChoice& iptables);

// A firewall that starts over: mangle, nat and filter of this mode are emptied of rules (-F), then
// of chains (-X). Where somebody has put rules back in between, iptables refuses to delete the
// chains that these lead to; the script goes on, as such scripts do, and `done` says so.
Act FlushEverything(const IptablesChoice& iptables);
// One table of these.
Act FlushTable(const IptablesChoice& iptables, const std::string& table);

// `iptables-save | iptables-restore` by this iptables: what a firewall's "save" and "reload" do.
Act SaveAndRestore(const IptablesChoice& iptables);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ACTORS_THIRD_PARTIES_H_
