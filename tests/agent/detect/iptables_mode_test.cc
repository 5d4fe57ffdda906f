// SPDX-License-Identifier: Apache-2.0
//
// The precedence of the mode oracle, row by row.
#include "agent/detect/iptables_mode.h"

#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/matchers.h"

namespace kipt::agent::iptables_mode_test {
namespace {

constexpr auto kNft = IptablesMode::kNft;
constexpr auto kLegacy = IptablesMode::kLegacy;
constexpr auto kNone = IptablesMode::kNone;
constexpr auto kUnknown = IptablesMode::kUnknown;

const ModeTraces kNothing = {};
const ModeTraces kHint = {.hint = true};
const ModeTraces kCanary = {.canary = true};
const ModeTraces kRules = {.rules = true};
const ModeTraces kKubeletRules = {.rules = true, .kubelet_chain = "filter KUBE-FIREWALL"};
const ModeTraces kHintOnlyLookedAt = {.hint = true, .rules = std::nullopt};
const ModeTraces kMarksOnlyLookedAt = {.rules = std::nullopt};
const ModeTraces kUnreadable = {
    .problem = "EACCES", .hint = std::nullopt, .canary = std::nullopt, .rules = std::nullopt};
const ModeTraces kRulesUnreadable = {.problem = "no program", .rules = std::nullopt};
const ModeTraces kImpossible = {.possible = false};

struct Row {
  std::string name;
  std::optional<IptablesMode> flag;
  std::optional<IptablesMode> program;
  ModeTraces nft;
  ModeTraces legacy;
  IptablesMode mode;
  bool contradiction = false;
  std::vector<std::string> findings = {};  // a part of each
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class DecideModeTest : public ::testing::TestWithParam<Row> {};

TEST_P(DecideModeTest, WeighsTheEvidence) {
  const Row& row = GetParam();
  for (const netlink::Family family : netlink::kFamilies) {
    const FamilyMode decided = DecideMode({.family = family,
                                           .flag = row.flag,
                                           .program = row.program,
                                           .program_text = "a path",
                                           .nft = row.nft,
                                           .legacy = row.legacy});
    EXPECT_EQ(decided.family, family);
    EXPECT_EQ(IptablesModeName(decided.mode), IptablesModeName(row.mode));
    EXPECT_EQ(decided.contradiction, row.contradiction);
    ASSERT_EQ(decided.findings.size(), row.findings.size())
        << ::testing::PrintToString(decided.findings);
    for (size_t i = 0; i < row.findings.size(); ++i) {
      EXPECT_THAT(decided.findings[i], HasSubstr(row.findings[i]));
    }
    std::vector<EvidenceSource> sources;
    for (const Evidence& evidence : decided.evidence) sources.push_back(evidence.source);
    EXPECT_THAT(sources, ElementsAre(EvidenceSource::kFlag, EvidenceSource::kProgram,
                                     EvidenceSource::kHint, EvidenceSource::kCanary,
                                     EvidenceSource::kRules, EvidenceSource::kKernel));
  }
}

// The same with nft and legacy exchanged must come out exchanged; but nft's canary is found before
// legacy's hint.
TEST_P(DecideModeTest, FavoursNeitherMode) {
  const auto other = [](std::optional<IptablesMode> mode) -> std::optional<IptablesMode> {
    if (mode == kNft) return kLegacy;
    if (mode == kLegacy) return kNft;
    return mode;
  };
  const Row& row = GetParam();
  const FamilyMode decided = DecideMode({.flag = other(row.flag),
                                         .program = other(row.program),
                                         .nft = row.legacy,
                                         .legacy = row.nft});
  EXPECT_EQ(IptablesModeName(decided.mode), IptablesModeName(*other(row.mode)));
  const bool misleads = row.mode != kUnknown && row.legacy.canary == true && row.nft.hint == true &&
                        row.legacy.hint != true;
  EXPECT_EQ(decided.contradiction, row.contradiction || misleads);
  EXPECT_EQ(decided.findings.size(), row.findings.size() + (misleads ? 1 : 0));
}

constexpr auto RowName = [](const auto& row) { return row.param.name; };
constexpr std::nullopt_t kNo = std::nullopt;

INSTANTIATE_TEST_SUITE_P(
    Precedence, DecideModeTest,
    ::testing::Values(
        Row{"AFreshNodeIsNone", kNo, kNo, kNothing, kNothing, kNone},
        Row{"TheFlagDecidesAFreshNode", kLegacy, kNo, kNothing, kNothing, kLegacy},
        Row{"TheFlagBeatsTheProgram", kLegacy, kNft, kNothing, kNothing, kLegacy},
        Row{"TheFlagBeatsCanaryAndRulesOfTheOtherMode", kLegacy, kNo, ModeTraces{.rules = true},
            kNothing, kLegacy},
        Row{"TheFlagBeatsAnImpossibleMode", kLegacy, kNo, kNothing, kImpossible, kLegacy},
        Row{"TheProgramDecidesAFreshNode", kNo, kNft, kNothing, kNothing, kNft},
        Row{"TheProgramAndTheHintAgree", kNo, kNft, kHint, kNothing, kNft},
        Row{"TheProgramBeatsRulesOfTheOtherModeWithoutAFinding", kNo, kNft, kNothing, kRules, kNft},
        Row{"TheProgramBeatsRulesInBoth", kNo, kNft, kRules, kRules, kNft},
        Row{"AProgramThatCannotBeToldLeavesItToTheHint", kNo, kUnknown, kHint, kNothing, kNft},
        Row{"AProgramThatCannotBeToldIsNoAnswer", kNo, kUnknown, kNothing, kNothing, kNone},
        Row{"TheHintDecides", kNo, kNo, kHint, kNothing, kNft},
        Row{"TheHintBeatsTheOthersRules", kNo, kNo, kHint, kRules, kNft},
        Row{"TheHintBeatsRulesInBoth", kNo, kNo, ModeTraces{.hint = true, .rules = true}, kRules,
            kNft},
        Row{"TheHintDecidesWhereRulesWereNotLookedAt", kNo, kNo, kHintOnlyLookedAt,
            kMarksOnlyLookedAt, kNft},
        Row{"TheCanaryDecidesWithoutAHint", kNo, kNo, kCanary, kNothing, kNft},
        Row{"TheCanaryBeatsTheOthersRules", kNo, kNo, kCanary, kRules, kNft},
        Row{"RulesDecideWithoutHintAndCanary", kNo, kNo, kRules, kNothing, kNft}),
    RowName);

INSTANTIATE_TEST_SUITE_P(
    Contradictions, DecideModeTest,
    ::testing::Values(
        Row{"TwoHintsAreUnknown",
            kNo,
            kNo,
            kHint,
            kHint,
            kUnknown,
            true,
            {"KUBE-IPTABLES-HINT exists in both"}},
        Row{"TwoHintsAndACanaryAreUnknown",
            kNo,
            kNo,
            ModeTraces{.hint = true, .canary = true},
            kHint,
            kUnknown,
            true,
            {"KUBE-IPTABLES-HINT exists in both"}},
        Row{"TwoHintsAreUnknownWhateverTheProgram",
            kNo,
            kNft,
            kHint,
            kHint,
            kUnknown,
            true,
            {"selects nft, but mangle KUBE-IPTABLES-HINT exists in legacy"}},
        Row{"TwoHintsAreSaidEvenWhereTheFlagDecides",
            kNft,
            kNo,
            kHint,
            kHint,
            kNft,
            true,
            {"KUBE-IPTABLES-HINT exists in both"}},
        Row{"TwoHintsAreTheOnlyFindingWhereRulesAreUnreadable",
            kNo,
            kNo,
            kHint,
            ModeTraces{.problem = "no program", .hint = true, .rules = std::nullopt},
            kUnknown,
            true,
            {"KUBE-IPTABLES-HINT exists in both"}},
        Row{"TwoCanariesWithoutAHintAreUnknown",
            kNo,
            kNo,
            kCanary,
            kCanary,
            kUnknown,
            true,
            {"KUBE-KUBELET-CANARY exists in both"}},
        Row{"TwoCanariesBelowOneHintAreNoMatter", kNo, kNo,
            ModeTraces{.hint = true, .canary = true}, kCanary, kNft},
        Row{"ProgramAndHintDisagree",
            kNo,
            kNft,
            kNothing,
            ModeTraces{.hint = true, .canary = true},
            kUnknown,
            true,
            {"the host's iptables program selects nft, but mangle KUBE-IPTABLES-HINT and mangle "
             "KUBE-KUBELET-CANARY exist in legacy"}},
        Row{"ProgramAndKubeletsRulesDisagree",
            kNo,
            kNft,
            kNothing,
            kKubeletRules,
            kUnknown,
            true,
            {"the host's iptables program selects nft, but filter KUBE-FIREWALL exists in legacy"}},
        Row{"AHintOfTheProgramsModeDoesNotSettleIt",
            kNo,
            kNft,
            kHint,
            kKubeletRules,
            kUnknown,
            true,
            {"filter KUBE-FIREWALL exists in legacy"}},
        Row{"TheFlagBeatsKubeletsRulesOfTheOtherMode", kNft, kNft, kHint, kKubeletRules, kNft},
        Row{"FlagAndHintDisagree",
            kNft,
            kNo,
            kNothing,
            kHint,
            kNft,
            true,
            {"--iptables-mode selects nft, but mangle KUBE-IPTABLES-HINT exists in legacy"}},
        Row{"TheFlagIsNamedWhereTheProgramAgreesWithIt",
            kNft,
            kNft,
            kNothing,
            kHint,
            kNft,
            true,
            {"--iptables-mode selects nft"}},
        Row{"FlagAndHintAgreeAgainstTheProgram", kNft, kLegacy, kHint, kNothing, kNft},
        Row{"ProgramAndCanaryDisagree",
            kNo,
            kNft,
            kNothing,
            kCanary,
            kUnknown,
            true,
            {"mangle KUBE-KUBELET-CANARY exists in legacy"}},
        Row{"ProgramAndCanaryDisagreeBesideAHintOfOurOwn",
            kNo,
            kNft,
            kHint,
            kCanary,
            kUnknown,
            true,
            {"mangle KUBE-KUBELET-CANARY exists in legacy"}},
        Row{"RulesInBothAreUnknownButNoContradiction",
            kNo,
            kNo,
            kRules,
            kRules,
            kUnknown,
            false,
            {"both nft and iptables-legacy hold rules"}}),
    RowName);

INSTANTIATE_TEST_SUITE_P(
    Unreadable, DecideModeTest,
    ::testing::Values(Row{"NothingHereAndTheOtherUnreadable",
                          kNo,
                          kNo,
                          kNothing,
                          kUnreadable,
                          kUnknown,
                          false,
                          {"EACCES"}},
                      Row{"AHintHereMayHaveItsLikeInTheUnreadable",
                          kNo,
                          kNo,
                          kHint,
                          kUnreadable,
                          kUnknown,
                          false,
                          {"EACCES"}},
                      Row{"RulesHereAndTheOtherUnreadable",
                          kNo,
                          kNo,
                          kRules,
                          kUnreadable,
                          kUnknown,
                          false,
                          {"EACCES"}},
                      Row{"BothUnreadable",
                          kNo,
                          kNo,
                          kUnreadable,
                          kUnreadable,
                          kUnknown,
                          false,
                          {"nft cannot be read: EACCES", "legacy cannot be read: EACCES"}},
                      Row{"TheProgramNeedsNoReading", kNo, kNft, kUnreadable, kUnreadable, kNft},
                      Row{"TheFlagNeedsNoReading", kNft, kNo, kNothing, kUnreadable, kNft},
                      Row{"TheHintDecidesWhereOnlyRulesAreUnreadable", kNo, kNo, kHint,
                          kRulesUnreadable, kNft},
                      Row{"RulesHereAndOnlyRulesThereUnreadable",
                          kNo,
                          kNo,
                          kRules,
                          kRulesUnreadable,
                          kUnknown,
                          false,
                          {"no program"}},
                      Row{"WhatIsUnreadableIsPossibleOnlyWhereTheOtherIsNot", kNo, kNo, kUnreadable,
                          kImpossible, kNft}),
    RowName);

INSTANTIATE_TEST_SUITE_P(
    Kernel, DecideModeTest,
    ::testing::Values(Row{"OnlyOneModeIsPossible", kNo, kNo, kNothing, kImpossible, kNft},
                      Row{"NeitherModeIsPossible",
                          kNo,
                          kNo,
                          kImpossible,
                          kImpossible,
                          kUnknown,
                          false,
                          {"neither nf_tables nor iptables-legacy"}},
                      Row{"RulesOfTheOnlyPossibleMode", kNo, kNo, kRules, kImpossible, kNft},
                      Row{"TheProgramBeatsTheKernel", kNo, kLegacy, kNothing, kImpossible, kLegacy},
                      Row{"TheProgramBeatsAKernelWhoseOnlyModeIsUnreadable", kNo, kLegacy,
                          kUnreadable, kImpossible, kLegacy}),
    RowName);

// It looks for hint or canary, in nft first.
TEST(DecideModeTest, ACanaryInNftMisleadsIptablesWrappersWhereTheHintIsLegacys) {
  const FamilyMode misled = DecideMode({.nft = kCanary, .legacy = kHint});
  EXPECT_EQ(misled.mode, kLegacy);
  EXPECT_TRUE(misled.contradiction);
  EXPECT_THAT(misled.findings, ElementsAre(HasSubstr("KUBE-KUBELET-CANARY exists in nft")));
  const FamilyMode not_misled = DecideMode({.nft = kHint, .legacy = kCanary});
  EXPECT_EQ(not_misled.mode, kNft);
  EXPECT_FALSE(not_misled.contradiction);
  EXPECT_THAT(not_misled.findings, IsEmpty());
  EXPECT_FALSE(DecideMode({.flag = kNft, .nft = kCanary, .legacy = kNothing}).contradiction);
}

struct SourceRow {
  std::string name;
  IptablesMode says;
  ModeQuestion question = {};
  EvidenceSource source = EvidenceSource::kKernel;
};

TEST(DecideModeTextTest, EachSourceIsEvidenceForWhatItShows) {
  const SourceRow rows[] = {
      {"no program is evidence for neither", kNone, {}, EvidenceSource::kProgram},
      {"a program of another name is not known",
       kUnknown,
       {.program = kUnknown},
       EvidenceSource::kProgram},
      {"a kernel with both is evidence for neither", kNone},
      {"a kernel with nft only", kNft, {.legacy = kImpossible}},
      {"a kernel with legacy only", kLegacy, {.nft = kImpossible}},
      {"a kernel with neither is not known", kUnknown, {.nft = kImpossible, .legacy = kImpossible}},
  };
  for (const SourceRow& row : rows) {
    SCOPED_TRACE(row.name);
    const FamilyMode decided = DecideMode(row.question);
    EXPECT_EQ(decided.evidence[static_cast<size_t>(row.source)].says, row.says);
  }
}

TEST(DecideModeTextTest, EachEvidenceSaysWhatWasSeen) {
  const FamilyMode decided = DecideMode({.program = kNft,
                                         .program_text = "/usr/sbin/iptables -> x",
                                         .nft = {.hint = true, .rules = true},
                                         .legacy = kUnreadable});
  std::vector<std::string> lines;
  for (const Evidence& evidence : decided.evidence) {
    lines.push_back(std::string(EvidenceSourceName(evidence.source)) + " " +
                    std::string(IptablesModeName(evidence.says)) + " " + evidence.text);
  }
  EXPECT_THAT(
      lines,
      ElementsAre("flag none --iptables-mode=auto", "program nft /usr/sbin/iptables -> x",
                  "hint unknown mangle KUBE-IPTABLES-HINT: nft yes, legacy not known: EACCES",
                  "canary unknown mangle KUBE-KUBELET-CANARY: nft no, legacy not known: EACCES",
                  "rules unknown rules or chains in mangle, nat or filter: nft yes, legacy not "
                  "known: EACCES",
                  "kernel none this kernel: nft possible, legacy possible"));
  EXPECT_THAT(decided.findings, IsEmpty());
}

}  // namespace
}  // namespace kipt::agent::iptables_mode_test
