// SPDX-License-Identifier: Apache-2.0
//
// Rulesets out of a fuzzer's bytes: every match and target that the model has, in chains that both
// kinds of iptables take.
#ifndef KIPT_TESTS_FUZZ_RANDOM_RULES_H_
#define KIPT_TESTS_FUZZ_RANDOM_RULES_H_

#include <cstdint>
#include <vector>

#include "netlink/ruleset.h"
#include "tests/fuzz/targets.h"

namespace kipt::testing {

// Bytes as choices; zeros when they are used up. (libFuzzer's own FuzzedDataProvider is a header of
// clang's, and the tests are compiled by g++, too.)
class Choices {
 public:
  explicit Choices(FuzzBytes bytes) : bytes_(bytes) {}

  bool done() const { return bytes_.empty(); }
  uint8_t Byte();
  uint32_t Word();
  // 0 to `count` - 1.
  size_t Below(size_t count) { return count == 0 ? 0 : Byte() % count; }
  bool Flag() { return (Byte() & 1) != 0; }

 private:
  FuzzBytes bytes_;
};

// Those that rulesets are made of: the built-in ones, and user chains of every table.
std::vector<netlink::ChainId> AllChains();
netlink::ChainId RandomChain(Choices& choices);

// For `chain`. Jumps go to user chains that come behind it by name, so there is no loop, and every
// MASQUERADE stands where only POSTROUTING leads to; the chains that are jumped to are those that
// JumpTargets(chain) names.
netlink::Rule RandomRule(const netlink::ChainId& chain, Choices& choices);
std::vector<netlink::ChainId> JumpTargets(const netlink::ChainId& chain);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_RANDOM_RULES_H_
