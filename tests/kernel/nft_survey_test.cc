// SPDX-License-Identifier: Apache-2.0
//
// Surveys of the real kernel. The oracle of their text is iptables-nft-save: what it prints of the
// same rules must be what we print, byte for byte.
#include <filesystem>
#include <set>

#include "netlink/survey.h"
#include "tests/kernel/nft_fixture.h"
#include "tests/support/surveyed.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

// iptables-nft-save prints base chains that do not exist, too.
void RemoveEmptyChains(SavedTables& tables) {
  for (auto& [table, chains] : tables) {
    std::erase_if(chains, [](const auto& chain) { return chain.second.empty(); });
  }
}

class NftSurveyTest : public NftBackendTest {
 protected:
  Survey TakeSurvey(const netlink::SurveyFilter& keep = {}) {
    absl::StatusOr<Survey> survey = backend_->TakeSurvey(keep);
    EXPECT_THAT(survey, IsOk());
    return survey.ok() ? *std::move(survey) : Survey{};
  }

  void ExpectWhatIptablesSaves(Family family) {
    const ProgramResult saved = RunProgram({Iptables(family) + "-save", "-c"});
    EXPECT_EQ(saved.exit_code, 0) << saved;
    EXPECT_THAT(saved.out + saved.err, Not(HasSubstr("incompatible")));
    SavedTables expected = TablesOf(saved.out);
    SavedTables found = TablesOf(ToString(TakeSurvey()), FamilyName(family));
    RemoveEmptyChains(expected);
    RemoveEmptyChains(found);
    for (const auto& [table, chains] : expected) {
      for (const auto& [chain, lines] : chains) EXPECT_EQ(found[table][chain], lines);
    }
    EXPECT_EQ(found, expected);
  }
};

