// SPDX-License-Identifier: Apache-2.0
//
// Chooses the rules that an audit needs while they are read, and counts the others: next to 10,000
// services nearly all rules are kube-proxy's own, and a few of them show how it writes.
#ifndef KIPT_AGENT_AUDIT_AUDIT_SIEVE_H_
#define KIPT_AGENT_AUDIT_AUDIT_SIEVE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "agent/audit/node_view.h"
#include "netlink/survey.h"

namespace kipt::agent {

// For one survey.
class AuditSieve : public netlink::SurveySieve {
 public:
  // Keeps so many of the rules that an audit always needs, for each reason. A bound against a
  // writer that makes up rules: those of one reason push out none of another, nor those that do one
  // thing with the marks in question the rules that do another.
  static constexpr size_t kMostNeeded = 1000;
  // Keeps so many rules of one form in a chain of kube-proxy's, and chains that it makes per
  // service or endpoint.
  static constexpr size_t kSamples = 16;
  // Keeps so many jumps between chains of other programs, and ends of their chains.
  static constexpr size_t kMostJumps = 1000;

  explicit AuditSieve(SiftOptions options) : options_(std::move(options)) {}

  absl::Status Begin(const netlink::TableId& table, const std::string& chain, bool base) override;
  bool Keep(const netlink::SurveyRule& rule) override;
  bool KeepBare() override;

  const LeftOut& left_out() const { return left_out_; }

 private:
  // Family, table, and "KUBE-SVC-*" or the one chain's name.
  using Group = std::tuple<std::string, std::string, std::string>;

  // Why a rule is needed.
  enum class Need : uint8_t { kNone, kOwnChain, kMarks, kJump, kOther };

  bool KeepByUse(const netlink::SurveyRule& rule);
  bool KeepOfProxy(const netlink::SurveyRule& rule);
  Need NeedOf(const netlink::SurveyRule& rule) const;
  bool HasRoom(Need need, const netlink::Marks& marks = {});
  void Count(Owner owner, const netlink::SurveyRule& rule);

  SiftOptions options_;
  // The chain that is read.
  netlink::TableId table_;
  std::string chain_;
  bool base_ = false;
  Owner owner_ = Owner::kUnknown;
  bool proxys_ = false;
  Group group_;
  bool one_of_many_ = false;
  bool any_kept_ = false;
  // Kept rules of the chain, by what they do: "DNAT", "KUBE-SEP-*".
  std::map<std::string, size_t, std::less<>> kept_of_form_;

  // Chains that are kept, with and without rules.
  std::map<Group, size_t> samples_;
  std::map<Group, size_t> bare_samples_;
  std::map<std::pair<std::string, Owner>, size_t> examples_;
  // Rules that iptables cannot list, kept as examples.
  std::map<netlink::TableId, size_t> unlistable_;
  // By what they do with SiftOptions::marks: set, test and clear.
  std::map<std::tuple<Need, uint32_t, uint32_t, uint32_t>, size_t> needed_;
  size_t jumps_ = 0;
  LeftOut left_out_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_AUDIT_SIEVE_H_
