// SPDX-License-Identifier: Apache-2.0
//
// Netlink messages as a fuzzer's input and as what we would send.
#ifndef KIPT_TESTS_FUZZ_WIRE_MESSAGES_H_
#define KIPT_TESTS_FUZZ_WIRE_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "netlink/ruleset.h"
#include "tests/fuzz/targets.h"

namespace kipt::testing {

// A frame of an input: a byte for its kind, two of length (low first; more than there is: all of
// it), the bytes. Aligned copies, as the kernel's buffers are.
struct Frame {
  uint8_t kind = 0;
  std::vector<uint8_t> bytes;
};
std::vector<Frame> TakeFrames(FuzzBytes input);

// The NFT_MSG_NEWRULE that we would send for `rule`, with a handle, as the kernel would dump it.
// Nothing where the rule cannot be sent.
std::optional<std::vector<uint8_t>> RuleOnTheWire(const netlink::ChainId& chain,
                                                  const netlink::Rule& rule);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_WIRE_MESSAGES_H_
