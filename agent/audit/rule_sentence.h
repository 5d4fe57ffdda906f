// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/rule_sentence.h
//
// One rule in plain words. Pure.
#ifndef KIPT_AGENT_AUDIT_RULE_SENTENCE_H_
#define KIPT_AGENT_AUDIT_RULE_SENTENCE_H_

#include <string>

#include "agent/audit/rule_words.h"

namespace kipt::agent {

// Which packets: "a tcp packet from outside 10.244.0.0/16 to 10.96.0.10 port 9153", "every packet".
std::string PacketText(const RuleWords& words);

// What is done with them: "is dropped", "goes on in KUBE-SVC-X".
std::string ActionText(const RuleWords& words);

// Both: "every packet gets mark bit 14 (0x4000)".
std::string RuleSentence(const RuleWords& words);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_RULE_SENTENCE_H_
