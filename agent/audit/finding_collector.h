// SPDX-License-Identifier: Apache-2.0
//
// Gathers the findings of an audit, and applies the allow list to them.
#ifndef KIPT_AGENT_AUDIT_FINDING_COLLECTOR_H_
#define KIPT_AGENT_AUDIT_FINDING_COLLECTOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "agent/audit/audit.h"

namespace kipt::agent {

// An audit before `change` may have findings of `kind`.
bool CanFind(NodeChange change, AuditKind kind);

// Gathers findings. Those with the same kind, iptables mode, family, chain, owner and `variant` are
// one, with a count and the words of the first. The allow list is applied before, to each rule.
class FindingCollector {
 public:
  explicit FindingCollector(const AuditOptions& of) : options(of), marks(of.OurMarks()) {}

  const AuditOptions& options;
  // OurMarks, without what nothing acts on any more.
  uint32_t marks;
  // Both describe the findings that are added from now on.
  std::string netns;
  bool counted = false;  // HasCounters

  void AddRule(AuditFinding finding, AuditedRule rule, const std::string& variant = "");
  void AddDetail(AuditFinding finding, const std::string& detail, const std::string& variant = "");
  // With its rules, details and count, which no entry of the allow list can name.
  void AddSum(AuditFinding finding, const std::string& variant = "");
  // To the finding of rules that are kept: more of them.
  void AddLeftOut(AuditFinding finding, const LeftOutRules& rules);
  // CanFind of this change. The others are not taken.
  bool Collects(AuditKind kind) const;

  // Writes everything so far, and those unused entries of the allow list that are not for an audit
  // before another change. Call once, last.
  void Finish(AuditReport& report);

 private:
  AuditFinding& At(AuditFinding finding, const std::string& allowed_text,
                   const std::string& variant);

  // With the namespace, and the line of the entry that allows it or 0.
  using Key = std::tuple<AuditKind, std::string, std::string, std::string, std::string, Owner,
                         std::string, size_t>;
  std::map<Key, size_t> places_;
  std::vector<AuditFinding> findings_;
  std::set<size_t> used_entries_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_FINDING_COLLECTOR_H_
