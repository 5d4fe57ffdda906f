// SPDX-License-Identifier: Apache-2.0
//
// The way of packets that bear one of our mark bits, from the chains where KUBE-MARK-* sets it to
// those that act on it: which rules of other programs clear it there, and which act on it
// themselves. Follows hooks, priorities, jumps, and conditions on the mark. Pure.
#ifndef KIPT_AGENT_AUDIT_MARK_PATH_H_
#define KIPT_AGENT_AUDIT_MARK_PATH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "netlink/survey.h"

namespace kipt::agent {

struct MarkPath {
  netlink::Family family = netlink::Family::kIPv4;
  uint32_t bit = 0;         // one of them
  bool masquerades = true;  // in nat POSTROUTING; else it drops, in filter INPUT and OUTPUT
  // kube-proxy's IPVS mode: ip_vs sends packets from INPUT to OUTPUT.
  bool ipvs = false;
  // FORWARD leads to KUBE-FIREWALL, too.
  bool drops_forwarded = false;
};

// A rule on the way. Points into the survey.
struct MarkRule {
  const netlink::TableId* table = nullptr;
  const std::string* chain = nullptr;
  const netlink::SurveyRule* rule = nullptr;
};

// Whether packets of `family` pass the table: ip, ip6 or inet.
bool PassesFamily(const netlink::TableId& table, netlink::Family family);
// Every packet matches, except for what the rule asks of the mark and of the family.
bool TestsMarkAlone(const netlink::SurveyRule& rule);
// It masquerades, or else drops, by a target of iptables or a statement of nft.
bool IsMarkAction(const netlink::SurveyRule& rule, bool masquerades);

// Rules that are not Kubernetes' own and that clear the bit after it is set and before it is acted
// on. A rule that tests the mark so that no packet with the bit matches is none of them.
std::vector<MarkRule> FindClearedMarks(const netlink::Survey& survey, const MarkPath& path);

// A rule that is not Kubernetes' own masquerades, or drops, only packets that bear the bit.
bool OthersActOnMark(const netlink::Survey& survey, const MarkPath& path);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_MARK_PATH_H_
