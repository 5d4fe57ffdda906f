// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/item.h
//
// What is damaged, repaired and fought over: one rule or chain, wherever it is to be inserted.
#ifndef KIPT_AGENT_LOOP_ITEM_H_
#define KIPT_AGENT_LOOP_ITEM_H_

#include <string>

#include "agent/policy/diff.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"

namespace kipt::agent {

struct Item {
  netlink::ChainId chain;
  // "-A INPUT -j KUBE-FIREWALL", "-D INPUT ..." for a rule that is to be deleted, ":KUBE-FIREWALL
  // - [0:0]" for a chain.
  std::string text;

  auto operator<=>(const Item&) const = default;
};

// What `operation` makes or deletes. The place of a rule is left out: it differs from one check to
// the next as other programs add and delete rules, and the item is the same.
Item ItemOf(const netlink::Operation& operation);

// Whether a rule or chain is missing, or no packet comes to it, until `change` is made.
bool IsAddition(const Change& change);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_ITEM_H_
