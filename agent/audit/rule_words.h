// SPDX-License-Identifier: Apache-2.0
//
// The text of a rule, as iptables-save spells it, in words and in plain sentences, for
// explanations. Any bytes give an answer: what is not known is kept as text. Findings, owners and
// kube-proxy's release come from the values of netlink::SurveyRule.
#ifndef KIPT_AGENT_AUDIT_RULE_WORDS_H_
#define KIPT_AGENT_AUDIT_RULE_WORDS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kipt::agent {

struct RuleWord {
  absl::string_view text = {};
  bool negated = false;

  explicit operator bool() const { return !text.empty(); }
};

// Views of the text that was parsed.
struct RuleWords {
  // The arguments of options that are understood. Each option has one name: "-s" is --source and
  // --src too, "--dport" is --dports, "--ctstate" is --state. A label has no quotes.
  std::map<absl::string_view, RuleWord> options = {};
  absl::string_view set_flags = {};  // of --match-set: "dst,dst"
  bool sets_label = false;           // -m connlabel --set
  // Matches that are not understood: "-m physdev --physdev-in veth0".
  std::vector<absl::string_view> others = {};
  // The target or chain of -j or -g, and what follows it.
  absl::string_view target = {};
  absl::string_view target_arguments = {};

  // Empty where the rule does not have it, as in TargetArgument.
  RuleWord Get(absl::string_view option) const;
  // The argument of a target's option: "--to-destination".
  absl::string_view TargetArgument(absl::string_view option) const;
};

// `text` must outlive the answer.
RuleWords ParseRuleWords(absl::string_view text);
RuleWords ParseRuleWords(std::string&&) = delete;

// Which packets: "a tcp packet from outside 10.244.0.0/16 to 10.96.0.10 port 9153", "every packet".
std::string PacketText(const RuleWords& words);

// And what is done with them: "every packet gets mark bit 14 (0x4000)".
std::string RuleSentence(const RuleWords& words);

// The address of a prefix that names one host: "10.0.0.1/32", "10.0.0.1" or "fd00::1/128". Empty
// where it names more.
absl::string_view SingleHost(absl::string_view prefix);

// The service or service port in a comment of kube-proxy's: "kube-system/kube-dns:dns". Empty where
// it names none. A view of `comment`.
absl::string_view ServiceInComment(absl::string_view comment);

// "default/web: a packet from ...".
std::string AboutService(absl::string_view service, absl::string_view sentence);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_RULE_WORDS_H_
