// SPDX-License-Identifier: Apache-2.0
//
// What actors have in common: notes about their iptables calls, what programs printed, and the
// canary of kubelet and kube-proxy.
#ifndef KIPT_TESTS_SKEW_ACTORS_IPTABLES_CALLS_H_
#define KIPT_TESTS_SKEW_ACTORS_IPTABLES_CALLS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/run_program.h"

namespace kipt::skew {

// "exit code 2: iptables-restore v1.8.9 ..."
inline std::string WhatFailed(const testing::ProgramResult& result) {
  return absl::StrCat("exit code ", result.exit_code, ": ", absl::StripAsciiWhitespace(result.err));
}

// Of what a program printed the last lines, as one.
std::string LastLines(const std::string& text, size_t count = 8);

// The names of the chains of `table`; none where it cannot be read.
std::vector<std::string> ChainsOf(const testing::Iptables& iptables, const std::string& table);
testing::KubeletStep EnsureChain(const std::string& table, const std::string& chain);
// Of each jump its chain, and the jump itself.
std::vector<testing::KubeletStep> StepsOf(const std::vector<ProxyJump>& jumps);
// `arguments` after those for the lock.
std::vector<std::string> Waiting(const std::vector<std::string>& wait,
                                 const std::vector<std::string>& arguments);

class FamilyNotes {
 public:
  // `act` must outlive it.
  FamilyNotes(testing::IpFamily family, Act& act)
      : prefix_(absl::StrCat(testing::NameOf(family), ": ")), act_(act) {}

  void Done(const std::string& what) { act_.done.push_back(prefix_ + what); }
  void Called(const testing::Iptables& iptables, const std::vector<std::string>& arguments,
              const testing::ProgramResult& result) {
    act_.calls.push_back(testing::CallText(iptables, arguments, result.exit_code));
  }
  void Called(const testing::KubeletRun& run) {
    act_.calls.insert(act_.calls.end(), run.calls.begin(), run.calls.end());
  }
  // Errors of one act follow one another.
  void Failed(const std::string& what) {
    act_.ok = false;
    absl::StrAppend(&act_.error, act_.error.empty() ? "" : "; ", prefix_,
                    absl::StripAsciiWhitespace(what));
  }

 private:
  const std::string prefix_;
  Act& act_;
};

// How kubelet and kube-proxy notice that their tables were emptied: an unused chain, which is
// missing then. Source: Monitor() in Kubernetes' pkg/util/iptables/iptables.go.

class Canary {
 public:
  // `lock_is_loss`: a lock that is not to be had (exit code 4) counts as a lost canary; otherwise
  // it is ignored.
  Canary(testing::Iptables iptables, std::string chain, std::vector<std::string> wait,
         bool lock_is_loss)
      : iptables_(std::move(iptables)),
        chain_(std::move(chain)),
        wait_(std::move(wait)),
        lock_is_loss_(lock_is_loss) {}

  // Makes it in mangle, nat and filter, in this order, where it is missing. A failure ends that,
  // and is logged: the next period tries again before it checks.
  void Ensure(FamilyNotes& notes);
  // Ensure() succeeded: from now on the canary is checked.
  bool ensured() const { return ensured_; }

  // The canary in mangle decides. The real monitor then waits up to 5 s for the canary to vanish
  // from nat and filter too, in case the flush continues. Here they are read once, because no flush
  // is under way.
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

#endif  // KIPT_TESTS_SKEW_ACTORS_IPTABLES_CALLS_H_
