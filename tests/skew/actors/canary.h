// SPDX-License-Identifier: Apache-2.0
//
// How kubelet and kube-proxy notice that somebody has emptied their tables: a chain that nobody
// uses, and that is gone then. Source: Monitor() in Kubernetes' pkg/util/iptables/iptables.go.
#ifndef KIPT_TESTS_SKEW_ACTORS_CANARY_H_
#define KIPT_TESTS_SKEW_ACTORS_CANARY_H_

#include <string>
#include <utility>
#include <vector>

#include "tests/skew/actors/family_notes.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

class Canary {
 public:
  // `lock_is_loss`: a lock that is not to be had (exit code 4) counts as a lost canary; otherwise
  // it tells nothing.
  Canary(testing::Iptables iptables, std::string chain, std::vector<std::string> wait,
         bool lock_is_loss)
      : iptables_(std::move(iptables)),
        chain_(std::move(chain)),
        wait_(std::move(wait)),
        lock_is_loss_(lock_is_loss) {}

  // Makes it in mangle, nat and filter, in this order, where it is not. A failure ends that, and is
  // logged: the next period tries again before it looks.
  void Ensure(FamilyNotes& notes);
  // Ensure() has done its work: from now on it is looked at.
  bool ensured() const { return ensured_; }

  // Looks in mangle; it decides. The real one then waits up to 5 s for the canary to vanish from
  // nat and filter too, in case the flush still goes on: they are asked once here, for there is
  // nobody to wait for.
  bool IsGone(FamilyNotes& notes) const;

 private:
  bool IsGoneFrom(const char* table, FamilyNotes& notes) const;

  testing::Iptables iptables_;
  std::string chain_;
  std::vector<std::string> wait_;
  bool lock_is_loss_;
  bool ensured_ = false;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ACTORS_CANARY_H_
