// SPDX-License-Identifier: Apache-2.0
//
// What is fuzzed: functions that take any bytes, and end the process where something does not hold
// that the code promises. One executable of libFuzzer's is made of each (fuzz_NAME,
// fuzzer_entry.cc); the tests run them over the committed seeds (seeds_test.cc, backends_test.cc).
#ifndef KIPT_TESTS_FUZZ_TARGETS_H_
#define KIPT_TESTS_FUZZ_TARGETS_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"

namespace kipt::testing {

using FuzzBytes = absl::Span<const uint8_t>;

void FuzzAudit(FuzzBytes input);
void FuzzConfigFile(FuzzBytes input);
void FuzzFlags(FuzzBytes input);
void FuzzKernelAnswers(FuzzBytes input);
void FuzzNativeTable(FuzzBytes input);
void FuzzNodeFiles(FuzzBytes input);
void FuzzOutputs(FuzzBytes input);
void FuzzRuleDecoder(FuzzBytes input);
void FuzzSaveParser(FuzzBytes input);
void FuzzXtBlobs(FuzzBytes input);
// Needs a kernel and root, and moves to a network namespace of its own.
void FuzzBackends(FuzzBytes input);

struct FuzzTarget {
  const char* name;  // of the folder of its seeds, too
  void (*run)(FuzzBytes input);
  // More seeds, seen from tests/; as in tests/fuzz/run. Empty: none.
  const char* more_seeds = "";
};

// Those that need no kernel.
inline constexpr std::array<FuzzTarget, 10> kParserTargets = {{
    {"audit", FuzzAudit, "agent/testdata/audited"},
    {"config_file", FuzzConfigFile},
    {"flags", FuzzFlags},
    {"kernel_answers", FuzzKernelAnswers},
    {"native_table", FuzzNativeTable},
    {"node_files", FuzzNodeFiles},
    {"outputs", FuzzOutputs},
    {"rule_decoder", FuzzRuleDecoder},
    {"save_parser", FuzzSaveParser, "agent/testdata/rulesets"},
    {"xt_blobs", FuzzXtBlobs},
}};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_TARGETS_H_
