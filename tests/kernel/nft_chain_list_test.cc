// SPDX-License-Identifier: Apache-2.0
//
// Which chains there are, on the real kernel.
#include <vector>

#include "netlink/survey.h"
#include "tests/kernel/nft_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ListedChain;
using netlink::ListNftChains;
using netlink::Table;

class NftChainListTest : public NetnsTest {};

TEST_F(NftChainListTest, AFreshNamespaceHasNoChains) {
  for (const Family family : netlink::kFamilies) {
    EXPECT_THAT(ListNftChains(family), IsOkAndHolds(IsEmpty()));
  }
}

TEST_F(NftChainListTest, ListsChainsOfItsFamilyWithTheirUse) {
  MustRun({"iptables-nft", "-N", "FULL"});
  MustRun({"iptables-nft", "-N", "EMPTY"});
  MustRun({"iptables-nft", "-A", "FULL", "-j", "EMPTY"});
  MustRun({"iptables-nft", "-A", "INPUT", "-j", "ACCEPT"});
  const auto chain = [](const char* name) { return ChainId{Family::kIPv4, Table::kFilter, name}; };
  const auto chains = ListNftChains(Family::kIPv4);
  ASSERT_THAT(chains, IsOk());
  EXPECT_THAT(*chains, Contains(ListedChain{chain("FULL"), false, 1}));
  EXPECT_THAT(*chains, Contains(ListedChain{chain("EMPTY"), false, 1}));
  EXPECT_THAT(*chains, Contains(ListedChain{chain("INPUT"), true, 1}));
  EXPECT_THAT(ListNftChains(Family::kIPv6), IsOkAndHolds(IsEmpty()));
}

TEST_F(NftChainListTest, LeavesOutTablesThatIptablesDoesNotHave) {
  EXPECT_EQ(Shell("nft 'add table ip other; add chain ip other c; add table inet filter;"
                  " add chain inet filter INPUT; add table ip nat; add chain ip nat MINE'")
                .exit_code,
            0);
  EXPECT_THAT(ListNftChains(Family::kIPv4), IsOkAndHolds(UnorderedElementsAre(ListedChain{
                                                {Family::kIPv4, Table::kNat, "MINE"}, false, 0})));
}

TEST_F(NftChainListTest, ADumpOfManyDatagramsIsWhole) {
  std::string script;
  for (int i = 0; i < 5000; ++i) script += "add chain ip filter C" + std::to_string(i) + "\n";
  MustRun({"nft", "-f", "-"}, "add table ip filter\n" + script);
  const auto chains = ListNftChains(Family::kIPv4);
  ASSERT_THAT(chains, IsOk());
  EXPECT_THAT(*chains, SizeIs(5000));
  EXPECT_THAT(*chains, Each(Field(&ListedChain::base, false)));
}

}  // namespace
}  // namespace kipt::testing
