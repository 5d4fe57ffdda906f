// SPDX-License-Identifier: Apache-2.0
//
// Notes what one family's part of an act came to: "ipv6: ...".
#ifndef KIPT_TESTS_SKEW_ACTORS_FAMILY_NOTES_H_
#define KIPT_TESTS_SKEW_ACTORS_FAMILY_NOTES_H_

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tests/skew/actors/actor.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/run_program.h"

namespace kipt::skew {

// "exit code 2: iptables-restore v1.8.9 ..."
inline std::string WhatFailed(const testing::ProgramResult& result) {
  return absl::StrCat("exit code ", result.exit_code, ": ", absl::StripAsciiWhitespace(result.err));
}

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
  // Errors of one act stand one behind the other.
  void Failed(const std::string& what) {
    act_.ok = false;
    absl::StrAppend(&act_.error, act_.error.empty() ? "" : "; ", prefix_,
                    absl::StripAsciiWhitespace(what));
  }

 private:
  const std::string prefix_;
  Act& act_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ACTORS_FAMILY_NOTES_H_
