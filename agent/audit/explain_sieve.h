// SPDX-License-Identifier: Apache-2.0
//
// Finds the rules that lead to a chain while all rules are read, and groups them by purpose: next
// to 10,000 services tens of thousands lead to nat/KUBE-MARK-MASQ, and three of a group are shown.
#ifndef KIPT_AGENT_AUDIT_EXPLAIN_SIEVE_H_
#define KIPT_AGENT_AUDIT_EXPLAIN_SIEVE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "agent/audit/audit_sieve.h"
#include "agent/audit/finding.h"
#include "agent/audit/rule_purpose.h"
#include "agent/policy/known_owners.h"
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

// For one survey. Keeps what an audit keeps, and the beginning of the chain.
class ExplainSieve : public netlink::SurveySieve {
 public:
  // Keeps so many of the chain's own rules.
  static constexpr size_t kMostOwnRules = 10;

  // `chain` is as in Explain.
  explicit ExplainSieve(absl::string_view chain);

  absl::Status Begin(const netlink::TableId& table, const std::string& chain, bool base) override;
  bool Keep(const netlink::SurveyRule& rule) override;
  bool KeepBare() override;

  // As `chain` of the constructor. Without "TABLE/" the table is empty: any.
  const std::string& table() const { return asked_table_; }
  const std::string& chain() const { return asked_chain_; }

  // What was seen of the chain of that name in `table`.
  struct Seen {
    size_t own_rules = 0;
    size_t from_chains = 0;  // that have rules that lead to it
    std::vector<PurposeGroup> purposes = {};
  };
  Seen InTable(const netlink::TableId& table) const;

 private:
  struct Group {
    PurposeGroup shown;
    std::vector<size_t> unnamed = {};  // examples whose rule names no service
  };
  struct Found {
    size_t own_rules = 0;
    size_t from_chains = 0;
    // By the purpose, its parameter and the owner.
    std::map<std::tuple<const PurposeRow*, std::string, Owner>, Group> groups = {};
  };

  void AddUser(const netlink::SurveyRule& rule);
  void NoteService(const netlink::SurveyRule& rule, absl::string_view jump);
  // Which service kube-proxy's chain is about, by the comments of the rules that lead to it.
  std::string ServiceOf(const std::string& chain) const;

  std::string asked_table_;
  std::string asked_chain_;
  AuditSieve audit_;
  // The chain that is read.
  netlink::TableId table_;
  std::string chain_;
  bool base_ = false;
  bool leads_ = false;      // a rule of it leads to the chain
  Found* found_ = nullptr;  // of its table; null where that is not meant

  std::map<netlink::TableId, Found> found_in_;
  // Chains of each table by what they are called like, for a name that no chain has.
  std::set<std::pair<netlink::TableId, std::string>> like_;
  // Of kube-proxy's chains: the service that a comment names, and the chain that leads there.
  absl::flat_hash_map<std::string, std::string> services_;
  absl::flat_hash_map<std::string, std::string> led_from_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_EXPLAIN_SIEVE_H_
