// SPDX-License-Identifier: Apache-2.0
//
// What is gathered from files, from backends, and from lists of chains; and that nothing is asked
// that could load a module or create a table.
#include "agent/detect/mode_evidence.h"

#include <sys/stat.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/agent/detect/mode_sources_fixture.h"
#include "tests/agent/xtables/iptables_legacy_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent::mode_evidence_test {
namespace {

using namespace ::kipt::agent;  // NOLINT(google-build-using-namespace): its vocabulary
using netlink::ListedChain;

constexpr auto kV4 = Family::kIPv4;

class ModeEvidenceTest : public ModeSourcesTest {
 protected:
  ModeQuestion Gather(Thoroughness thoroughness = Thoroughness::kAll,
                      std::optional<IptablesMode> flag = std::nullopt) {
    return GatherEvidence(kV4, flag, sources_, thoroughness);
  }
};

TEST_F(ModeEvidenceTest, AnEmptyMachineHasNoTraces) {
  const ModeQuestion question = Gather();
  EXPECT_EQ(DecideMode(question).mode, IptablesMode::kNone);
  EXPECT_EQ(question.program_text, "not seen");
  EXPECT_EQ(question.nft.rules, false);
  EXPECT_EQ(question.legacy.rules, false);
}

TEST_F(ModeEvidenceTest, HintAndCanaryAreReadWithoutRules) {
  nft_.AddChain(Mangle("KUBE-IPTABLES-HINT"));
  tree_.Write("ip_tables_names", "filter\nmangle\n");
  legacy_.AddChain(Mangle("KUBE-KUBELET-CANARY"));
  const ModeQuestion question = Gather();
  EXPECT_EQ(question.nft.hint, true);
  EXPECT_EQ(question.nft.canary, false);
  EXPECT_EQ(question.legacy.hint, false);
  EXPECT_EQ(question.legacy.canary, true);
  EXPECT_EQ(asked_.size(), 4U);
  for (const netlink::ChainQuery& query : asked_) EXPECT_FALSE(query.with_rules);
}

TEST_F(ModeEvidenceTest, AReadThatFailsMakesTheModeUnreadable) {
  tree_.Write("ip_tables_names", "mangle\n");
  nft_.FailNextRead(absl::PermissionDeniedError("needs CAP_NET_ADMIN"));
  legacy_.FailNextRead(absl::UnavailableError("a signal ended iptables-legacy-save"));
  const ModeQuestion question = Gather();
  EXPECT_FALSE(question.nft.hint.has_value());
  EXPECT_EQ(question.nft.problem, "needs CAP_NET_ADMIN");
  EXPECT_FALSE(question.legacy.hint.has_value());
  EXPECT_EQ(question.legacy.problem, "a signal ended iptables-legacy-save");
}

TEST_F(ModeEvidenceTest, AHintInAnotherTableOrFamilyIsNone) {
  nft_.AddChain(Nat("KUBE-IPTABLES-HINT"));
  nft_.AddChain(Mangle("KUBE-IPTABLES-HINT", Family::kIPv6));
  EXPECT_EQ(Gather().nft.hint, false);
}

TEST_F(ModeEvidenceTest, LegacyIsNotOpenedWithoutTablesThatHoldSomethingOfOurs) {
  legacy_.AddChain(Mangle("KUBE-IPTABLES-HINT"));
  for (const char* names : {"", "raw\nsecurity\nnatural\n"}) {
    tree_.Write("ip_tables_names", names);
    EXPECT_EQ(Gather().legacy.hint, false);
    EXPECT_EQ(Gather().legacy.rules, false);
  }
  EXPECT_EQ(legacy_opened_ + legacy_listed_, 0);
}

TEST_F(ModeEvidenceTest, AMissingProgramMakesATableUnreadable) {
  tree_.Write("ip_tables_names", "nat\nfilter\n");
  legacy_list_status_ = legacy_status_ = absl::NotFoundError("iptables-legacy is not installed");
  ModeQuestion question = Gather();
  EXPECT_EQ(legacy_opened_, 0);
  EXPECT_TRUE(question.legacy.hint.has_value()) << "without mangle there is none";
  EXPECT_EQ(question.legacy.rules, std::nullopt);
  EXPECT_EQ(question.legacy.problem, "iptables-legacy is not installed");
  tree_.Write("ip_tables_names", "mangle\n");
  question = Gather();
  EXPECT_FALSE(question.legacy.hint.has_value());
  EXPECT_EQ(question.legacy.problem, "iptables-legacy is not installed");
  EXPECT_EQ(DecideMode(question).mode, IptablesMode::kUnknown);
}

TEST_F(ModeEvidenceTest, LegacyRulesAreRulesOrUserChains) {
  tree_.Write("ip_tables_names", "nat\n");
  legacy_.AddChain(Nat("PREROUTING"));
  EXPECT_EQ(Gather().legacy.rules, false);
  legacy_.AddChain(Nat("DOCKER"));
  EXPECT_EQ(Gather().legacy.rules, true);
  legacy_.RemoveChain(Nat("DOCKER"));
  legacy_.AppendRule(Nat("PREROUTING"), ForeignAccept());
  EXPECT_EQ(Gather().legacy.rules, true);
}

TEST_F(ModeEvidenceTest, NamesOfTablesThatCannotBeReadMakeItUnreadable) {
  tree_.Remove("ip_tables_names");
  tree_.Directory("ip_tables_names");
  const ModeQuestion question = Gather();
  EXPECT_FALSE(question.legacy.hint.has_value());
  EXPECT_THAT(question.legacy.problem, HasSubstr("ip_tables_names"));
  tree_.Remove("ip_tables_names");
  tree_.Write("modules", "ip_tables 1 - Live 0x0\nnf_tables 1 - Live 0x0\n");
  EXPECT_THAT(Gather().legacy.problem, HasSubstr("is /proc mounted?"));
}

TEST_F(ModeEvidenceTest, WithoutTheModuleLegacyIsPossibleAsLongAsItIsOnDisk) {
  tree_.Remove("ip_tables_names");
  tree_.Write("lib/modules.builtin", "kernel/net/core/sock_diag.ko\n");
  tree_.Write("lib/modules.dep", "kernel/net/ipv4/netfilter/ip_tables.ko.xz: x_tables.ko.xz\n");
  EXPECT_TRUE(Gather().legacy.possible);
  tree_.Write("lib/modules.dep", "kernel/net/ipv4/netfilter/iptable_nat.ko: net/ip_tables.ko\n");
  EXPECT_FALSE(Gather().legacy.possible);
  EXPECT_EQ(DecideMode(Gather()).mode, IptablesMode::kNft);
}

TEST_F(ModeEvidenceTest, EachFamilyIsRecognisedByItsOwnSymbol) {
  for (const Family family : netlink::kFamilies) {
    SCOPED_TRACE(netlink::FamilyName(family));
    const bool ipv4 = family == Family::kIPv4;
    tree_.Remove("ip_tables_names");
    tree_.Remove("ip6_tables_names");
    tree_.Write("kallsyms", ipv4 ? "ff T ipt_do_table\n" : "ff T ip6t_do_table\n");
    EXPECT_THAT(IptablesLegacyTableNames(family, sources_),
                StatusIs(absl::StatusCode::kUnknown, HasSubstr("is /proc mounted?")));
    EXPECT_THAT(IptablesLegacyTableNames(ipv4 ? Family::kIPv6 : Family::kIPv4, sources_),
                IsOkAndHolds(IsEmpty()));
  }
}

TEST_F(ModeEvidenceTest, TablesOfAnyFamilyCountAndUnreadableFamiliesAreReported) {
  const struct {
    // Nothing: the file is missing, although the module is loaded.
    std::optional<std::string> ipv4;
    std::optional<std::string> ipv6;
    bool any;
    size_t unknown;
  } rows[] = {
      {"", "", false, 0},
      {"nat\n", "", true, 0},
      {"", "nat\n", true, 0},
      {"nat\n", std::nullopt, true, 1},
      {std::nullopt, "nat\n", true, 1},
      {std::nullopt, std::nullopt, false, 2},
  };
  tree_.Write("modules", "ip_tables 1 - Live 0x0\nip6_tables 1 - Live 0x0\n");
  for (const auto& row : rows) {
    tree_.Remove("ip_tables_names");
    tree_.Remove("ip6_tables_names");
    if (row.ipv4) tree_.Write("ip_tables_names", *row.ipv4);
    if (row.ipv6) tree_.Write("ip6_tables_names", *row.ipv6);
    std::vector<absl::Status> unknown;
    EXPECT_EQ(HasIptablesLegacyTables(sources_, unknown), row.any);
    EXPECT_THAT(unknown, SizeIs(row.unknown));
    for (const absl::Status& status : unknown) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnknown, HasSubstr("is /proc mounted?")));
    }
  }
  tree_.Remove("modules");
  std::vector<absl::Status> unknown;
  EXPECT_FALSE(HasIptablesLegacyTables(sources_, unknown)) << "a kernel without iptables-legacy";
  EXPECT_THAT(unknown, IsEmpty());
}

