// SPDX-License-Identifier: Apache-2.0
//
// The way from one pair of versions to another: in stages that the skew policy allows, each with an
// order, and what such a change brings with it.
#ifndef KIPT_TESTS_SKEW_ADVISE_UPGRADE_WAY_H_
#define KIPT_TESTS_SKEW_ADVISE_UPGRADE_WAY_H_

#include <vector>

#include "tests/skew/advise/advise.h"
#include "tests/skew/matrix/cell.h"

namespace kipt::skew {

struct Change {
  Pair from;
  Pair to;
  bool up = true;

  bool kubelet_moves() const { return from.kubelet != to.kubelet; }
  bool proxy_moves() const { return from.proxy != to.proxy; }
};

struct Way {
  Change whole;
  // Never empty.
  std::vector<Change> stages;
};

// A downgrade is one stage.
Way WayOf(const UpgradePlan& plan);

enum class Order { kAny, kKubeletFirst, kProxyFirst, kNeither };

// In which order the pair in between does no more harm to Kubernetes' own services than the ends of
// the stage; kNeither: in none.
Order OrderOf(const Change& stage);
// The two that meet in between.
Pair Between(const Change& stage, Order order);

bool StartsCleaningUp(const Change& change);

// What a change brings with it, whatever its order.
struct ChangeRow {
  bool (*holds)(const Change&);
  // Empty: nothing to do.
  const char* step;
  const char* reason;
  // Whose cells on the path kubelet first show it; 0: none.
  int kubelet;
  int proxy;
};
std::vector<const ChangeRow*> WhatComesWith(const Change& change);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ADVISE_UPGRADE_WAY_H_
