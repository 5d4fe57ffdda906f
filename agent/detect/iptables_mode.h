// SPDX-License-Identifier: Apache-2.0
//
// File: agent/detect/iptables_mode.h
//
// The mode oracle: which iptables a node uses, nft or legacy, per family, with the evidence. It
// creates nothing, loads nothing and runs no program but iptables-legacy-save, and that only for
// tables that exist.
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
  kNone,     // nothing tells, and nothing stands in the way of either: a fresh node
  kUnknown,  // the evidence contradicts itself, or what would decide cannot be read
};
absl::string_view IptablesModeName(IptablesMode mode);  // "nft", "legacy", "none", "unknown"

// What was looked at, strongest first.
enum class EvidenceSource : uint8_t {
  kFlag,     // --iptables-mode
  kProgram,  // the host's iptables
  kHint,     // mangle KUBE-IPTABLES-HINT
  kCanary,   // mangle KUBE-KUBELET-CANARY
  kRules,    // any rule at all
  kKernel,   // what the kernel can do; decides only when the other mode is impossible
};
absl::string_view EvidenceSourceName(EvidenceSource source);

struct Evidence {
  EvidenceSource source = EvidenceSource::kRules;
  // kNft or kLegacy: speaks for it. kNone: speaks for neither. kUnknown: could not be read, or
  // speaks for both.
  IptablesMode says = IptablesMode::kNone;
  // "mangle has KUBE-IPTABLES-HINT in nft's tables".
  std::string text;

  bool operator==(const Evidence&) const = default;
};

struct FamilyMode {
  netlink::Family family = netlink::Family::kIPv4;
  IptablesMode mode = IptablesMode::kUnknown;
  // All that was looked at, in the order of EvidenceSource.
  std::vector<Evidence> evidence = {};
  // What an operator should see: two hints, program and hint that disagree, rules in both modes, an
  // unreadable source that kept the mode unknown.
  std::vector<std::string> findings = {};
  // Others may be misled, whether we know the mode or not: two hints, or two canaries and no hint;
  // or the hint (without one, the canary) is not of the mode that the program or the flag says; or
  // the mode is legacy and nft has a canary, which iptables-wrappers finds before legacy's hint.
  bool contradiction = false;

  bool operator==(const FamilyMode&) const = default;
};

// What one iptables mode holds in one family, as far as it tells.
struct ModeTraces {
  // Why hint, canary or rules are not known.
  std::string problem = {};
  // Empty: not known.
  std::optional<bool> hint = false;
  std::optional<bool> canary = false;
  // Rules, or chains that are nobody's built-in, in any of the tables mangle, nat, filter. Hint and
  // canary in mangle do not count. Empty: not known, because `problem`, or, where that is empty,
  // because hint or canary made it needless to look.
  std::optional<bool> rules = false;
  // The kernel can hold such rules at all.
  bool possible = true;
};

struct ModeQuestion {
  netlink::Family family = netlink::Family::kIPv4;
  // kNft or kLegacy where --iptables-mode says so.
  std::optional<IptablesMode> flag = {};
  // kNft or kLegacy: what the host's iptables is. kUnknown: there is one, and it cannot be told
  // which. Empty: there is none, or it was not looked for.
  std::optional<IptablesMode> program = {};
  // Where the program was found, or why it is not known.
  std::string program_text = {};
  ModeTraces nft = {};
  ModeTraces legacy = {};
};

// The precedence, pure: flag; the host's program; hint; canary; rules. The first that speaks
// decides: for one mode, or for kUnknown where it speaks for both. Two hints without flag or
// program are kUnknown and a finding. An unreadable source is never taken for the other mode: what
// one mode holds decides only where it is known that the other does not hold the same. Kernel
// support decides only where nothing else does and one mode is impossible.
FamilyMode DecideMode(const ModeQuestion& question);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_IPTABLES_MODE_H_
