// SPDX-License-Identifier: Apache-2.0
//
// File: agent/audit/finding_collector.h
//
// Gathers what the parts of an audit find: findings that say the same are one, with a count; the
// allow list is applied before, rule by rule. Not installed.
#ifndef KIPT_AGENT_AUDIT_FINDING_COLLECTOR_H_
#define KIPT_AGENT_AUDIT_FINDING_COLLECTOR_H_

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "agent/audit/audit.h"
#include "agent/audit/audit_finding.h"
#include "netlink/survey.h"

namespace kipt::agent {

// What makes findings the same.
struct FindingKey {
  AuditKind kind = AuditKind::kNotSeen;
  std::string iptables_mode = {};
  std::string family = {};
  std::string chain = {};
  Owner owner = Owner::kUnknown;
  // Whatever else tells findings of one kind apart.
  std::string variant = {};
};

class FindingCollector {
 public:
  // Fills in severity, message, consequence and remedy; called once for each finding.
  using Describe = std::function<void(AuditFinding&)>;

  explicit FindingCollector(const AuditOptions& options) : options_(options) {}

  void SetNamespace(const std::string& netns) { netns_ = netns; }

  // `counted`: the survey has counters.
  void AddRule(const FindingKey& key, const std::string& chain, const netlink::SurveyRule& rule,
               bool counted, const Describe& describe);
  void AddDetail(const FindingKey& key, const std::string& detail, const Describe& describe);
  // About many rules at once, none of which the allow list can name.
  void AddSum(const FindingKey& key, AuditFinding sum, const Describe& describe);

  // Everything so far, with what the allow list's unused entries come to. Call once, last.
  AuditReport Finish();

 private:
  AuditFinding& At(const FindingKey& key, const std::string& allowed_text,
                   const Describe& describe);

  const AuditOptions& options_;
  std::string netns_;
  // With the namespace, and the line of the entry that allows it or 0.
  using WholeKey = std::tuple<AuditKind, std::string, std::string, std::string, std::string, Owner,
                              std::string, size_t>;
  std::map<WholeKey, size_t> places_;
  std::vector<AuditFinding> findings_;
  std::set<size_t> used_entries_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_FINDING_COLLECTOR_H_
