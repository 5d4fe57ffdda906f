// SPDX-License-Identifier: Apache-2.0
//
// An act that must fail, by what is known of these versions, and how.
#ifndef KIPT_TESTS_SKEW_MATRIX_KNOWN_ERROR_H_
#define KIPT_TESTS_SKEW_MATRIX_KNOWN_ERROR_H_

#include <array>
#include <string>

namespace kipt::skew {

struct KnownError {
  // Why iptables refuses a rule: the chain that it jumps to is not there. Empty: nothing must fail.
  std::string because = {};
  std::string missing_chain = {};
  // Or why the kernel refuses to delete this chain of nat: another chain jumps to it.
  std::string busy_chain = {};
  // It depends on who is faster: none of the families has to fail.
  bool may_succeed = false;
  // IPv4, IPv6.
  std::array<bool, 2> families = {};

  bool MustFail() const { return families[0] || families[1]; }
};

// Whether `error` (an Act's) is that failure and nothing else: each of these families failed and no
// other, and iptables reported of each that it does not find the one chain, or cannot delete the
// other. iptables-legacy names no chain there: a line of nat's restore failed.
bool Explains(const KnownError& known, const std::string& error);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_KNOWN_ERROR_H_
