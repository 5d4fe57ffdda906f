// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/chain_future.h"

#include "absl/strings/str_cat.h"

namespace kipt::agent {
namespace {

constexpr absl::string_view kFirewall = "filter/KUBE-FIREWALL";
constexpr absl::string_view kHint = "mangle/KUBE-IPTABLES-HINT";

// What no longer happens to a packet once `chain` does nothing.
absl::string_view LossOf(absl::string_view chain) {
  if (chain == kMarkMasqPlace || chain == kPostroutingPlace)
    return "their packets leave unmasqueraded";
  if (chain == kMarkDropPlace) return "their packets are no longer dropped";
  return "they have no effect";
}

// kube-proxy alone changes, and all of kubelet's chains stay.
bool KeepsAll(const AuditOptions& options) {
  return options.change == NodeChange::kKubeProxyNftables && options.mode == Mode::kLegacy;
}

}  // namespace

ChainFuture FutureOf(absl::string_view chain, const KubeProxyFacts& proxy,
                     const AuditOptions& options) {
  if (IsPrivateChain(chain)) return ChainFuture::kPrivate;
  if (KeepsAll(options)) return ChainFuture::kKept;
  if (chain == kMarkMasqPlace || chain == kPostroutingPlace) {
    return proxy.KeepsMarkMasq() ? ChainFuture::kKeptByProxy : ChainFuture::kGone;
  }
  if (chain == kMarkDropPlace) {
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

AuditSeverity SeverityOfUse(absl::string_view chain, const KubeProxyFacts& proxy,
                            const AuditOptions& options) {
  const ChainFuture future = FutureOf(chain, proxy, options);
  return future == ChainFuture::kEmpty || future == ChainFuture::kGone ? AuditSeverity::kError
                                                                       : AuditSeverity::kWarning;
}

std::string WhenChanged(const AuditOptions& options) {
  if (options.change == NodeChange::kKubeProxyNftables) {
    return "Once kube-proxy is in nftables mode, ";
  }
  return options.mode == Mode::kCleanup ? "IPTablesOwnershipCleanup is on: "
                                        : "Once IPTablesOwnershipCleanup is on, ";
}

std::string ConsequenceForUsers(absl::string_view chain, const KubeProxyFacts& proxy,
                                const AuditOptions& options) {
  const std::string when = WhenChanged(options);
  switch (FutureOf(chain, proxy, options)) {
    case ChainFuture::kKept:
      if (KeepsAll(options)) {
        return absl::StrCat("kubelet, or this agent in its place, keeps ", chain,
                            " while IPTablesOwnershipCleanup is off. kubelet 1.28 and later "
                            "cannot turn it off.");
      }
      return absl::StrCat(
          when, chain, " stays",
          chain == kFirewall ? ", but drops only martian packets, none by mark." : ".");
    case ChainFuture::kKeptByProxy:
      return absl::StrCat(when, ProxyText(proxy), " still writes ", chain,
                          ". These rules work for as long as it does, without a guarantee.");
    case ChainFuture::kEmpty:
      return absl::StrCat(when, ProxyText(proxy), " keeps ", chain,
                          ", but leaves it empty: ", LossOf(chain),
                          " (fails open) after the next reboot or flush.");
    case ChainFuture::kGone:
      return absl::StrCat(when, "no program makes ", chain,
                          ": after the next reboot or flush, adding such a rule fails, and ",
                          LossOf(chain), ".");
    case ChainFuture::kPrivate:
      return absl::StrCat(chain,
                          " is private: this agent makes it for kubelet alone, while the feature "
                          "gate ConnLabelMarking (alpha) is on. Any release may change its rules "
                          "and its label, or remove it with the gate.");
  }
  return "";
}

std::string RemedyForUsers(absl::string_view chain, Owner owner) {
  const bool is_private = IsPrivateChain(chain);
  if (is_private && owner != Owner::kPortmap) {
    return "Make two chains of your own with a label of your own: one sets it (-m connlabel "
           "--label N --set), one acts on it. Or masquerade and drop in the rules themselves.";
  }
  if (is_private || chain == kMarkMasqPlace || chain == kPostroutingPlace) {
    if (owner == Owner::kPortmap) {
      return "Remove externalSetMarkChain from the CNI configuration: portmap then marks in a "
             "chain of its own (CNI-HOSTPORT-SETMARK). Pods with host ports change over when they "
             "are recreated.";
    }
    if (owner == Owner::kHostPorts) {
      return "Upgrade CRI-O to 1.27 or later, which masquerades host ports by chains of its own; a "
             "reboot removes what dockershim left.";
    }
    return "Masquerade in the rules themselves: the same match with -j MASQUERADE in a chain that "
           "nat POSTROUTING jumps to. If only the DNAT rule can match the packets, set a mark bit "
           "of your own there, and masquerade that mark in POSTROUTING.";
  }
  if (chain == kMarkDropPlace) {
    return "Drop in table filter: the same match with -j DROP in a chain of your own that INPUT, "
           "OUTPUT or FORWARD jump to. If DNAT has already changed the packet, match its original "
           "destination with -m conntrack --ctorigdst.";
  }
  if (chain == kFirewall) return "Filter in a chain of your own that INPUT and OUTPUT jump to.";
  return "Rely on mangle/KUBE-IPTABLES-HINT alone, and only on its existence.";
}

}  // namespace kipt::agent
