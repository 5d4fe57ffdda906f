// SPDX-License-Identifier: Apache-2.0
//
// What depends on kubelet's chains on this node, and the claims that follow: the reasons for which
// retirement (retirement.h) keeps something. Claims are per iptables mode, and those of labels and
// jumps per family. What cannot be read counts as a claim. Pure.
#ifndef KIPT_AGENT_POLICY_CLAIMS_H_
#define KIPT_AGENT_POLICY_CLAIMS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
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

  bool operator==(const Dependents&) const = default;
};

// Collects Dependents from surveys while they are taken, without keeping their rules.
//
// Not counted: kubelet's own rules, in any form; kube-proxy's in the chains they share; the table
// of kube-proxy's nftables mode, which masquerades what it marks (since 1.29). A chain of kubelet's
// that marks in the other mode counts if a jump or a CNI configuration leads there, unless only
// kube-proxy jumps to KUBE-MARK-MASQ: it brings what acts on that mark.
class DependentsCollector {
 public:
  // For Backend::TakeSurvey of the mode whose chains may be retired. Refers to this collector.
  netlink::SurveyFilter ManagedMode();
  // For that of the other mode: packets have one mark, and connections one set of labels, in both.
  netlink::SurveyFilter OtherMode();
  // Survey::jumping_maps of the other mode: any marking chain in these tables may be used.
  void NoteOtherMaps(const std::set<netlink::TableId>& tables);
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
  void NoteRuleOfOthers(const Place& place, const netlink::SurveyRule& rule);

  std::vector<Reference> references_;
  std::map<netlink::ChainId, uint64_t> counts_;
  std::map<netlink::ChainId, uint64_t> kube_proxy_counts_;
  // Rules that set marks or labels.
  std::vector<Marking> setters_;
  // Kubelet's marking chains in the other mode: what they set, and what jumps to them.
  std::vector<std::pair<netlink::ChainId, Marking>> other_marking_;
  std::set<netlink::ChainId> other_targets_;
  std::set<netlink::TableId> other_maps_;
  std::string rule_of_others_;
};

enum class ClaimKind : uint8_t {
  kForeignJump,       // a rule that is not kubelet's jumps to the chain
  kForeignRule,       // the chain holds one
  kCniConfig,         // a CNI configuration names the chain, or could not be read
  kKubeProxy,         // kube-proxy lives in this family, and uses the chain or rule as its own
  kKubeProxyRemains,  // its canary or its unused services exist: likely `kube-proxy --cleanup`
  kMarkedPackets,     // a chain or rule that marks packets stays, and this is what acts on the mark
  kLabelledPackets,   // the same of the connection's label
  kMartians,          // the kernel takes packets for 127.0.0.0/8 from neighbours
  kLiveKubelet,       // a live kubelet takes its absence for a flush
  kHintReaders,       // programs that choose their iptables mode by the hint: the mode is in use
};
absl::string_view ClaimKindName(ClaimKind kind);  // "foreignJump", ...

struct Claim {
  ClaimKind kind = ClaimKind::kForeignJump;
  // "jumped to by ip nat CNI-DN-0123: -A CNI-DN-0123 ... -j KUBE-MARK-MASQ".
  std::string text;

  bool operator==(const Claim&) const = default;
};

// What claims are found in, per family and mode. `observed` holds what ChainsToRead() asks for.
struct ClaimSources {
  netlink::Family family;
  const netlink::Snapshot& observed;
  const Dependents& dependents;
};

// Claims on kubelet's `chain`, observed so, with its jumps and its rules.
std::vector<Claim> ClaimsOnChain(const ClaimSources& sources, const netlink::ChainId& chain,
                                 const netlink::ObservedChain& observed);

// On a rule of filter/KUBE-FIREWALL that drops what bears `mark`.
std::vector<Claim> ClaimsOnDropMarkRule(const ClaimSources& sources, uint32_t mark);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_CLAIMS_H_
