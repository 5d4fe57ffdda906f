// SPDX-License-Identifier: Apache-2.0
#include "netlink/transaction.h"

#include <gtest/gtest.h>

#include <string>

namespace kipt::netlink {
namespace {

const ChainId kUser{Family::kIPv4, Table::kFilter, "USER"};
const ChainId kInput{Family::kIPv4, Table::kFilter, "INPUT"};
const ChainId kNat{Family::kIPv4, Table::kNat, "N"};
const ChainId kUser6{Family::kIPv6, Table::kFilter, "USER6"};

TEST(OperationTest, PrintsAsALineOfIptablesRestore) {
  const Rule drop{.comment = "x y", .target = Drop{}};
  EXPECT_EQ(ToString(Operation(CreateChain{kUser})), ":USER - [0:0]");
  EXPECT_EQ(ToString(Operation(CreateChain{kInput})), ":INPUT ACCEPT [0:0]");
  EXPECT_EQ(ToString(Operation(AddRule{.chain = kUser, .rule = drop, .before = {}})),
            "-A USER -m comment --comment \"x y\" -j DROP");
  EXPECT_EQ(ToString(Operation(AddRule{.chain = kUser, .rule = drop, .before = 9, .number = 2})),
            "-I USER 2 -m comment --comment \"x y\" -j DROP");
  EXPECT_EQ(ToString(Operation(AddRule{.chain = kUser, .rule = drop, .before = 9})),
            "-I USER -m comment --comment \"x y\" -j DROP");
  EXPECT_EQ(ToString(Operation(DeleteRule{.chain = kUser, .handle = 9, .number = 2, .rule = drop})),
            "-D USER -m comment --comment \"x y\" -j DROP");
  EXPECT_EQ(ToString(Operation(DeleteChain{kUser})), "-X USER");
  EXPECT_EQ(ToString(Operation(WakeTable{kInput})), "nft add table ip filter");
}

TEST(OperationTest, KnowsItsChain) {
  EXPECT_EQ(ChainOf(CreateChain{kUser}), kUser);
  EXPECT_EQ(ChainOf(AddRule{.chain = kNat, .rule = {}, .before = {}}), kNat);
  EXPECT_EQ(ChainOf(DeleteRule{.chain = kUser6, .rule = {}}), kUser6);
  EXPECT_EQ(ChainOf(DeleteChain{kUser}), kUser);
  EXPECT_EQ(ChainOf(WakeTable{kInput}), kInput);
  const ChainId native{Family::kIPv6, Table::kFilter, "mine"};
  EXPECT_EQ(ChainOf(PutNativeTable{{.family = Family::kIPv6, .name = "mine", .chains = {}}}),
            native);
  EXPECT_EQ(ChainOf(DeleteNativeTable{.family = Family::kIPv6, .name = "mine"}), native);
}

TEST(RestoreTextTest, HasOneFamilyGroupedByTable) {
  const Transaction transaction{
      .generation = 5,
      .operations = {
          CreateChain{kUser},
          CreateChain{kUser6},
          CreateChain{kInput},
          AddRule{.chain = kUser, .rule = Rule{.target = Drop{}}, .before = {}},
          CreateChain{kNat},
          AddRule{.chain = kNat, .rule = Rule{.target = Masquerade{true}}, .before = {}},
          AddRule{.chain = kInput, .rule = Rule{.target = Jump{"USER"}}, .before = 3, .number = 1},
          DeleteRule{.chain = kInput, .handle = 4, .number = 2, .rule = {}},
          DeleteChain{ChainId{Family::kIPv4, Table::kFilter, "OLD"}},
          WakeTable{ChainId{Family::kIPv4, Table::kMangle, "OUTPUT"}, kTableDormant},
      }};
  EXPECT_EQ(ToRestoreText(transaction, Family::kIPv4),
            "*filter\n"
            ":USER - [0:0]\n"
            "-A USER -j DROP\n"
            "-I INPUT 1 -j USER\n"
            "-D INPUT 2\n"
            "-X OLD\n"
            "COMMIT\n"
            "*nat\n"
            ":N - [0:0]\n"
            "-A N -j MASQUERADE --random-fully\n"
            "COMMIT\n");
  EXPECT_EQ(ToRestoreText(transaction, Family::kIPv6), "*filter\n:USER6 - [0:0]\nCOMMIT\n");
}

TEST(RestoreTextTest, KeepsTheOrderOfTables) {
  const Transaction transaction{.operations = {DeleteChain{kNat}, DeleteChain{kUser}}};
  EXPECT_EQ(ToRestoreText(transaction, Family::kIPv4),
            "*nat\n-X N\nCOMMIT\n*filter\n-X USER\nCOMMIT\n");
}

TEST(RestoreTextTest, IsEmptyForAFamilyWithoutOperations) {
  EXPECT_EQ(ToRestoreText(Transaction{}, Family::kIPv4), "");
  EXPECT_EQ(ToRestoreText(Transaction{.operations = {CreateChain{kUser}}}, Family::kIPv6), "");
}

}  // namespace
}  // namespace kipt::netlink
