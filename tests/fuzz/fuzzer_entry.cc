// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer's way into one target, which the build names.
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kipt::testing::KIPT_FUZZ_TARGET({data, size});
  return 0;
}
