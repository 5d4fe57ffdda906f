// SPDX-License-Identifier: Apache-2.0
//
// Is this upgrade safe for a node's iptables rules, in which order, and why.
#ifndef KIPT_TESTS_SKEW_ADVISE_ADVISE_H_
#define KIPT_TESTS_SKEW_ADVISE_ADVISE_H_

#include <optional>
#include <string>
#include <vector>

#include "tests/skew/versions/versions.h"

namespace kipt::skew {

struct UpgradePlan {
  // kubelet's versions. A downgrade is one too.
  KubeletVersion from;
  KubeletVersion to;
  // kube-proxy's, which goes the same way where it is not given.
  std::optional<ProxyVersion> proxy_from = {};
  std::optional<ProxyVersion> proxy_to = {};
};

struct Advice {
  enum class Kind { kSafe, kSafeInOrder, kUnsafe };
  Kind kind = Kind::kSafe;
  // One sentence that answers.
  std::string answer;
  // What to do, in this order.
  std::vector<std::string> steps = {};
  // Why, each with its fact, and the cells of the matrix that show it ("upgrade/kubelet-1.25/...").
  struct Reason {
    std::string text;
    std::vector<std::string> cells = {};
  };
  std::vector<Reason> reasons = {};
};

Advice Advise(const UpgradePlan& plan);

std::string AdviceText(const Advice& advice);
std::string AdviceJson(const Advice& advice);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ADVISE_ADVISE_H_
