// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/rule_purpose.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/audit/chain_future.h"

namespace kipt::agent {
namespace {

// "%s" is a parameter.
constexpr PurposeRow kPurposes[] = {
    {"OutsidePodRange", "to a service's own address, from outside the pods (%s)",
     "The '!' leaves the pods out: their packets keep the pod's address, and the answers return "
     "through the pod's node. Other clients (the node itself, a host that routes cluster IPs here) "
     "would be answered directly. Only this node can translate the endpoint's address back to the "
     "service's. With this node's address as the source, the answers return to this node."},
    {"Hairpin", "a pod that reaches itself through its own service",
     "The source is the endpoint's own address: the pod called a service, and was itself chosen to "
     "answer. It would answer itself directly, and the node could not translate the address back. "
     "With the node's address as the source, the answer returns through the node."},
    {"External", "from outside the cluster, to a node port, external IP or load balancer",
     "Any source (0.0.0.0/0 in iptables -L): clients are outside, and an endpoint on another node "
     "would answer them directly. The endpoint sees this node's address instead of the client's; "
     "externalTrafficPolicy: Local would keep the client's."},
    {"ExternalFromNode", "from this node itself, to an external address of a service",
     "The service keeps clients' addresses (externalTrafficPolicy: Local). Packets of this node "
     "itself may go to endpoints on any node, and their answers must return to this one."},
    {"ExternalIP", "to a service's external IP",
     "Any source: clients are outside, and an endpoint on another node would answer them "
     "directly."},
    {"LoadBalancer", "to a service's load balancer address",
     "Any source (0.0.0.0/0 in iptables -L): clients are outside, and an endpoint on another node "
     "would answer them directly. kube-proxy's iptables mode marks every load balancer packet here "
     "up to 1.23; since 1.24 KUBE-EXT-* does."},
    {"NodePort", "to a service's node port",
     "Any source: an endpoint on another node would answer the client directly instead of through "
     "this one."},
    {"NodePortLoopback", "from the node's loopback address, to a node port",
     "A process on the node used 127.0.0.1 (or ::1). Such a source must not leave the node, so the "
     "packet gets an address that the endpoint can answer."},
    {"MasqueradeAll", "to a service's own address, from anywhere",
     "kube-proxy runs with masqueradeAll (--masquerade-all): pods are not left out."},
    {"HostPortHairpin", "from a pod's own network, to a host port of it",
     "The pod, or its neighbour on the same bridge, calls a host port of this node. The answer "
     "would stay on the bridge and bypass the node, which must translate the address back."},
    {"HostPortLoopback", "from the node's loopback address, to a host port",
     "A process on the node used 127.0.0.1. Such a source must not leave the node."},
    {"SourceRanges",
     "to a load balancer, from a client that loadBalancerSourceRanges does not let in",
     "The rules before it let in the clients that the service allows. The remaining packets must "
     "be dropped, which table nat cannot do. (Up to 1.23 every load balancer has the rule; without "
     "ranges, the one before it lets all clients in.) Since 1.25 kube-proxy drops in "
     "filter/KUBE-PROXY-FIREWALL instead."},
    {"NoLocalEndpoints", "to a service that keeps traffic on its node, and has no endpoint here",
     "externalTrafficPolicy: Local, and none of its pods is on this node. The packets are dropped, "
     "so that a load balancer's health check moves traffic elsewhere. Since 1.25 kube-proxy drops "
     "in table filter instead."},
    {"BaseJump", "all packets that pass %s", ""},
    {"ThirdParty", "rules of other programs: %s",
     "Not Kubernetes' own; the command audit reports them."},
    {"Other", "from %s", ""},
};

// What the functions below answer: a row's id, and the parameter.
struct Purpose {
  absl::string_view id;
  std::string parameter = {};
};

bool IsLoopback(const RuleWord& word) {
  return !word.negated && (absl::StartsWith(word.text, "127.") || word.text == "::1/128");
}

Purpose ForNodePort(const RuleWords& words) {
  return {IsLoopback(words.Get("-s")) ? "NodePortLoopback" : "NodePort"};
}

// In IPVS mode one rule is for all services of a set.
Purpose ForSet(absl::string_view set, const RuleWords& words) {
  if (absl::EndsWith(set, "CLUSTER-IP")) {
    const RuleWord source = words.Get("-s");
    if (source.negated) return {"OutsidePodRange", std::string(source.text)};
    // Without a pod range IPVS mode marks what comes from a service's own address.
    return absl::StartsWith(words.set_flags, "src") ? Purpose{"Other", "a cluster IP"}
                                                    : Purpose{"MasqueradeAll"};
  }
  if (absl::EndsWith(set, "EXTERNAL-IP")) return {"ExternalIP"};
  if (absl::StrContains(set, "NODE-PORT")) return {"NodePort"};
  return {"Other", std::string(set)};
}

Purpose ForServiceAddress(absl::string_view group, absl::string_view comment,
                          const RuleWords& words) {
  const RuleWord source = words.Get("-s");
  const RuleWord interface = words.Get("-i");
  if (source.negated) return {"OutsidePodRange", std::string(source.text)};
  if (interface.negated) return {"OutsidePodRange", absl::StrCat("interface ", interface.text)};
  if (absl::EndsWith(comment, " external IP")) return {"ExternalIP"};
  if (absl::EndsWith(comment, " cluster IP")) return {"MasqueradeAll"};
  // 1.22 and 1.23: node ports are marked in the service's chain, which has no destination then.
  if (group != "KUBE-SERVICES" && words.Get("--dport") && !words.Get("-d")) {
    return ForNodePort(words);
  }
  return {"Other", std::string(group)};
}

Purpose ForMasquerade(absl::string_view group, absl::string_view comment, const RuleWords& words) {
  if (const RuleWord set = words.Get("--match-set")) return ForSet(set.text, words);
  if (group == "KUBE-SERVICES" || group == "KUBE-SVC-*" || group == "KUBE-SVL-*") {
    return ForServiceAddress(group, comment, words);
  }
  const RuleWord source = words.Get("-s");
  if (group == "KUBE-SEP-*" && !SingleHost(source.text).empty() && !source.negated) {
    return {"Hairpin"};
  }
  if (group == "KUBE-EXT-*" || group == "KUBE-XLB-*") {
    return {words.Get("--src-type").text == "LOCAL" ? "ExternalFromNode" : "External"};
  }
  if (group == "KUBE-FW-*" || group == "KUBE-LOAD-BALANCER") return {"LoadBalancer"};
  if (group == "KUBE-NODEPORTS" || group == "KUBE-NODE-PORT") return ForNodePort(words);
  return {"Other", std::string(group)};
}

Purpose ForDrop(absl::string_view group, absl::string_view comment) {
  if (absl::EndsWith(comment, "has no local endpoints")) return {"NoLocalEndpoints"};
  if (group == "KUBE-FW-*" || group == "KUBE-FIREWALL") return {"SourceRanges"};
  return {"Other", std::string(group)};
}

Purpose FindPurpose(absl::string_view target, absl::string_view chain, bool base, Owner owner,
                    absl::string_view comment, const RuleWords& words) {
  if (base && (IsKubernetes(owner) || owner == Owner::kThisAgent)) {
    return {"BaseJump", std::string(chain)};
  }
  const std::string group(ChainGroup(chain));
  const bool masquerade = target == kMarkMasqPlace;
  if (masquerade && (owner == Owner::kPortmap || owner == Owner::kHostPorts)) {
    return {IsLoopback(words.Get("-s")) ? "HostPortLoopback" : "HostPortHairpin",
            std::string(OwnerName(owner))};
  }
  const bool known = masquerade || target == kMarkDropPlace;
  if ((known && !IsKubernetes(owner)) || IsPrivateChain(target)) {
    return {"ThirdParty",
            owner == Owner::kUnknown ? group : absl::StrCat(OwnerName(owner), ", ", group)};
  }
  if (known) return masquerade ? ForMasquerade(group, comment, words) : ForDrop(group, comment);
  return {"Other", owner == Owner::kUnknown || base
                       ? group
                       : absl::StrCat(group, " (", OwnerName(owner), ")")};
}

}  // namespace

RulePurpose PurposeOf(absl::string_view target, absl::string_view chain, bool base, Owner owner,
                      absl::string_view comment, const RuleWords& words) {
  Purpose purpose = FindPurpose(target, chain, base, owner, comment, words);
  const auto* row =
      absl::c_find_if(kPurposes, [&](const PurposeRow& one) { return one.id == purpose.id; });
  return {row, std::move(purpose.parameter)};
}

}  // namespace kipt::agent