TEST_F(ModeEvidenceTest, NftIsNotAskedWhereItIsNotKnownToBeThere) {
  tree_.Write("modules", "x_tables 1 - Live 0x0\nnf_tables_set 1 - Live 0x0\n");
  ModeQuestion question = Gather();
  EXPECT_FALSE(question.nft.hint.has_value()) << "it may be built in";
  EXPECT_EQ(DecideMode(question).mode, IptablesMode::kUnknown);
  tree_.Write("lib/modules.builtin", "");
  question = Gather();
  EXPECT_TRUE(question.nft.possible) << "not loaded";
  EXPECT_TRUE(question.nft.hint.has_value());
  EXPECT_EQ(DecideMode(question).mode, IptablesMode::kNone);
  tree_.Write("lib/modules.dep", "");
  EXPECT_FALSE(Gather().nft.possible) << "not on disk";
  EXPECT_EQ(DecideMode(Gather()).mode, IptablesMode::kLegacy);
  EXPECT_EQ(nft_opened_ + nft_listed_, 0);
}

TEST_F(ModeEvidenceTest, AKernelThatLoadsNoModulesIsAsked) {
  tree_.Remove("modules");
  EXPECT_EQ(DecideMode(Gather()).mode, IptablesMode::kNone);
  EXPECT_EQ(nft_opened_, 1);
  nft_status_ = absl::UnavailableError("this kernel has no nf_tables");
  EXPECT_FALSE(Gather().nft.possible);
}

