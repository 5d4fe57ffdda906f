// SPDX-License-Identifier: Apache-2.0
//
// What a kernel once answered is understood to its end: seeds that fail at their first answer would
// let the fuzzer see nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "agent/policy/rule_forms.h"
#include "netlink/backend.h"
#include "tests/fuzz/kernel_questions.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/scripted_kernel.h"
#include "tests/fuzz/seed_files.h"
#include "tests/fuzz/wire_messages.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

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
