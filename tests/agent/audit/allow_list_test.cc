// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/allow_list.h"

#include <gtest/gtest.h>

#include <string>

namespace kipt::agent {
namespace {

TEST(AllowListTest, ReadsKindModeChainTextAndReason) {
  const absl::StatusOr<AllowList> list = ParseAllowList(
      "# what we know of\n"
      "\n"
      "ChainUser nat/KUBE-MARK-MASQ -A CNI-DN-  # portmap, until spring\n"
      "  MarkBitSet\tlegacy  *   -s 10.9.0.0/16 -m comment --comment \"a # b\" # VPN\n"
      "* nat/KUBE-MARK-DROP\r\n"
      "IpRuleFwmark *");
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->size(), 4U);
  const AllowEntry first = {.line = 3,
                            .kind = "ChainUser",
                            .iptables_mode = "",
                            .chain = "nat/KUBE-MARK-MASQ",
                            .text = "-A CNI-DN-",
                            .reason = "portmap, until spring"};
  EXPECT_EQ((*list)[0], first);
  const AllowEntry second = {.line = 4,
                             .kind = "MarkBitSet",
                             .iptables_mode = "legacy",
                             .chain = "*",
                             .text = "-s 10.9.0.0/16 -m comment --comment \"a # b\"",
                             .reason = "VPN"};
  EXPECT_EQ((*list)[1], second);
  EXPECT_EQ((*list)[2].kind, "*");
  EXPECT_EQ((*list)[2].text, "");
  EXPECT_EQ(ToString((*list)[1]),
            "line 4: MarkBitSet legacy * -s 10.9.0.0/16 -m comment --comment \"a # b\"");
}

TEST(AllowListTest, NothingIsAllowedByAnEmptyFile) {
  const absl::StatusOr<AllowList> list = ParseAllowList("");
  ASSERT_TRUE(list.ok());
  EXPECT_TRUE(list->empty());
}

struct RefusedRow {
  std::string name;
  std::string text;
  std::string message;
};
void PrintTo(const RefusedRow& row, std::ostream* out) { *out << row.name; }

class AllowListRefusedTest : public ::testing::TestWithParam<RefusedRow> {};

TEST_P(AllowListRefusedTest, NamesTheLine) {
  const absl::StatusOr<AllowList> list = ParseAllowList(GetParam().text);
  ASSERT_FALSE(list.ok());
  EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(list.status().message()), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, AllowListRefusedTest,
    ::testing::Values(
        RefusedRow{"UnknownKind", "\nChainUsers nat/KUBE-MARK-MASQ",
                   "line 2: \"ChainUsers\" is not a kind of finding"},
        RefusedRow{"NoChain", "ChainUser",
                   "line 1: expected TABLE/CHAIN, or * for any, instead of \"\""},
        RefusedRow{"NoTable", "ChainUser KUBE-MARK-MASQ",
                   "line 1: expected TABLE/CHAIN, or * for any, instead of \"KUBE-MARK-MASQ\""},
        RefusedRow{"UnknownTable", "ChainUser natt/KUBE-MARK-MASQ",
                   "line 1: expected TABLE/CHAIN, or * for any, instead of "
                   "\"natt/KUBE-MARK-MASQ\""},
        RefusedRow{"ModeButNoChain", "ChainUser nft",
                   "line 1: expected TABLE/CHAIN, or * for any, instead of \"\""},
        RefusedRow{"Everything", "* * # peace", "line 1: this would allow everything"},
        RefusedRow{"Twice", "ChainUser * x # a\n# -\nChainUser *  x # b",
                   "line 3: repeats line 1"}),
    [](const auto& row) { return row.param.name; });

TEST(AllowListTest, CoversWhatAllItsPartsCover) {
  const absl::StatusOr<AllowList> list =
      ParseAllowList("ChainUser nft nat/KUBE-MARK-MASQ -A CNI-DN-");
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 1U);
  const AllowEntry& entry = list->front();
  EXPECT_TRUE(entry.Covers("ChainUser", "nft", "nat/KUBE-MARK-MASQ", "-A CNI-DN-1 -j X"));
  EXPECT_FALSE(entry.Covers("ForeignRule", "nft", "nat/KUBE-MARK-MASQ", "-A CNI-DN-1 -j X"));
  EXPECT_FALSE(entry.Covers("ChainUser", "legacy", "nat/KUBE-MARK-MASQ", "-A CNI-DN-1 -j X"));
  EXPECT_FALSE(entry.Covers("ChainUser", "nft", "nat/KUBE-MARK-DROP", "-A CNI-DN-1 -j X"));
  EXPECT_FALSE(entry.Covers("ChainUser", "nft", "nat/KUBE-MARK-MASQ", "-A MINE -j X"));
}

}  // namespace
}  // namespace kipt::agent
