// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "agent/audit/audit_parts.h"

namespace kipt::agent {
namespace {

constexpr absl::string_view kMasq = "nat/KUBE-MARK-MASQ";
constexpr absl::string_view kDrop = "nat/KUBE-MARK-DROP";
constexpr absl::string_view kPostrouting = "nat/KUBE-POSTROUTING";
constexpr absl::string_view kFirewall = "filter/KUBE-FIREWALL";
constexpr absl::string_view kHint = "mangle/KUBE-IPTABLES-HINT";

// What no longer happens to a packet once `chain` does nothing.
absl::string_view LossOf(absl::string_view chain) {
  if (chain == kMasq || chain == kPostrouting) return "their packets leave unmasqueraded";
  if (chain == kDrop) return "their packets are no longer dropped";
  return "they do nothing";
}

std::string MasqueradeRemedy(Owner owner) {
  if (owner == Owner::kPortmap) {
    return "Take externalSetMarkChain out of the CNI configuration: portmap then marks in a chain "
           "of its own (CNI-HOSTPORT-SETMARK). Pods with host ports change over when they are "
           "recreated.";
  }
  if (owner == Owner::kHostPorts) {
    return "Upgrade CRI-O to 1.27 or later, which masquerades host ports by chains of its own; "
           "what dockershim left goes with a reboot.";
  }
  return "Masquerade in the rules themselves: the same match with -j MASQUERADE in a chain that "
         "nat "
         "POSTROUTING jumps to. Where only the rule that does DNAT can tell, mark there with a "
         "mark "
         "bit of your own, by a chain of your own, and masquerade that mark in POSTROUTING.";
}

}  // namespace

ChainFuture FutureOf(absl::string_view chain, const KubeProxyFacts& proxy) {
  if (IsPrivateChain(chain)) return ChainFuture::kPrivate;
  if (chain == kMasq || chain == kPostrouting) {
    return proxy.KeepsMarkMasq() ? ChainFuture::kKeptByProxy : ChainFuture::kGone;
  }
  if (chain == kDrop) {
    // Since 1.20 (IPVS mode: 1.16) kube-proxy makes sure that it exists, and writes nothing there.
    const bool makes = proxy.mode == KubeProxyMode::kIpvs || proxy.oldest >= 20;
    return proxy.MayUseMarkDrop() && makes ? ChainFuture::kEmpty : ChainFuture::kGone;
  }
  if (chain == kFirewall) {
    if (proxy.family == netlink::Family::kIPv4) return ChainFuture::kKept;
    return proxy.KeepsFirewall() ? ChainFuture::kKeptByProxy : ChainFuture::kGone;
  }
  return chain == kHint ? ChainFuture::kKept : ChainFuture::kGone;
}

std::string WhenGateIsOn(Mode mode) {
  return mode == Mode::kCleanup ? "IPTablesOwnershipCleanup is on: "
                                : "Once IPTablesOwnershipCleanup is on, ";
}

std::string ProxyText(const KubeProxyFacts& proxy) {
  return absl::StrCat("kube-proxy ", GenerationText(proxy), " (", KubeProxyModeName(proxy.mode),
                      " mode)");
}

std::string ConsequenceForUsers(absl::string_view chain, const KubeProxyFacts& proxy, Mode mode) {
  const std::string when = WhenGateIsOn(mode);
  switch (FutureOf(chain, proxy)) {
    case ChainFuture::kKept:
      return absl::StrCat(
          when, chain, " stays",
          chain == kFirewall ? ", but drops only martian packets, none by mark." : ".");
    case ChainFuture::kKeptByProxy:
      return absl::StrCat(when, ProxyText(proxy), " goes on writing ", chain,
                          ", so they work on for as long as it does; nobody promises that.");
    case ChainFuture::kEmpty:
      return absl::StrCat(when, ProxyText(proxy), " keeps ", chain,
                          " but puts nothing into it: ", LossOf(chain),
                          " (fails open), from the next reboot or flush on.");
    case ChainFuture::kGone:
      return absl::StrCat(when, "nobody makes ", chain,
                          ": from the next reboot or flush on, adding such a rule fails, and ",
                          LossOf(chain), ".");
    case ChainFuture::kPrivate:
      return absl::StrCat(chain,
                          " is private: this agent makes it for kubelet alone, while its feature "
                          "gate ConnLabelMarking (alpha) is on. Its rules and its label may change "
                          "with any release, and it goes with the gate.");
  }
  return "";
}

std::string RemedyForUsers(absl::string_view chain, Owner owner) {
  if (IsPrivateChain(chain)) {
    if (owner == Owner::kPortmap) return MasqueradeRemedy(owner);
    return "Make chains of your own, with a label of your own: -m connlabel --label N --set in "
           "one, and one that acts on it; or masquerade and drop in the rules themselves.";
  }
  if (chain == kMasq || chain == kPostrouting) return MasqueradeRemedy(owner);
  if (chain == kDrop) {
    return "Drop in table filter: the same match with -j DROP in a chain of your own that INPUT, "
           "OUTPUT or FORWARD jump to. Where DNAT has changed the packet by then, match what it "
           "was "
           "before with -m conntrack --ctorigdst.";
  }
  if (chain == kFirewall) {
    return "Filter in a chain of your own that INPUT and OUTPUT jump to.";
  }
  return "Rely on mangle/KUBE-IPTABLES-HINT alone, and only on its existence.";
}

}  // namespace kipt::agent
