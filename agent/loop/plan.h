// SPDX-License-Identifier: Apache-2.0
//
// One check: what exists, compared with what is desired (Compare).
#ifndef KIPT_AGENT_LOOP_PLAN_H_
#define KIPT_AGENT_LOOP_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/loop/incident.h"
#include "agent/policy/diff.h"
#include "agent/policy/martians.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

// What one check found.
struct Plan {
  uint32_t generation = 0;
  // By Backend::ReadTorn: what was not seen may exist.
  bool torn = false;
  // The families that were checked.
  std::vector<netlink::Family> families = {};
  Diff diff;
  // Families in which kube-proxy is active (ownership.h).
  std::vector<netlink::Family> claimed_by_kube_proxy = {};
  // Where kube-proxy's KUBE-SERVICES exists in table nat.
  std::vector<netlink::Family> with_services = {};
  // Where table nat lacks the jump to KUBE-POSTROUTING, and else only what `kube-proxy --cleanup`
  // deletes, and no base chain leads to KUBE-SERVICES.
  std::vector<netlink::Family> in_cleanup = {};
  // In the base chains that were read, each once, sorted.
  std::vector<ForeignJump> foreign_jumps = {};
  MartianProtection martians = {};
  // What to remove of diff.stale, and in the other iptables mode; if requested.
  std::optional<Retirement> retirement = {};
  std::optional<Retirement> other_retirement = {};

  bool operator==(const Plan&) const = default;
};

// What is damaged, repaired and fought over: one rule, anywhere in its chain, or one chain.
struct Item {
  netlink::ChainId chain;
  // "-A INPUT -j KUBE-FIREWALL", "-D INPUT ..." for a rule that is to be deleted, ":KUBE-FIREWALL
  // - [0:0]" for a chain.
  std::string text;

  auto operator<=>(const Item&) const = default;
};
Item ItemOf(const netlink::Operation& operation);

// Whether `change` adds the jump to KUBE-POSTROUTING of `family`, and whether it makes that chain
// or a rule of it.
bool IsPostroutingJump(const Change& change, netlink::Family family);
bool IsOfPostrouting(const Change& change, netlink::Family family);

// What `observed` lacks of `input` on a node that can hold `support`.
Plan Compare(const PolicyInput& input, const RuleSupport& support,
             const netlink::Snapshot& observed);

// The last comparison: a check of an undisturbed node finds what the one before it found.
class LastComparison {
 public:
  // As the function above, which is called where more than counters and the generation differs, or
  // next to more than 1,000 rules.
  Plan Compare(const PolicyInput& input, const RuleSupport& support,
               const netlink::Snapshot& observed);

 private:
  PolicyInput input_;
  RuleSupport support_;
  netlink::Snapshot observed_;
  std::optional<Plan> plan_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_PLAN_H_
