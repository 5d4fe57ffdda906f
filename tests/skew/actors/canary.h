// SPDX-License-Identifier: Apache-2.0
//
// File: tests/skew/actors/canary.h
//
// How kubelet and kube-proxy notice that somebody has emptied their tables: a chain that nobody
// uses, and that is gone then. Source: Monitor() in Kubernetes' pkg/util/iptables/iptables.go.
#ifndef KIPT_TESTS_SKEW_ACTORS_CANARY_H_
#define KIPT_TESTS_SKEW_ACTORS_CANARY_H_

#include <string>
#include <utility>

#include "tests/skew/actors/family_notes.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

class Canary {
 public:
  Canary(testing::Iptables iptables, std::string chain)
      : iptables_(std::move(iptables)), chain_(std::move(chain)) {}

  // Makes it in mangle, nat and filter, in this order, where it is not. A failure ends that, and is
  // logged: the next period tries again before it looks.
  void Ensure(FamilyNotes& notes);
  // Ensure() has done its work: from now on it is looked at.
  bool ensured() const { return ensured_; }

  // Looks in mangle, and there alone. The real one then waits up to 5 s for it to vanish from the
  // other tables too, in case the flush still goes on; there is nobody to wait for here. A lock
  // that is not to be had (exit code 4) tells nothing.
  bool IsGone() const;

 private:
  testing::Iptables iptables_;
  std::string chain_;
  bool ensured_ = false;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ACTORS_CANARY_H_
