// SPDX-License-Identifier: Apache-2.0
//
// What on this node depends on kubelet's chains, in both iptables modes, collected from surveys.
#ifndef KIPT_AGENT_POLICY_DEPENDENTS_H_
#define KIPT_AGENT_POLICY_DEPENDENTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "netlink/ruleset.h"
#include "netlink/survey.h"

namespace kipt::agent {

// A rule that is not kubelet's and jumps to a chain that is.
struct Reference {
  netlink::ChainId chain;
  // "ip nat CNI-DN-0123": the chain that has the rule.
  std::string from;
  std::string rule;

  // From a chain of kube-proxy's.
  bool kube_proxy = false;

  auto operator<=>(const Reference&) const = default;
};

// A foreign rule that may set bits of the packet mark, or labels of the packet's connection; or
// what sets bits without a rule (detect/device_marks.h).
struct Marking {
  // "ip mangle PREROUTING", "the WireGuard interface wg0".
  std::string from;
  std::string rule;
  // One of the two.
  uint32_t bits = 0;
  netlink::ConnLabelSet labels = {};
  // Packets of which families it sees.
  bool ipv4 = true;
  bool ipv6 = true;

  bool operator==(const Marking&) const = default;
};

// A CNI configuration that names a chain of kubelet's.
struct CniReference {
  // "/etc/cni/net.d/10-containerd-net.conflist".
  std::string file;
  std::string plugin;        // its "type": "portmap"
  std::string chain;         // of table nat, both families
  std::string backend = {};  // "nftables" where it is set: portmap's

  auto operator<=>(const CniReference&) const = default;
};

// What the CNI configuration directories say.
struct CniConfigs {
  // The existing directories that were read.
  std::vector<std::string> directories = {};
  std::vector<CniReference> references = {};
  // Why a directory or file (with path) could not be read or understood: it counts as a claim.
  std::vector<std::string> problems = {};
  // Usual directories that the node may have and this process cannot see: they count as a claim.
  std::vector<std::string> hidden = {};

  bool AllRead() const { return problems.empty() && hidden.empty(); }
  bool operator==(const CniConfigs&) const = default;
};

// For which interfaces the kernel accepts packets for 127.0.0.0/8: net.ipv4.conf.*.route_localnet.
struct RouteLocalnet {
  // It is 1, sorted, without lo. "default": for those to come; {"all"}: for every one.
  std::vector<std::string> interfaces = {};
  // Why it may be 1 for others; empty where all was read.
  std::string unread = {};

  // It is certainly 1 for none.
  bool empty() const { return interfaces.empty() && unread.empty(); }
  bool operator==(const RouteLocalnet&) const = default;
};
// "route_localnet is 1 for eth0, eth1"; "route_localnet may be 1: ..." where it was not read.
std::string ToString(const RouteLocalnet& setting);

struct Dependents {
  // A few for each chain, sorted.
  std::vector<Reference> references = {};
  // How many there are, without kube-proxy's; chains without any are left out.
  std::map<netlink::ChainId, uint64_t> reference_counts = {};
  // A few, sorted.
  std::vector<Marking> mark_setters = {};
  std::vector<Marking> label_setters = {};
  CniConfigs cni = {};
  // ReadRouteLocalnet.
  RouteLocalnet route_localnet = {};
  // A rule that is not kubelet's in an iptables table of any family: "ip nat KUBE-SVC-1: -A ...".
  // Empty: no other program uses this iptables mode.
  std::string rule_of_others = {};
  // In which families no rule of another program switches connection tracking on, without which the
  // kernel runs no chain of type nat, and such a chain of another program has a rule: that rule.
  std::map<netlink::Family, std::string> untracked = {};

  bool operator==(const Dependents&) const = default;
};

// Collects Dependents from surveys while they are taken, without keeping their rules.
//
// Not counted: kubelet's own rules, in any form; kube-proxy's in the chains they share; the table
// of kube-proxy's nftables mode, which masquerades what it marks (since 1.29). A chain of kubelet's
// that marks in the other mode counts if a jump, a map or a CNI configuration leads there, unless
// only kube-proxy jumps to KUBE-MARK-MASQ, and every packet reaches what acts on that mark there.
class DependentsCollector {
 public:
  // For Backend::TakeSurvey of the mode whose chains may be retired. Refers to this collector.
  netlink::SurveyFilter ManagedMode();
  // For that of the other mode: packets have one mark, and connections one set of labels, in both.
  netlink::SurveyFilter OtherMode();
  // For the surveys that these filters kept.
  void NoteManagedMode(const netlink::Survey& survey);
  void NoteOtherMode(const netlink::Survey& survey);
  // What sets bits without a rule.
  void Note(const Marking& marking);
  // The other mode cannot be read: it may set any mark and label.
  void OtherModeUnreadable(const std::string& why);
  // `cni` and `route_localnet` are passed on unchanged.
  Dependents Finish(CniConfigs cni, RouteLocalnet route_localnet) const;

 private:
  struct Place;
  void NoteReference(const Place& place, const netlink::SurveyRule& rule);
  void NoteMarkings(const Place& place, const netlink::SurveyRule& rule, bool managed_mode);
  void NoteOtherJump(const Place& place, const netlink::SurveyRule& rule);
  void NoteRuleOfOthers(const Place& place, const netlink::SurveyRule& rule, bool managed_mode);
  void NoteNatTables(const netlink::Survey& survey);

  std::vector<Reference> references_;
  std::map<netlink::ChainId, uint64_t> counts_;
  std::map<netlink::ChainId, uint64_t> kube_proxy_counts_;
  // Rules that set marks or labels.
  std::vector<Marking> setters_;
  // Kubelet's marking chains in the other mode: what they set, and what jumps to them.
  std::vector<std::pair<netlink::ChainId, Marking>> other_marking_;
  std::set<netlink::ChainId> other_targets_;
  std::set<netlink::TableId> other_maps_;
  // The other mode's KUBE-MARK-MASQ, where kube-proxy jumps to it, and the bits that every marked
  // packet is masqueraded by there.
  std::set<netlink::ChainId> kube_proxys_targets_;
  std::map<netlink::Family, uint32_t> masqueraded_;
  std::string rule_of_others_;
  // The first rule of others in each table, of those that do not switch connection tracking on.
  std::map<netlink::TableId, std::string> untracking_;
  std::set<netlink::TableId> nat_tables_;
  std::set<std::string> tracked_;  // TableId::family
};

// Whether the kernel tracks the connections of the rule's family for as long as the rule exists
// (nf_ct_netns_get of its match or target). False where that is not known.
bool TracksConnections(const netlink::ObservedRule& rule);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_DEPENDENTS_H_
