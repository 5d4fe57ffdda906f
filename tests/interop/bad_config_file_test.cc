// SPDX-License-Identifier: Apache-2.0
//
// Files and flags that must be refused, and kubelet's own file, which must not.
#include <sys/stat.h>
#include <unistd.h>

#include "tests/interop/agent_fixture.h"
#include "tests/support/generation_listener.h"

namespace kipt::testing {
namespace {

// What must be refused: with words, an exit code, and a kernel in which nothing changed.
class RefusalTest : public AgentTest {
 protected:
  // A node where there is something to spoil: the rules of kubelet 1.17, which any sync would
  // change.
  void SetUp() override {
    AgentTest::SetUp();
    if (HasFatalFailure()) return;
    Kubelet(KubeletForm::k1_17, {IpFamily::kIpv4});
    before_ = Ruleset();
    listener_ = GenerationListener::Create();
    ASSERT_THAT(listener_, IsOk());
  }

  static std::string Ruleset() { return Output({"/usr/sbin/nft", "-a", "list", "ruleset"}); }

  void ExpectRefused(const ProgramResult& result, const std::vector<std::string>& said) {
    EXPECT_EQ(result.exit_code, kExitUsage) << result;
    for (const std::string& words : said) EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.out, "") << "errors belong on standard error";
    ExpectKernelUnchanged();
  }
  void ExpectKernelUnchanged() {
    EXPECT_THAT(listener_->Drain(), IsOkAndHolds(netlink::RulesetChanges()));
    EXPECT_EQ(Ruleset(), before_);
  }

  absl::StatusOr<GenerationListener> listener_;
  std::string before_;
};

// The message for each wrong file, flag and command is in tests/agent/config.
TEST_F(RefusalTest, AWrongFileIsRefusedWithItsPathAndWhatIsWrong) {
  struct Row {
    const char* name;
    std::string content;
    std::string said;
  };
  for (const Row& row :
       {Row{"a bit out of range", absl::StrCat(kConfigHead, "iptablesMasqueradeBit: 32\n"),
            "32 must be between 0 and 31"},
        Row{"brackets that never end", std::string(100'000, '['), ":1: "}}) {
    SCOPED_TRACE(row.name);
    const TemporaryFile file(row.content);
    ExpectRefused(Agent({"sync", absl::StrCat("--config=", file.path())}), {file.path(), row.said});
  }
}

TEST_F(RefusalTest, TheKubeletConfigurationOfARealNodeIsAccepted) {
  const std::string config = absl::StrCat("--config=", KIPT_KUBELET_CONFIG);
  EXPECT_EQ(Agent({"plan", config}).exit_code, kExitDifferences);
  ExpectKernelUnchanged();
  const ProgramResult sync = Agent({"sync", config});
  EXPECT_EQ(sync.exit_code, kExitOk) << sync;
  // The gate and the bits of the file count; makeIPTablesUtilChains speaks of kubelet only.
  const SavedRules from_file = SavedRules::Of({IpFamily::kIpv6});
  const Netns fresh = NewNetns();
  const InNetns in(fresh);
  Sync({.ownership_cleanup = false, .bits = {12, 13}});
  EXPECT_EQ(from_file, SavedRules::Of({IpFamily::kIpv6}));
}

TEST_F(RefusalTest, ItsOtherWritersAreReported) {
  const TemporaryFile file(kConfigHead);
  struct Row {
    uid_t owner;
    gid_t group;
    mode_t mode;
    std::string says;
  };
  for (const Row& row : std::vector<Row>{{0, 0, 0664, ""},
                                         {0, 1000, 0644, ""},
                                         {0, 1000, 0664, "can be written by group 1000, and so"},
                                         {1000, 0, 0600, "can be written by user 1000, and so"}}) {
    ASSERT_EQ(chown(file.path().c_str(), row.owner, row.group), 0);
    ASSERT_EQ(chmod(file.path().c_str(), row.mode), 0);
    const ProgramResult result = Agent({"plan", "--config=" + file.path()});
    EXPECT_EQ(result.exit_code, kExitDifferences) << result;
    if (row.says.empty()) {
      EXPECT_THAT(result.err, Not(HasSubstr("can be written"))) << result;
    } else {
      EXPECT_THAT(result.err, HasSubstr(row.says)) << result;
    }
  }
}

TEST_F(RefusalTest, AnAllowListWithoutEndIsRefusedInLittleMemory) {
  const ProgramResult result = RunProgram(
      {"/usr/bin/prlimit", "--as=134217728", AgentProgram(), "audit", "--allow=/dev/zero"});
  ExpectRefused(result, {"/dev/zero is larger than 1048576 bytes"});
}

}  // namespace
}  // namespace kipt::testing
