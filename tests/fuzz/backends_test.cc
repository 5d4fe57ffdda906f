// SPDX-License-Identifier: Apache-2.0
//
// The differential fuzzer over its seeds, and on differences that it must see: it is worth only
// what it notices.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/fuzz/seed_files.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/two_backends.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/rows.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

TEST(FuzzBackendsTest, HoldsForEachOfItsSeeds) {
  // The target moves its thread to another namespace for good.
  std::thread([] {
    for (const Seed& seed : ReadSeeds(std::string(KIPT_TESTS_DIR) + "/fuzz/seeds/backends")) {
      std::printf("%s\n", seed.name.c_str());
      FuzzBackends(seed.bytes);
    }
  }).join();
}

const ChainId kInput{Family::kIPv4, Table::kFilter, "INPUT"};
const ChainId kUserChain{Family::kIPv4, Table::kFilter, "KUBE-A"};
const ChainId kPostrouting6{Family::kIPv6, Table::kNat, "POSTROUTING"};
const Rule kReturnMarked{.comment = "the \"one\"",
                         .mark = netlink::MarkMatch{0x8000, 0x8000},
                         .target = netlink::Return{}};

class TwoBackendsTest : public NetnsTest {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (HasFatalFailure()) return;
    absl::StatusOr<std::unique_ptr<TwoBackends>> both = TwoBackends::Open();
    ASSERT_THAT(both, IsOk());
    both_ = *std::move(both);
    ASSERT_THAT(both_->Apply({CreateChain{kUserChain}, CreateChain{kInput},
                              CreateChain{kPostrouting6}, AddRule{kUserChain, kReturnMarked},
                              AddRule{kUserChain, Rule{.target = netlink::Drop{}}},
                              AddRule{kInput, Rule{.target = netlink::Jump{"KUBE-A"}}},
                              AddRule{kPostrouting6, Rule{.target = netlink::Masquerade{true}}}}),
                IsOk());
  }

  std::string Disagreement() {
    const absl::StatusOr<std::string> disagreement = both_->Disagreement();
    EXPECT_THAT(disagreement, IsOk());
    return disagreement.ok() ? *disagreement : "";
  }

  std::unique_ptr<TwoBackends> both_;
};

TEST_F(TwoBackendsTest, SeeEveryWrongRule) {
  struct Row {
    std::string name;
    std::vector<std::string> damage;
    std::vector<std::string> repair;
    std::string seen;  // in the report
  };
  const std::vector<Row> rows = {
      {"a rule too much, in legacy", List("iptables-legacy", "-A", "KUBE-A", "-j", "DROP"),
       List("iptables-legacy", "-D", "KUBE-A", "3"), "the reading of legacy"},
      {"a rule too much, in nft", List("iptables-nft", "-A", "KUBE-A", "-j", "DROP"),
       List("iptables-nft", "-D", "KUBE-A", "3"), "the reading of nft"},
      {"a chain that no program made", List("iptables-legacy", "-t", "mangle", "-N", "nobodys"),
       List("iptables-legacy", "-t", "mangle", "-X", "nobodys"), "nobodys"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    ASSERT_EQ(RunProgram(row.damage).exit_code, 0);
    EXPECT_THAT(Disagreement(), HasSubstr(row.seen));
    ASSERT_EQ(RunProgram(row.repair).exit_code, 0);
    EXPECT_THAT(Disagreement(), IsEmpty());
  }
}

}  // namespace
}  // namespace kipt::testing
