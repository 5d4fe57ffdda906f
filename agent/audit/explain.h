// SPDX-License-Identifier: Apache-2.0
//
// Every rule that leads to a chain, by purpose, and what the chain does.
#ifndef KIPT_AGENT_AUDIT_EXPLAIN_H_
#define KIPT_AGENT_AUDIT_EXPLAIN_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/audit/chain_owner.h"
#include "agent/audit/explain_sieve.h"
#include "agent/audit/finding.h"
#include "netlink/ruleset.h"
#include "netlink/survey.h"

namespace kipt::agent {

struct Explanation {
  std::string iptables_mode = {};
  std::string family = {};  // "ip", "ip6"
  std::string chain = {};   // "nat/KUBE-MARK-MASQ"
  Owner owner = Owner::kUnknown;
  std::string what = {};                   // what the chain is, in a sentence or two
  std::string maker = {};                  // which program made it
  std::vector<std::string> in_short = {};  // the answer, point by point
  size_t users = 0;                        // rules that lead to it
  std::vector<PurposeGroup> purposes = {};
  size_t rule_count = 0;
  std::vector<AuditedRule> rules = {};  // its own, in order: the first ten
  std::vector<std::string> next = {};   // where packets go from here
};

// `survey` is what `sieve` kept. `surveys` are all of the network namespace, whose rules may act on
// a mark; empty: `survey` alone.
//
// NotFound: no such chain; the message names similar chains. InvalidArgument: several tables have
// the name. FailedPrecondition: the survey is of a text that lacks the table.
absl::StatusOr<Explanation> Explain(const netlink::Survey& survey, const ExplainSieve& sieve,
                                    netlink::Family family,
                                    absl::Span<const netlink::Survey> surveys = {});
// The same of a survey with every rule. `chain` is TABLE/CHAIN, or a name that only one table has.
absl::StatusOr<Explanation> Explain(const netlink::Survey& survey, netlink::Family family,
                                    absl::string_view chain,
                                    absl::Span<const netlink::Survey> surveys = {});

// "There is no chain nat/KUBE-MARK-DROP here: kubelet makes none since 1.27, ...": for a chain that
// Explain did not find. Empty where programs of today make it, or none ever did.
std::string NoLongerMade(absl::string_view chain);

std::string ExplainText(const Explanation& explanation);
std::string ExplainJson(const Explanation& explanation);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_EXPLAIN_H_
