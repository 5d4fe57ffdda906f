// SPDX-License-Identifier: Apache-2.0
//
// Every fuzz target over its committed seeds, in any build: that they compile, and that what they
// check holds for what is real.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "agent/policy/rule_forms.h"
#include "netlink/backend.h"
#include "tests/fuzz/kernel_questions.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/scripted_kernel.h"
#include "tests/fuzz/seed_files.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/wire_messages.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

// For larger seeds each check takes milliseconds.
constexpr size_t kMostToChange = 4096;

class FuzzTargetTest : public ::testing::TestWithParam<FuzzTarget> {};

std::vector<Seed> SeedsOf(const FuzzTarget& target) {
  const std::string tests = KIPT_TESTS_DIR;
  std::vector<Seed> seeds = ReadSeeds(tests + "/fuzz/seeds/" + target.name);
  if (*target.more_seeds == '\0') return seeds;
  for (Seed& seed : ReadSeeds(tests + "/" + target.more_seeds)) seeds.push_back(std::move(seed));
  return seeds;
}

TEST_P(FuzzTargetTest, HoldsForEachOfItsSeeds) {
  for (const Seed& seed : SeedsOf(GetParam())) {
    // If the target ends the process, this is the last line printed.
    RecordProperty("seed", seed.name);
    std::printf("%s\n", seed.name.c_str());
    GetParam().run(seed.bytes);
  }
}

// A cheap fuzzer for builds without libFuzzer: each seed cut off in some places, and with some
// bytes replaced.
TEST_P(FuzzTargetTest, HoldsForSeedsThatAreCutAndChanged) {
  for (const Seed& seed : SeedsOf(GetParam())) {
    if (seed.bytes.size() > kMostToChange) continue;
    const size_t step = seed.bytes.size() / 8 + 1;
    for (size_t i = 0; i < seed.bytes.size(); i += step) {
      const std::vector<uint8_t> cut(seed.bytes.begin(),
                                     seed.bytes.begin() + static_cast<ptrdiff_t>(i));
      GetParam().run(cut);
      std::vector<uint8_t> changed = seed.bytes;
      changed[i] ^= 0xff;
      GetParam().run(changed);
    }
  }
}

TEST_P(FuzzTargetTest, TakesNoBytesAtAll) { GetParam().run({}); }

INSTANTIATE_TEST_SUITE_P(Every, FuzzTargetTest, ::testing::ValuesIn(kParserTargets),
                         [](const ::testing::TestParamInfo<FuzzTarget>& target) {
                           return std::string(target.param.name);
                         });

// What a kernel once answered is understood to its end: seeds that fail at their first answer would
// let the fuzzer see nothing else.

// Of a question that is answered by several requests; else Unimplemented.
absl::Status Ask(Question question, netlink::Backend& backend) {
  switch (question) {
    case Question::kRead:
      return backend.Read(QuestionedChains()).status();
    case Question::kSurvey:
      return backend.TakeSurvey(nullptr).status();
    case Question::kNativeTable:
      return backend.Read({}, &agent::NativeMartians()).status();
    default:
      return absl::UnimplementedError("");
  }
}

TEST(RecordedAnswersTest, AreUnderstoodToTheirEnd) {
  int understood = 0;
  for (const Seed& seed : ReadSeeds(std::string(KIPT_TESTS_DIR) + "/fuzz/seeds/kernel_answers")) {
    if (!absl::StartsWith(seed.name, "recorded.hex")) continue;
    SCOPED_TRACE(seed.name);
    FuzzBytes input = seed.bytes;
    const auto question = static_cast<Question>(TakeSelector(input, kQuestions));
    const ScriptedKernel kernel(TakeFrames(input));
    const auto backend = netlink::NewNftBackend();
    ASSERT_THAT(backend, IsOk());
    const absl::Status status = Ask(question, **backend);
    if (absl::IsUnimplemented(status)) continue;
    ++understood;
    EXPECT_THAT(status, IsOk());
    EXPECT_EQ(kernel.left(), 0U);
  }
  // Of a namespace that is empty, and of one that is not.
  EXPECT_EQ(understood, 6);
}

}  // namespace
}  // namespace kipt::testing
