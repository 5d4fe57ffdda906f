// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_FUZZ_SEED_FILES_H_
#define KIPT_TESTS_FUZZ_SEED_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace kipt::testing {

struct Seed {
  std::string name;  // "list.conflist", "rules.hex:12"
  std::vector<uint8_t> bytes;
};

// The inputs in the files of `directory`: each file one, but of NAME.hex each line, in hexadecimal
// digits, as tests/fuzz/run gives them to libFuzzer. In the order of their names. Fails the test
// that asks where there are none, or a line is no such number.
std::vector<Seed> ReadSeeds(const std::string& directory);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_SEED_FILES_H_
