// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/explain.h
//
// What a chain is there for: every rule that leads to it, by its purpose; what the chain does;
// where packets go from there. Over a survey of any origin.
#ifndef KIPT_AGENT_AUDIT_EXPLAIN_H_
#define KIPT_AGENT_AUDIT_EXPLAIN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/audit/audit.h"
#include "agent/audit/chain_owner.h"
#include "netlink/survey.h"

namespace kipt::agent {

// Rules that lead to the chain for one reason.
struct PurposeGroup {
  absl::string_view id = {};  // "OutsidePodRange", "Hairpin", ...
  std::string title = {};
  absl::string_view reason = {};  // may be empty
  Owner owner = Owner::kUnknown;
  size_t count = 0;
  std::optional<uint64_t> packets = {};  // as AuditFinding::packets
  std::vector<AuditedRule> examples = {};
};

struct Explanation {
  std::string iptables_mode = {};
  std::string family = {};  // "ip", "ip6"
  std::string chain = {};   // "nat/KUBE-MARK-MASQ"
  Owner owner = Owner::kUnknown;
  std::string what = {};                   // what the chain is, in a sentence or two
  std::string maker = {};                  // who put it here
  std::vector<std::string> in_short = {};  // the answer, point by point
  size_t users = 0;                        // rules that lead to it
  std::vector<PurposeGroup> purposes = {};
  size_t rule_count = 0;
  std::vector<AuditedRule> rules = {};  // its own, in order: the first ten
  std::vector<std::string> next = {};   // where packets go from here
};

// `chain` is TABLE/CHAIN, or a name that only one table has.
//
// NotFound: no such chain; the message names similar chains. InvalidArgument: several tables have
// the name.
absl::StatusOr<Explanation> Explain(const netlink::Survey& survey, netlink::Family family,
                                    absl::string_view chain);

std::string ExplainText(const Explanation& explanation);
std::string ExplainJson(const Explanation& explanation);

// ---- chains in plain words ----

// A sentence or two; for a chain that this agent does not know, its likely owner.
std::string ChainMeaning(absl::string_view table, absl::string_view chain, bool base);

// Who put the chain there, and how that is known.
std::string ChainMaker(const FamilyChains& chains, const KubeProxyFacts& proxy,
                       absl::string_view table, absl::string_view chain);

// Where packets go after the chain, point by point; empty where its own rules show it all.
std::vector<std::string> WhereNext(const FamilyChains& chains, absl::string_view table,
                                   absl::string_view chain);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_EXPLAIN_H_
