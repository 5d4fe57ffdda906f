// SPDX-License-Identifier: Apache-2.0
//
// The reasons for which retirement (retirement.h) keeps something of kubelet's, as dependents.h
// shows them. Claims are per iptables mode, and those of labels and jumps per family. What cannot
// be read counts as a claim. Pure.
#ifndef KIPT_AGENT_POLICY_CLAIMS_H_
#define KIPT_AGENT_POLICY_CLAIMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agent/policy/dependents.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

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
  kTracking,          // other programs' chains of type nat need it to switch connection tracking on
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
