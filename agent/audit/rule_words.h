// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/rule_words.h
//
// The words of a rule as iptables-save spells it, and the rule in plain words. Tolerant: what it
// does not know is kept as text, and any bytes give an answer. Only explanations read text:
// findings, owners and kube-proxy's release come from the values of netlink::SurveyRule.
#ifndef KIPT_AGENT_AUDIT_RULE_WORDS_H_
#define KIPT_AGENT_AUDIT_RULE_WORDS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kipt::agent {

// An option's argument, "!" in front of the option taken off.
struct RuleWord {
  absl::string_view text = {};
  bool negated = false;

  explicit operator bool() const { return !text.empty(); }
};

// Views of the text that was parsed. An option that is not there is empty.
struct RuleWords {
  RuleWord source;       // -s: "10.244.0.0/16"
  RuleWord destination;  // -d
  RuleWord in_interface;
  RuleWord out_interface;
  RuleWord protocol;
  RuleWord source_port;       // --sport, --sports
  RuleWord destination_port;  // --dport, --dports: "80", "30000:32767", "80,443"
  RuleWord source_type;       // -m addrtype --src-type: "LOCAL"
  RuleWord destination_type;
  RuleWord mark;      // -m mark --mark: "0x4000/0x4000"
  RuleWord ct_state;  // --ctstate, --state
  // -m connlabel --label: "114", without quotes. `sets_label`: with --set.
  RuleWord conn_label;
  bool sets_label = false;
  // -m set --match-set: the set's name, and "dst,dst".
  RuleWord set;
  absl::string_view set_flags = {};
  // -m statistic --probability, as printed; empty for other statistics.
  RuleWord probability;
  // Without quotes. Of several comments all, joined by "; ".
  std::string comment = {};
  // Matches that are not understood, as they stand: "-m physdev --physdev-in veth0".
  std::vector<absl::string_view> others = {};
  // The target or chain of -j or -g, and what stands behind it.
  absl::string_view target = {};
  bool go_to = false;
  absl::string_view target_arguments = {};

  // The argument of a target's option: "--to-destination". Empty where it is not there.
  absl::string_view TargetArgument(absl::string_view option) const;
};

// `text` must outlive the answer.
RuleWords ParseRuleWords(absl::string_view text);
RuleWords ParseRuleWords(std::string&&) = delete;

// Which packets: "a tcp packet from outside 10.244.0.0/16 to 10.96.0.10 port 9153", "every packet".
std::string PacketText(const RuleWords& words);

// And what is done with them: "every packet gets mark bit 14 (0x4000)".
std::string RuleSentence(const RuleWords& words);

// The address of a prefix that names one host, "10.0.0.1/32" or "10.0.0.1" or "fd00::1/128"; empty
// where it names more.
absl::string_view SingleHost(absl::string_view prefix);

// The service or service port that a comment of kube-proxy's is about, "kube-system/kube-dns:dns".
// Empty where it names none. A view of `comment`.
absl::string_view ServiceInComment(absl::string_view comment);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_RULE_WORDS_H_
