// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_FUZZ_SEED_FILES_H_
#define KIPT_TESTS_FUZZ_SEED_FILES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"

namespace kipt::testing {

struct Seed {
  std::string name;  // "list.conflist", "rules.hex:12"
  std::vector<uint8_t> bytes;
};

// The inputs in the files of `directory`: each file one, but of NAME.hex each line, in hexadecimal
// digits, as tests/fuzz/run gives them to libFuzzer. In the order of their names. Fails the test
// that asks where there are none, or a line is no such number.
inline std::vector<Seed> ReadSeeds(const std::string& directory) {
  std::vector<Seed> seeds;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string name = path.filename().string();
    if (path.extension() != ".hex") {
      const std::string text(std::istreambuf_iterator<char>(file), {});
      seeds.push_back(Seed{.name = name, .bytes = {text.begin(), text.end()}});
      continue;
    }
    size_t number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      const std::string bytes = absl::HexStringToBytes(line);
      EXPECT_EQ(absl::BytesToHexString(bytes), line) << path << ", line " << number;
      seeds.push_back(Seed{name + ":" + std::to_string(number), {bytes.begin(), bytes.end()}});
    }
  }
  EXPECT_FALSE(seeds.empty()) << "no seeds in " << directory;
  return seeds;
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_SEED_FILES_H_
