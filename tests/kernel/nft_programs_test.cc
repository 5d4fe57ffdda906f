// SPDX-License-Identifier: Apache-2.0
//
// What iptables-nft and nft write is what we read, and what we write is what they read.
#include "tests/kernel/nft_fixture.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

class NftProgramsTest : public NftBackendTest {};

TEST_F(NftProgramsTest, WritesWhatIptablesSavePrintsAsOurText) {
  for (const Family family : netlink::kFamilies) {
    ASSERT_THAT(Apply(AllOperations(family)), IsOk());
    std::vector<std::string> filter;
    std::vector<std::string> nat;
    for (const auto& [chain, rule] : AllRules(family)) {
      (chain.table == Table::kNat ? nat : filter).push_back(ToString(family, rule));
    }
    EXPECT_EQ(SavedLines(family, "TEST"), filter);
    EXPECT_EQ(SavedLines(family, "TESTNAT"), nat);
  }
}

TEST_F(NftProgramsTest, ReadsWhatNftWrites) {
  MustRun({"nft", "-f", "-"}, R"(
    table ip filter {
      chain ELSE { }
      chain TEST {
        ip saddr != 127.0.0.0/8 ip daddr 10.0.0.0/9 counter drop comment "from nft"
        meta mark & 0x8000 == 0x8000 drop
        meta mark and 0x00004000 != 0x00004000 return
        meta mark 5 counter jump ELSE
        ip daddr 10.0.0.1 jump ELSE
        ct state established,related accept
        meta mark set meta mark or 0x4000
        ip saddr { 10.0.0.1, 10.0.0.2 } goto ELSE
        log prefix "x"
        meta l4proto tcp reject
      }
    }
    table ip6 filter {
      chain TEST {
        ip6 daddr fd00::/64 return comment "six"
        ip6 saddr != ::1 drop
      }
    })");
  const ChainId chain{Family::kIPv4, Table::kFilter, "TEST"};
  const ChainId chain6{Family::kIPv6, Table::kFilter, "TEST"};
  const Snapshot snapshot = Read({chain, chain6});
  std::vector<std::string> texts;
  for (const ObservedRule& rule : snapshot.Find(chain)->rules) {
    texts.push_back(
        absl::StrCat(rule.rule() != nullptr ? "" : "opaque: ", ToString(Family::kIPv4, rule)));
  }
  EXPECT_THAT(
      texts, ElementsAre("! -s 127.0.0.0/8 -d 10.0.0.0/9 -m comment --comment \"from nft\" -j DROP",
                         "-m mark --mark 0x8000/0x8000 -j DROP",
                         "-m mark ! --mark 0x4000/0x4000 -j RETURN", "-m mark --mark 0x5 -j ELSE",
                         "-d 10.0.0.1/32 -j ELSE",
                         "opaque: -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
                         "opaque: -j MARK --set-xmark 0x4000/0x4000",
                         "opaque: [nft payload] [nft lookup] -g ELSE", "opaque: [nft log]",
                         "opaque: -p tcp -j REJECT"));
  std::vector<std::string> texts6;
  for (const ObservedRule& rule : snapshot.Find(chain6)->rules) {
    EXPECT_NE(rule.rule(), nullptr);
    texts6.push_back(ToString(Family::kIPv6, rule));
  }
  EXPECT_THAT(texts6, ElementsAre("-d fd00::/64 -m comment --comment six -j RETURN",
                                  "! -s ::1/128 -j DROP"));
}

TEST_F(NftProgramsTest, MakesOnlyTheBaseChainItNeedsAsIptablesMakesIt) {
  std::vector<Operation> operations;
  std::vector<std::pair<Table, std::string>> names;
  for (const Table table : netlink::kTables) {
    for (const char* name : {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}) {
      if (table == Table::kFilter && absl::EndsWith(name, "ROUTING")) continue;
      if (table == Table::kNat && absl::string_view(name) == "FORWARD") continue;
      names.emplace_back(table, name);
    }
  }
  for (const Family family : netlink::kFamilies) {
    for (const auto& [table, name] : names) {
      operations.emplace_back(CreateChain{{family, table, name}});
    }
  }
  ASSERT_THAT(Apply(operations), IsOk());
  const std::string ours = RunProgram({"nft", "list", "ruleset"}).out;
  const InNetns inside(NewNetns());
  for (const Family family : netlink::kFamilies) {
    for (const auto& [table, name] : names) {
      // In a fresh table of its own, iptables makes just this chain.
      MustRun({Iptables(family), "-t", std::string(netlink::TableName(table)), "-A", name});
      MustRun({Iptables(family), "-t", std::string(netlink::TableName(table)), "-D", name});
    }
  }
  const auto chains = [](const std::string& ruleset) {
    std::vector<std::string> lines;
    for (const absl::string_view line : absl::StrSplit(ruleset, '\n', absl::SkipEmpty())) {
      if (!absl::StartsWith(line, "#")) lines.emplace_back(line);
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  EXPECT_EQ(chains(ours), chains(RunProgram({"nft", "list", "ruleset"}).out));
}

}  // namespace
}  // namespace kipt::testing
