// SPDX-License-Identifier: Apache-2.0
//
// Decides which iptables a node uses, nft or legacy, per IP family, with the evidence. Pure;
// mode_evidence.h gathers what it weighs.
#ifndef KIPT_AGENT_DETECT_IPTABLES_MODE_H_
#define KIPT_AGENT_DETECT_IPTABLES_MODE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

enum class IptablesMode : uint8_t {
  kNft,
  kLegacy,
  kNone,     // no evidence, and both are possible: a fresh node
  kUnknown,  // the evidence contradicts itself, or what would decide cannot be read
};
absl::string_view IptablesModeName(IptablesMode mode);  // "nft", "legacy", "none", "unknown"

// Strongest first.
enum class EvidenceSource : uint8_t {
  kFlag,     // --iptables-mode
  kProgram,  // the host's iptables
  kHint,     // mangle KUBE-IPTABLES-HINT
  kCanary,   // mangle KUBE-KUBELET-CANARY
  kRules,    // any rule at all
  kKernel,   // what the kernel can do; decides only if the other mode is impossible
};
absl::string_view EvidenceSourceName(EvidenceSource source);

struct Evidence {
  EvidenceSource source = EvidenceSource::kRules;
  // kNft or kLegacy: is evidence for that mode. kNone: for neither. kUnknown: could not be read, or
  // is evidence for both.
  IptablesMode says = IptablesMode::kNone;
  // "mangle KUBE-IPTABLES-HINT: nft yes, legacy no".
  std::string text;
};

struct FamilyMode {
  netlink::Family family = netlink::Family::kIPv4;
  IptablesMode mode = IptablesMode::kUnknown;
  // One entry for each EvidenceSource, in its order.
  std::vector<Evidence> evidence = {};
  // For the administrator: two hints, program and kubelet that disagree, rules in both modes, an
  // unreadable source that kept the mode unknown.
  std::vector<std::string> findings = {};
  // Other programs may be misled: two hints, or two canaries and no hint; a hint (without one, a
  // canary) of another mode than the flag; what kubelet writes, in another mode than the program;
  // or the mode is legacy and nft has a canary, which iptables-wrappers finds before legacy's hint.
  bool contradiction = false;
};

// The one sentence that every command has for a `mode` that is kUnknown: this, the family, why, and
// what to do.
inline constexpr absl::string_view kIptablesModeUnknown =
    "cannot tell which iptables this node uses for ";
std::string WhyUnknown(const FamilyMode& mode);

// What one iptables mode holds in one family. Empty: not known.
struct ModeTraces {
  // Why hint, canary or rules are not known.
  std::string problem = {};
  std::optional<bool> hint = false;
  std::optional<bool> canary = false;
  // Rules, or chains that are not built in, in mangle, nat or filter, except hint and canary. Empty
  // without a `problem`: hint or canary made it needless to read them.
  std::optional<bool> rules = false;
  // "filter KUBE-FIREWALL": a chain, other than hint and canary in mangle, that shows that kubelet
  // or this agent writes here. Empty: there is none, or it was not read.
  std::string kubelet_chain = {};
  // The kernel can hold such rules at all.
  bool possible = true;
};

struct ModeQuestion {
  netlink::Family family = netlink::Family::kIPv4;
  // --iptables-mode: kNft or kLegacy.
  std::optional<IptablesMode> flag = {};
  // What the host's iptables is. Empty: there is none, or the host's files cannot be seen.
  std::optional<IptablesMode> program = {};
  // Where the program was found, or why it is not known.
  std::string program_text = {};
  // HostProgram::unreadable.
  bool program_unreadable = false;
  ModeTraces nft = {};
  ModeTraces legacy = {};
};

// The first conclusive source decides, in the order of EvidenceSource; evidence for both modes
// makes the mode kUnknown. So does what kubelet writes in another mode than that of the host's
// program, because kubelet may bring programs of its own. What one mode holds decides only if the
// other is known not to hold the same, so an unreadable source never counts for the other mode.
FamilyMode DecideMode(const ModeQuestion& question);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_IPTABLES_MODE_H_
