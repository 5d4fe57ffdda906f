// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/seed_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "tests/fuzz/wire_messages.h"

namespace kipt::testing {

std::vector<Seed> ReadSeeds(const std::string& directory) {
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
      std::optional<std::vector<uint8_t>> bytes = BytesOfHex(line);
      EXPECT_TRUE(bytes.has_value()) << path << ", line " << number + 1;
      ++number;
      if (bytes) seeds.push_back(Seed{name + ":" + std::to_string(number), *std::move(bytes)});
    }
  }
  EXPECT_FALSE(seeds.empty()) << "no seeds in " << directory;
  return seeds;
}

}  // namespace kipt::testing
