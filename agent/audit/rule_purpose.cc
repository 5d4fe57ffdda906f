// SPDX-License-Identifier: Apache-2.0
//
// What rules that lead to the marking chains are for.
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "agent/audit/explain_parts.h"

namespace kipt::agent {
namespace {

struct PurposeRow {
  Purpose purpose;
  absl::string_view name;
  absl::string_view title;
  absl::string_view reason;
};
constexpr std::array kPurposes = {
    PurposeRow{
        Purpose::kOutsidePodRange, "OutsidePodRange",
        "to a service's own address, from outside the pods (%s)",
        "The '!' leaves the pods out: a pod's packet reaches the endpoint with the pod's own "
        "address, and the answer comes back by the node it came from. Anybody else (the node "
        "itself, a machine that routes cluster IPs here) would be answered past this node, "
        "which alone can turn the endpoint's address back into the service's; with this "
        "node's address as its source, the packet is answered to this node."},
    PurposeRow{Purpose::kHairpin, "Hairpin", "a pod that reaches itself through its own service",
               "The source is the endpoint's own address: the pod called a service, and was itself "
               "chosen to answer. It would see a packet from itself to itself, and answer without "
               "the node ever turning the address back; with the node's address as its source, the "
               "packet is answered through the node."},
    PurposeRow{
        Purpose::kExternal, "External",
        "from outside the cluster, to a node port, external IP or load balancer",
        "Any source (0.0.0.0/0 in iptables -L): clients are outside, and the endpoint may be "
        "on another node, which would answer them directly. The endpoint sees this node's "
        "address instead of the client's; externalTrafficPolicy: Local would keep the "
        "client's."},
    PurposeRow{
        Purpose::kExternalFromNode, "ExternalFromNode",
        "from this node itself, to an external address of a service",
        "The service keeps clients' addresses (externalTrafficPolicy: Local), but what this "
        "node itself sends may go to endpoints on any node, and their answers must come back "
        "to this one."},
    PurposeRow{Purpose::kExternalIp, "ExternalIP", "to a service's external IP",
               "Any source: clients are outside, and the endpoint may be on another node, which "
               "would answer them directly."},
    PurposeRow{
        Purpose::kLoadBalancer, "LoadBalancer", "to a service's load balancer address",
        "Any source (0.0.0.0/0 in iptables -L): clients are outside, and the endpoint may be "
        "on another node, which would answer them directly. kube-proxy's iptables mode marks "
        "every load balancer packet here up to 1.23; since 1.24 KUBE-EXT-* does."},
    PurposeRow{Purpose::kNodePort, "NodePort", "to a service's node port",
               "Any source: the endpoint may be on another node, which would answer the client "
               "directly instead of through this one."},
    PurposeRow{Purpose::kNodePortLoopback, "NodePortLoopback",
               "from the node's loopback address, to a node port",
               "A process on the node used 127.0.0.1 (or ::1), and no such source may leave the "
               "node: it gets an address that the endpoint can answer to."},
    PurposeRow{Purpose::kMasqueradeAll, "MasqueradeAll",
               "to a service's own address, from anywhere",
               "kube-proxy runs with masqueradeAll (--masquerade-all): pods are not left out."},
    PurposeRow{Purpose::kHostPortHairpin, "HostPortHairpin",
               "from a pod's own network, to a host port of it",
               "The pod, or its neighbour on the same bridge, calls a host port of this node and "
               "would be answered on the bridge, past the node that must turn the address back."},
    PurposeRow{Purpose::kHostPortLoopback, "HostPortLoopback",
               "from the node's loopback address, to a host port",
               "A process on the node used 127.0.0.1, and no such source may leave the node."},
    PurposeRow{
        Purpose::kSourceRanges, "SourceRanges",
        "to a load balancer, from a client that loadBalancerSourceRanges does not let in",
        "The rules before it have let in whom the service allows; what gets here is to be "
        "dropped, which table nat cannot do itself. (Up to 1.23 the rule stands for every load "
        "balancer; without ranges, the one before it lets everybody in.) Since 1.25 "
        "kube-proxy drops in filter/KUBE-PROXY-FIREWALL instead."},
    PurposeRow{
        Purpose::kNoLocalEndpoints, "NoLocalEndpoints",
        "to a service that keeps traffic on its node, and has no endpoint here",
        "externalTrafficPolicy: Local, and none of its pods is on this node: dropped, so that "
        "a load balancer's health check moves traffic elsewhere. Since 1.25 kube-proxy drops "
        "in table filter instead."},
    PurposeRow{Purpose::kBaseJump, "BaseJump", "all that passes %s", ""},
    PurposeRow{Purpose::kThirdParty, "ThirdParty", "rules of others: %s",
               "Not Kubernetes' own; the audit command says what becomes of them."},
    PurposeRow{Purpose::kOther, "Other", "from %s", ""},
};

const PurposeRow& Row(Purpose purpose) {
  for (const PurposeRow& row : kPurposes) {
    if (row.purpose == purpose) return row;
  }
  return kPurposes.back();
}

bool IsLoopback(const RuleWord& word) {
  return !word.negated && (absl::StartsWith(word.text, "127.") || word.text == "::1/128");
}

// Of IPVS mode, one rule stands for all services, which are in the set.
RulePurpose ForSet(absl::string_view set, const RuleWords& words) {
  if (absl::EndsWith(set, "CLUSTER-IP")) {
    if (words.source.negated) return {Purpose::kOutsidePodRange, std::string(words.source.text)};
    // Without a pod range IPVS mode marks what comes from a service's own address.
    return absl::StartsWith(words.set_flags, "src") ? RulePurpose{Purpose::kOther, "a cluster IP"}
                                                    : RulePurpose{Purpose::kMasqueradeAll};
  }
  if (absl::EndsWith(set, "EXTERNAL-IP")) return {Purpose::kExternalIp};
  if (absl::StrContains(set, "NODE-PORT")) return {Purpose::kNodePort};
  return {Purpose::kOther, std::string(set)};
}

RulePurpose ForServiceAddress(absl::string_view chain, const RuleWords& words) {
  if (words.source.negated) return {Purpose::kOutsidePodRange, std::string(words.source.text)};
  if (words.in_interface.negated) {
    return {Purpose::kOutsidePodRange, absl::StrCat("interface ", words.in_interface.text)};
  }
  if (absl::EndsWith(words.comment, " external IP")) return {Purpose::kExternalIp};
  if (absl::EndsWith(words.comment, " cluster IP")) return {Purpose::kMasqueradeAll};
  // 1.22 and 1.23: node ports are marked in the service's chain, which has no destination then.
  if (chain != "KUBE-SERVICES" && words.destination_port && !words.destination) {
    return {IsLoopback(words.source) ? Purpose::kNodePortLoopback : Purpose::kNodePort};
  }
  return {Purpose::kOther, std::string(ChainGroup(chain))};
}

RulePurpose ForMasquerade(absl::string_view chain, const RuleWords& words) {
  if (words.set) return ForSet(words.set.text, words);
  const absl::string_view group = ChainGroup(chain);
  if (group == "KUBE-SERVICES" || group == "KUBE-SVC-*" || group == "KUBE-SVL-*") {
    return ForServiceAddress(chain, words);
  }
  if (group == "KUBE-SEP-*" && !SingleHost(words.source.text).empty() && !words.source.negated) {
    return {Purpose::kHairpin};
  }
  if (group == "KUBE-EXT-*" || group == "KUBE-XLB-*") {
    return {words.source_type.text == "LOCAL" ? Purpose::kExternalFromNode : Purpose::kExternal};
  }
  if (group == "KUBE-FW-*" || chain == "KUBE-LOAD-BALANCER") return {Purpose::kLoadBalancer};
  if (chain == "KUBE-NODEPORTS" || chain == "KUBE-NODE-PORT") {
    return {IsLoopback(words.source) ? Purpose::kNodePortLoopback : Purpose::kNodePort};
  }
  return {Purpose::kOther, std::string(group)};
}

RulePurpose ForDrop(absl::string_view chain, const RuleWords& words) {
  const absl::string_view group = ChainGroup(chain);
  if (absl::EndsWith(words.comment, "has no local endpoints")) return {Purpose::kNoLocalEndpoints};
  if (group == "KUBE-FW-*" || chain == "KUBE-FIREWALL") return {Purpose::kSourceRanges};
  return {Purpose::kOther, std::string(group)};
}

}  // namespace

absl::string_view PurposeName(Purpose purpose) { return Row(purpose).name; }

std::string PurposeTitle(Purpose purpose, absl::string_view parameter) {
  return absl::StrReplaceAll(Row(purpose).title, {{"%s", parameter}});
}

absl::string_view PurposeReason(Purpose purpose) { return Row(purpose).reason; }

RulePurpose PurposeOf(absl::string_view target, absl::string_view chain, bool base, Owner owner,
                      const RuleWords& words) {
  if (base && (IsKubernetes(owner) || owner == Owner::kThisAgent))
    return {Purpose::kBaseJump, std::string(chain)};
  const bool masquerade = target == "nat/KUBE-MARK-MASQ";
  if (masquerade && (owner == Owner::kPortmap || owner == Owner::kHostPorts)) {
    return {IsLoopback(words.source) ? Purpose::kHostPortLoopback : Purpose::kHostPortHairpin,
            std::string(OwnerName(owner))};
  }
  const bool known = masquerade || target == "nat/KUBE-MARK-DROP";
  if ((known && !IsKubernetes(owner)) || IsPrivateChain(target)) {
    return {Purpose::kThirdParty, owner == Owner::kUnknown
                                      ? std::string(ChainGroup(chain))
                                      : absl::StrCat(OwnerName(owner), ", ", ChainGroup(chain))};
  }
  if (masquerade) return ForMasquerade(chain, words);
  if (known) return ForDrop(chain, words);
  const std::string from = owner == Owner::kUnknown || base
                               ? std::string(ChainGroup(chain))
                               : absl::StrCat(ChainGroup(chain), " (", OwnerName(owner), ")");
  return {Purpose::kOther, from};
}

}  // namespace kipt::agent
