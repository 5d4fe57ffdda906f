// SPDX-License-Identifier: Apache-2.0
//
// How often the kernel's ruleset changes because of us, and what happens while others change it.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/interop/agent_fixture.h"
#include "tests/support/generation_listener.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

// For iptables-restore, which makes each COMMIT a transaction.
std::string ManyTransactions() {
  std::string text;
  for (const char* line : {":RACE-%d - [0:0]", "-X RACE-%d"}) {
    for (int i = 0; i < 300; ++i) {
      const std::string name = absl::StrCat(i);
      absl::StrAppend(&text, "*raw\n", absl::StrReplaceAll(line, {{"%d", name}}), "\nCOMMIT\n");
    }
  }
  return text;
}

class TransactionsTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    if (HasFatalFailure()) return;
    auto listener = GenerationListener::Create();
    ASSERT_THAT(listener, IsOk());
    listener_ = *std::move(listener);
  }
  std::vector<GenerationChange> Changes() {
    const auto changes = listener_->Drain();
    EXPECT_THAT(changes, IsOk());
    return changes.ok() ? *changes : std::vector<GenerationChange>();
  }
  std::unique_ptr<GenerationListener> listener_;
};

TEST_F(TransactionsTest, AFullSyncOfBothFamiliesIsOneAndASecondSyncIsNone) {
  for (const bool ownership_cleanup : {true, false}) {
    const AgentSettings settings = {ownership_cleanup};
    Sync(settings);
    const std::vector<GenerationChange> changes = Changes();
    ASSERT_THAT(changes, SizeIs(1));
    EXPECT_EQ(changes[0].process, "kube-iptables-a") << "a name has 15 characters in the kernel";
    Sync(settings);
    EXPECT_THAT(Changes(), IsEmpty());
  }
}

TEST_F(TransactionsTest, LookingChangesNothing) {
  for (const bool synced : {false, true}) {
    for (const char* command : {"plan", "status", "detect", "gates", "version"}) {
      Agent(command, {.ownership_cleanup = false});
      EXPECT_THAT(Changes(), IsEmpty()) << command;
    }
    if (!synced) Sync({.ownership_cleanup = false});
    Changes();
  }
}

TEST_F(TransactionsTest, KubeletNeedsManyForWhatWeDoInOne) {
  Kubelet(KubeletForm::k1_27GateOff, {IpFamily::kIpv4});
  EXPECT_GT(Changes().size(), 10U);
}

// Thousands of small transactions by another program while we sync again and again, until three of
// our syncs had one of them land between a read and the write that was planned on it.
TEST_F(TransactionsTest, SyncEndsRightWhileAnotherProgramKeepsWriting) {
  const AgentSettings legacy = {.ownership_cleanup = false};
  const Iptables ipv6{IpFamily::kIpv6};
  Sync(legacy);
  const SavedRules whole = SavedRules::Of(ipv6);
  std::atomic<bool> stop = false;
  int writers_failed = 0;
  // A new thread is in the namespace of the one that makes it.
  std::thread writer([&] {
    const std::string text = ManyTransactions();
    while (!stop) {
      writers_failed += Iptables{IpFamily::kIpv4}.Restore(text).exit_code != 0;
    }
  });
  int raced = 0;
  for (int round = 0; round < 400 && raced < 3; ++round) {
    EXPECT_EQ(ipv6.Run({"-t", "mangle", "-X", "KUBE-IPTABLES-HINT"}).exit_code, 0);
    EXPECT_EQ(ipv6.Run({"-t", "nat", "-F", "KUBE-POSTROUTING"}).exit_code, 0);
    const ProgramResult result = Agent({"sync", legacy.Flags()[0], "--output=json"});
    EXPECT_EQ(result.exit_code, kExitOk) << result;
    raced += result.out.find("\"checks\": 1,") == std::string::npos;
    EXPECT_EQ(SavedRules::Of(ipv6), whole);
  }
  stop = true;
  writer.join();
  EXPECT_EQ(raced, 3);
  EXPECT_EQ(writers_failed, 0);
  ExpectNothingPlanned(legacy);
}

}  // namespace
}  // namespace kipt::testing
