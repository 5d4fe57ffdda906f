// SPDX-License-Identifier: Apache-2.0
//
// KEP-3178: which chains and rules a node must have, per mode and family. Pure; no kernel, no
// flags. policy_tables.h holds the rows and is meant to be read with the KEP.
#ifndef KIPT_AGENT_POLICY_POLICY_H_
#define KIPT_AGENT_POLICY_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "featuregates/feature_gates.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

// What kubelet would own on this node.
enum class Mode : uint8_t {
  // --make-iptables-util-chains=false: touch nothing.
  kOff,
  // IPTablesOwnershipCleanup off: KUBE-MARK-MASQ, KUBE-MARK-DROP, KUBE-POSTROUTING, KUBE-FIREWALL,
  // the hint and the canaries.
  kLegacy,
  // IPTablesOwnershipCleanup on: the hint and the martian-packet rule, nothing else.
  kCleanup,
};
absl::string_view ModeName(Mode mode);  // "off", "legacy", "cleanup"

// The mode that the gates and --make-iptables-util-chains choose.
Mode ModeFor(const featuregates::FeatureGates& gates, bool make_iptables_util_chains);

// Bits of the packet mark, 0..31, different from each other. They have no effect in cleanup mode.
struct MarkBits {
  int masquerade = 14;  // --iptables-masquerade-bit; must be kube-proxy's
  int drop = 15;        // --iptables-drop-bit

  bool operator==(const MarkBits&) const = default;
};

// Labels of the connection, 0..127, different from each other, that the gate ConnLabelMarking uses.
struct ConnLabels {
  int masquerade = 114;  // --iptables-masquerade-label
  int drop = 115;        // --iptables-drop-label

  bool operator==(const ConnLabels&) const = default;
};
// What the gate and the two flags choose; nothing where it is off.
std::optional<ConnLabels> LabelsFor(const featuregates::FeatureGates& gates, Mode mode,
                                    ConnLabels labels);

struct DesiredRule {
  netlink::Rule rule;
  // Why it exists: for readers of a plan. Text of the tables, as in what follows.
  absl::string_view reason;
  // kube-proxy keeps the same rule in the same chain, and rewrites it on its syncs.
  bool shared_with_kube_proxy = false;

  bool operator==(const DesiredRule&) const = default;
};

struct DesiredChain {
  netlink::ChainId id;
  absl::string_view reason;
  // The order of the rules matters. Else only their presence counts: kubelet itself wrote
  // KUBE-FIREWALL in two orders (up to 1.24, and since).
  bool ordered = false;
  std::vector<DesiredRule> rules = {};

  bool operator==(const DesiredChain&) const = default;
};

// A rule of ours in a base chain, among foreign rules.
struct DesiredJump {
  netlink::ChainId base_chain;
  netlink::Rule rule;
  absl::string_view reason;

  bool operator==(const DesiredJump&) const = default;
};

// --hint-policy: whether KUBE-IPTABLES-HINT, by which other programs choose iptables, is made where
// iptables can hold no rule.
enum class HintPolicy : uint8_t { kUsable, kAlways };
absl::string_view HintPolicyName(HintPolicy policy);  // "usable", "always"

// What the configuration desires: the input of all rules, except what the node can hold.
struct PolicyInput {
  Mode mode = Mode::kOff;
  std::vector<netlink::Family> families = {};
  MarkBits bits = {};
  // LabelsFor.
  std::optional<ConnLabels> labels = {};
  HintPolicy hint = HintPolicy::kUsable;

  bool operator==(const PolicyInput&) const = default;
};

// Whether iptables can hold rules on this node, in addition to chains.
struct RuleSupport {
  // False: nf_tables without xtables compatibility (RHEL 10 class): only chains and native rules.
  bool xt = true;
  // Why, for people.
  std::string reason = {};
  // The kernel has refused one. Else an existing rule of xtables proves `xt`, whatever files say.
  bool refused = false;
  // False: rules can be made, but the match connlabel is missing: the module xt_connlabel, or the
  // extension of iptables-legacy. Only read if labels are desired.
  bool conn_labels = true;
  std::string conn_labels_reason = {};

  bool all() const { return xt && conn_labels; }
  bool operator==(const RuleSupport&) const = default;
};

// The same after a rule was refused with `refusal` because connlabel is missing.
RuleSupport WithoutConnLabels(RuleSupport support, absl::string_view refusal);

// What must exist on the node.
struct Ruleset {
  std::vector<DesiredChain> chains = {};
  std::vector<DesiredJump> jumps = {};
  // The martian protection where iptables can hold no rule (NativeMartians).
  std::optional<netlink::NativeTable> native = {};

  bool operator==(const Ruleset&) const = default;
};

// The tables of the KEP, filtered by mode and families. Chains are in kubelet's order.
//
// Where iptables can hold no rule, at most the hint is desired of it; the martian protection is in
// a native table, in legacy mode too, whose other rules must be iptables' (kLegacyModeImpossible).
// Where only connlabel is missing, what the labels would make is left out (kConnLabelsImpossible).
Ruleset DesiredRuleset(const PolicyInput& input, const RuleSupport& support = {});

// Every chain that kubelet, in some mode, makes in `family`, and why: the possible leftovers.
std::vector<DesiredChain> EveryKubeletChain(netlink::Family family);
// Every jump that some kubelet makes in `family`.
std::vector<DesiredJump> EveryKubeletJump(netlink::Family family);

// What a Backend must read, in some families, for DesiredRuleset to be compared with it: kubelet's
// chains of every mode, the base chains that hold its jumps, whether kube-proxy's exist, and what
// keeps packets from its jumps and the martian rule (ChainQuery::follow). Also the base chains that
// hold the jumps of CNI plugins and kube-proxy: where ours were flushed, theirs were too.
std::vector<netlink::ChainQuery> ChainsToRead(
    absl::Span<const netlink::Family> families = netlink::kFamilies);
// The same for the diff against `desired` alone, without the rules of a hint or a canary.
std::vector<netlink::ChainQuery> ChainsToRead(const Ruleset& desired);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_POLICY_POLICY_H_