std::vector<std::string> CapturedSaves() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(KIPT_RULESETS_DIR)) {
    const std::string name = entry.path().filename();
    if (absl::EndsWith(name, ".save")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

class CapturedSurveyTest : public NftSurveyTest,
                           public ::testing::WithParamInterface<std::string> {};

TEST_P(CapturedSurveyTest, SpellsWhatKubeProxyWritesAsIptablesDoes) {
  const Family family = absl::StrContains(GetParam(), "-v6") ? Family::kIPv6 : Family::kIPv4;
  const std::string text = FileText(absl::StrCat(KIPT_RULESETS_DIR, "/", GetParam()));
  ASSERT_THAT(text, Not(IsEmpty()));
  MustRun({Iptables(family) + "-restore"}, text);
  ExpectWhatIptablesSaves(family);
  EXPECT_THAT(ToString(TakeSurvey()), Not(HasSubstr("[xt ")));
  EXPECT_THAT(ToString(TakeSurvey()), Not(HasSubstr("[nft ")));
}

INSTANTIATE_TEST_SUITE_P(KubeProxy, CapturedSurveyTest, ::testing::ValuesIn(CapturedSaves()),
                         [](const auto& row) {
                           return absl::StrReplaceAll(row.param, {{"-", "_"}, {".", "_"}});
                         });

TEST_F(NftSurveyTest, SpellsWhatOthersWriteAsIptablesDoes) {
  for (const Family family : netlink::kFamilies) {
    SCOPED_TRACE(FamilyName(family));
    MustRun({Iptables(family) + "-restore", "-c", "--noflush"}, ThirdPartyRules(family));
    ExpectWhatIptablesSaves(family);
  }
}

TEST_F(NftSurveyTest, NamesWhatItCannotSpell) {
  struct Row {
    const char* line;  // after "-A CHAIN "
    const char* text;
  };
  constexpr Row kRows[] = {
      {"-m rpfilter --invert --validmark -j DROP", "[xt rpfilter rev 0] -j DROP"},
      {"-m policy --dir in --pol ipsec -j ACCEPT", "[xt policy rev 0] -j ACCEPT"},
      {"-p sctp -m sctp --dport 5 --chunk-types any INIT -j DROP",
       "-p sctp [xt sctp rev 0] -j DROP"},
      {"-s 1.2.3.4/255.0.255.0 -j DROP", "[nft payload] -j DROP"},
      {"-f -j DROP", "[nft payload] -j DROP"},
      // iptables writes one comparison of both ports, which has lost these words.
      {"-p tcp -m tcp ! --sport 1000 ! --dport 5 -j DROP", "-p tcp [nft payload] -j DROP"},
      {"-j TOS --set-tos 5/7", "-j [xt TOS rev 1]"},
      {"-j NFQUEUE --queue-num 5", "-j [xt NFQUEUE rev 3]"},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.line);
    MustRun({"iptables-nft-restore"},
            absl::StrCat("*mangle\n:T - [0:0]\n-A T ", row.line, "\nCOMMIT\n"));
    const Survey survey = TakeSurvey();
    const SurveyChain* chain = survey.Find({"ip", "mangle"}, "T");
    ASSERT_NE(chain, nullptr);
    ASSERT_THAT(chain->rules, SizeIs(1));
    EXPECT_EQ(TextOf(chain->rules[0]), row.text);
  }
}

TEST_F(NftSurveyTest, SeesTablesOfAllFamiliesAndTheEmptyOnes) {
  MustRun({"nft", "-f", "-"}, R"(
    table ip empty { }
    table inet fw {
      chain in {
        type filter hook input priority 0; policy drop;
        iifname "lo" tcp dport 22 counter packets 3 bytes 180 accept
        ip saddr 10.0.0.0/8 meta mark 0x1 drop
        jump plain
      }
      chain plain { goto last; }
      chain last { }
    }
    table bridge br {
      chain c { type filter hook forward priority 0; policy accept; }
    }
    table arp a {
      chain c { accept; }
    }
    table netdev n {
      chain c { drop; }
    }
  )");
  const Survey survey = TakeSurvey();
  std::vector<std::string> tables;
  for (const auto& [id, chains] : survey.tables) tables.push_back(ToString(id));
  EXPECT_THAT(tables, ElementsAre("arp a", "bridge br", "inet fw", "ip empty", "netdev n"));
  EXPECT_EQ(ToString(survey),
            "# arp\n*a\n:c - [0:0]\n[0:0] -A c -j ACCEPT\nCOMMIT\n"
            "# bridge\n*br\n:c ACCEPT [0:0]\nCOMMIT\n"
            "# inet\n*fw\n:in DROP [0:0]\n:last - [0:0]\n:plain - [0:0]\n"
            "[3:180] -A in -i lo -p tcp -m tcp --dport 22 -j ACCEPT\n"
            "[0:0] -A in -s 10.0.0.0/8 [nft meta] -m mark --mark 0x1 -j DROP\n"
            "[0:0] -A in -j plain\n"
            "[0:0] -A plain -g last\nCOMMIT\n"
            "# ip\n*empty\nCOMMIT\n"
            "# netdev\n*n\n:c - [0:0]\n[0:0] -A c -j DROP\nCOMMIT\n");
}

TEST_F(NftSurveyTest, KeepsTheRulesThatTheFilterWants) {
  MustRun(
      {"iptables-nft-restore"},
      "*filter\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A A -p tcp -j ACCEPT\n-A B -j DROP\nCOMMIT\n");
  std::set<std::string> seen;
  const Survey survey =
      TakeSurvey([&](const TableId& table, const std::string& chain, const SurveyRule& rule) {
        seen.insert(absl::StrCat(ToString(table), " ", chain, " ", ToString(table, rule)));
        return JumpOf(rule) == "B";
      });
  EXPECT_THAT(
      seen, ElementsAre("ip filter A -j B", "ip filter A -p tcp -j ACCEPT", "ip filter B -j DROP"));
  ASSERT_NE(survey.Find({"ip", "filter"}, "B"), nullptr);
  EXPECT_THAT(survey.Find({"ip", "filter"}, "B")->rules, IsEmpty());
  EXPECT_THAT(survey.Find({"ip", "filter"}, "A")->rules, SizeIs(1));
}

class NftChainListTest : public NetnsTest {};

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

TEST_F(NftChainListTest, ADumpOfManyDatagramsIsWhole) {
  std::string script;
  for (int i = 0; i < 5000; ++i) script += "add chain ip filter C" + std::to_string(i) + "\n";
  MustRun({"nft", "-f", "-"}, "add table ip filter\n" + script);
  const auto chains = ListNftChains(Family::kIPv4);
  ASSERT_THAT(chains, IsOk());
  EXPECT_THAT(*chains, SizeIs(5000));
  EXPECT_THAT(*chains, Each(Field(&ListedChain::base, false)));
  const auto first = ListNftChains(Family::kIPv4, [](const ListedChain&) { return true; });
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(*first, SizeIs(1));
}

}  // namespace
}  // namespace kipt::testing
