// SPDX-License-Identifier: Apache-2.0
//
// For tests of what must be refused: with words, an exit code, and a kernel in which nothing
// changed.
#ifndef KIPT_TESTS_INTEROP_REFUSAL_FIXTURE_H_
#define KIPT_TESTS_INTEROP_REFUSAL_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/interop/agent_fixture.h"
#include "tests/support/generation_listener.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {

class RefusalTest : public AgentTest {
 protected:
  // A node where there is something to spoil: the rules of kubelet 1.17, which any sync would
  // change.
  void SetUp() override {
    AgentTest::SetUp();
    if (HasFatalFailure()) return;
    Kubelet(KubeletForm::k1_17, {IpFamily::kIpv4});
    before_ = Ruleset();
    auto listener = GenerationListener::Create();
    ASSERT_THAT(listener, IsOk());
    listener_ = *std::move(listener);
  }

  static std::string Ruleset() { return Output({"/usr/sbin/nft", "-a", "list", "ruleset"}); }

  void ExpectRefused(const ProgramResult& result, int exit_code,
                     const std::vector<std::string>& said) {
    EXPECT_EQ(result.exit_code, exit_code) << result;
    for (const std::string& words : said) EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.out, "") << "errors belong on standard error";
    ExpectKernelUnchanged();
  }
  void ExpectKernelUnchanged() {
    EXPECT_THAT(listener_->Drain(), IsOkAndHolds(IsEmpty()));
    EXPECT_EQ(Ruleset(), before_);
  }

  std::unique_ptr<GenerationListener> listener_;
  std::string before_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_REFUSAL_FIXTURE_H_