TEST_F(ModeEvidenceTest, NftRulesAreRulesOrUserChains) {
  const std::pair<ListedChain, bool> rows[] = {
      {{Nat("PREROUTING"), true, 0}, false},
      {{Nat("PREROUTING"), true, 1}, true},
      {{Nat("DOCKER"), false, 0}, true},
      {{Mangle("KUBE-IPTABLES-HINT"), false, 0}, false},
      {{Mangle("KUBE-KUBELET-CANARY"), false, 0}, false},
      {{Nat("KUBE-KUBELET-CANARY"), false, 0}, true},
      {{Mangle("KUBE-IPTABLES-HINT"), false, 1}, true},
  };
  for (const auto& [chain, rules] : rows) {
    nft_list_ = {chain};
    EXPECT_EQ(Gather().nft.rules, rules) << netlink::ToString(chain.id) << " " << chain.use;
  }
}

TEST_F(ModeEvidenceTest, UntilDecidedRulesAreListedOnlyWithoutOtherEvidence) {
  tree_.Write("ip_tables_names", "mangle\n");
  const auto listed = [this](std::optional<IptablesMode> flag = std::nullopt) {
    nft_listed_ = legacy_listed_ = 0;
    Gather(Thoroughness::kUntilDecided, flag);
    return nft_listed_ + legacy_listed_;
  };
  EXPECT_EQ(listed(), 2);
  EXPECT_EQ(listed(IptablesMode::kNft), 0) << "the flag";
  for (FakeBackend* const backend : {&nft_, &legacy_}) {
    for (const char* name : {"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"}) {
      backend->AddChain(Mangle(name));
      EXPECT_EQ(listed(), 0) << name;
      const FamilyMode decided = DecideMode(Gather(Thoroughness::kUntilDecided));
      EXPECT_THAT(decided.evidence[4].text, HasSubstr("nft not read, legacy not read"));
      backend->RemoveChain(Mangle(name));
    }
  }
}

TEST_F(ModeEvidenceTest, TheHostsProgramIsThatOfTheFamily) {
  sources_.host_root = {tree_.Path("host"), ""};
  tree_.Write("host/usr/sbin/xtables-nft-multi", "");
  tree_.Link("host/usr/sbin/ip6tables", "xtables-nft-multi");
  tree_.Write("host/usr/sbin/xtables-legacy-multi", "");
  tree_.Link("host/usr/sbin/iptables", "xtables-legacy-multi");
  const std::vector<FamilyMode> modes =
      DetectModes(netlink::kFamilies, std::nullopt, sources_, Thoroughness::kUntilDecided);
  ASSERT_EQ(modes.size(), 2U);
  EXPECT_EQ(modes[0].mode, IptablesMode::kLegacy);
  EXPECT_EQ(modes[1].mode, IptablesMode::kNft);
  EXPECT_THAT(modes[1].evidence[1].text, HasSubstr("ip6tables -> "));
}

TEST_F(ModeEvidenceTest, TheListedTablesAreReadByWholeLines) {
  tree_.Write("ip_tables_names", "security\nnat\nmangle\n");
  const auto tables = IptablesLegacyTableNames(kV4, sources_);
  ASSERT_TRUE(tables.ok());
  EXPECT_THAT(*tables, ElementsAre("security", "nat", "mangle"));
  EXPECT_THAT(*IptablesLegacyTableNames(Family::kIPv6, sources_), IsEmpty());
  tree_.Remove("modules");
  tree_.Remove("ip_tables_names");
  EXPECT_THAT(IptablesLegacyTableNames(kV4, sources_), StatusIs(absl::StatusCode::kUnavailable));
}

using SystemModeSourcesTest = ::kipt::testing::LegacyFixture;

TEST_F(SystemModeSourcesTest, ReadTheNamesOfLabelsWhereTheProgramsReadThem) {
  tree_.Write("connlabel.conf", "# nothing\n");
  const ModeSources sources = SystemModeSources(tree_.Path("host"), &runner_, Options());
  EXPECT_EQ(sources.conn_label_match(KernelSymbols::kRead),
            agent::ReadConnLabelMatch(sources.kernel, tree_.Path("connlabel.conf"),
                                      KernelSymbols::kRead));
}

}  // namespace
}  // namespace kipt::agent::mode_evidence_test
