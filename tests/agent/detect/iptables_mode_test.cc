// SPDX-License-Identifier: Apache-2.0
//
// The precedence of the mode oracle, row by row.
#include "agent/detect/iptables_mode.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"

namespace kipt::agent::iptables_mode_test {
namespace {

constexpr auto kNft = IptablesMode::kNft;
constexpr auto kLegacy = IptablesMode::kLegacy;
constexpr auto kNone = IptablesMode::kNone;
constexpr auto kUnknown = IptablesMode::kUnknown;

// "hint,canary": what is seen of one mode.
ModeTraces TracesOf(absl::string_view words) {
  ModeTraces traces;
  for (const absl::string_view word : absl::StrSplit(words, ',', absl::SkipEmpty())) {
    if (word == "hint") traces.hint = true;
    if (word == "canary") traces.canary = true;
    if (absl::StrContains(word, "rules")) traces.rules = true;
    if (word == "kubelet-rules") traces.kubelet_chain = "filter KUBE-FIREWALL";
    if (word == "rules-not-read" || word == "rules-unreadable") traces.rules = std::nullopt;
    if (word == "rules-unreadable") traces.problem = "no program";
    if (word == "unreadable") {
      traces = {
          .problem = "EACCES", .hint = std::nullopt, .canary = std::nullopt, .rules = std::nullopt};
    }
    if (word == "impossible") traces.possible = false;
  }
  return traces;
}

IptablesMode ModeNamed(absl::string_view name) {
  return name == "nft" ? kNft : name == "legacy" ? kLegacy : kUnknown;
}

// "flag=nft program=legacy nft=hint,rules legacy=unreadable"
ModeQuestion QuestionOf(absl::string_view evidence) {
  ModeQuestion question = {.program_text = "a path"};
  for (const absl::string_view one : absl::StrSplit(evidence, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(one, '=');
    if (parts.first == "flag") question.flag = ModeNamed(parts.second);
    if (parts.first == "program") question.program = ModeNamed(parts.second);
    question.program_unreadable |= parts.second == "unreadable-program";
    if (parts.first == "nft") question.nft = TracesOf(parts.second);
    if (parts.first == "legacy") question.legacy = TracesOf(parts.second);
  }
  return question;
}

std::string Outcome(const FamilyMode& decided) {
  return absl::StrCat(IptablesModeName(decided.mode),
                      decided.contradiction ? " contradiction" : "");
}

std::string Exchanged(const std::string& text) {
  return absl::StrReplaceAll(text, {{"nft", "legacy"}, {"legacy", "nft"}});
}

TEST(DecideModeTest, WeighsTheEvidenceAndFavoursNeitherMode) {
  const std::string two_hints = "KUBE-IPTABLES-HINT exists in both";
  const struct {
    std::string evidence;
    std::string outcome;
    std::vector<std::string> findings = {};  // a part of each
  } rows[] = {
      {"", "none"},
      {"flag=legacy", "legacy"},
      {"flag=legacy program=nft", "legacy"},
      {"flag=legacy legacy=impossible", "legacy"},
      {"program=nft", "nft"},
      {"program=nft nft=hint", "nft"},
      {"program=nft legacy=rules", "nft"},
      {"program=unknown nft=hint", "nft"},
      {"program=unknown", "none"},
      {"program=unreadable-program nft=hint", "unknown", List("program cannot be read: a path")},
      {"flag=legacy program=unreadable-program", "legacy"},
      {"nft=hint", "nft"},
      {"nft=hint legacy=rules", "nft"},
      {"nft=hint,rules-not-read legacy=rules-not-read", "nft"},
      {"nft=canary", "nft"},
      {"nft=rules", "nft"},
      {"nft=hint legacy=hint", "unknown contradiction", List(two_hints)},
      {"nft=hint,canary legacy=hint", "unknown contradiction", List(two_hints)},
      {"program=nft nft=hint legacy=hint", "unknown contradiction",
       List("selects nft, but mangle KUBE-IPTABLES-HINT exists in legacy")},
      {"flag=nft nft=hint legacy=hint", "nft contradiction", List(two_hints)},
      {"nft=hint legacy=hint,rules-unreadable", "unknown contradiction", List(two_hints)},
      {"nft=canary legacy=canary", "unknown contradiction",
       List("KUBE-KUBELET-CANARY exists in both")},
      {"nft=hint,canary legacy=canary", "nft"},
      {"nft=hint legacy=canary", "nft"},
      {"program=nft legacy=hint,canary", "unknown contradiction",
       List("the host's iptables program selects nft, but mangle KUBE-IPTABLES-HINT and mangle "
            "KUBE-KUBELET-CANARY exist in legacy")},
      {"program=nft legacy=kubelet-rules", "unknown contradiction",
       List("the host's iptables program selects nft, but filter KUBE-FIREWALL exists in legacy")},
      {"program=nft nft=hint legacy=kubelet-rules", "unknown contradiction",
       List("filter KUBE-FIREWALL exists in legacy")},
      {"flag=nft program=nft nft=hint legacy=kubelet-rules", "nft"},
      {"flag=nft legacy=hint", "nft contradiction",
       List("--iptables-mode selects nft, but mangle KUBE-IPTABLES-HINT exists in legacy")},
      {"flag=nft program=nft legacy=hint", "nft contradiction",
       List("--iptables-mode selects nft")},
      {"program=nft legacy=canary", "unknown contradiction",
       List("mangle KUBE-KUBELET-CANARY exists in legacy")},
      {"program=nft nft=hint legacy=canary", "unknown contradiction",
       List("mangle KUBE-KUBELET-CANARY exists in legacy")},
      {"nft=rules legacy=rules", "unknown", List("both nft and iptables-legacy hold rules")},
      {"legacy=unreadable", "unknown", List("EACCES")},
      {"nft=hint legacy=unreadable", "unknown", List("EACCES")},
      {"nft=rules legacy=unreadable", "unknown", List("EACCES")},
      {"nft=unreadable legacy=unreadable", "unknown",
       List("nft cannot be read: EACCES", "legacy cannot be read: EACCES")},
      {"program=nft nft=unreadable legacy=unreadable", "nft"},
      {"flag=nft legacy=unreadable", "nft"},
      {"nft=hint legacy=rules-unreadable", "nft"},
      {"nft=rules legacy=rules-unreadable", "unknown", List("no program")},
      {"nft=unreadable legacy=impossible", "nft"},
      {"legacy=impossible", "nft"},
      {"nft=impossible legacy=impossible", "unknown",
       List("neither nf_tables nor iptables-legacy")},
      {"nft=rules legacy=impossible", "nft"},
      {"program=legacy legacy=impossible", "legacy"},
      {"program=legacy nft=unreadable legacy=impossible", "legacy"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.evidence);
    const ModeQuestion question = QuestionOf(row.evidence);
    const FamilyMode decided = DecideMode(question);
    EXPECT_EQ(Outcome(decided), row.outcome);
    ASSERT_THAT(decided.findings, SizeIs(row.findings.size()));
    for (size_t i = 0; i < row.findings.size(); ++i) {
      EXPECT_THAT(decided.findings[i], HasSubstr(row.findings[i]));
    }
    // The same with nft and legacy exchanged must come out exchanged; but nft's canary is found
    // before legacy's hint.
    const FamilyMode other = DecideMode(QuestionOf(Exchanged(row.evidence)));
    const bool misleads = decided.mode != kUnknown && question.legacy.canary == true &&
                          question.nft.hint == true && question.legacy.hint != true;
    EXPECT_EQ(Outcome(other), Exchanged(row.outcome) + (misleads ? " contradiction" : ""));
    EXPECT_THAT(other.findings, SizeIs(row.findings.size() + (misleads ? 1 : 0)));
  }
}

// The wrapper searches for hint or canary, in nft first.
TEST(DecideModeTest, ACanaryInNftMisleadsIptablesWrappersWhereTheHintIsLegacys) {
  const FamilyMode misled = DecideMode({.nft = TracesOf("canary"), .legacy = TracesOf("hint")});
  EXPECT_EQ(misled.mode, kLegacy);
  EXPECT_TRUE(misled.contradiction);
  EXPECT_THAT(misled.findings, ElementsAre(HasSubstr("KUBE-KUBELET-CANARY exists in nft")));
  EXPECT_FALSE(DecideMode({.flag = kNft, .nft = TracesOf("canary")}).contradiction);
}

TEST(DecideModeTextTest, EachSourceIsEvidenceForWhatItShows) {
  const struct {
    IptablesMode says;
    std::string evidence;
    EvidenceSource source = EvidenceSource::kKernel;
  } rows[] = {
      {kNone, "", EvidenceSource::kProgram},
      {kUnknown, "program=another", EvidenceSource::kProgram},
      {kNone, ""},
      {kNft, "legacy=impossible"},
      {kLegacy, "nft=impossible"},
      {kUnknown, "nft=impossible legacy=impossible"},
  };
  for (const auto& row : rows) {
    const FamilyMode decided = DecideMode(QuestionOf(row.evidence));
    EXPECT_EQ(decided.evidence[static_cast<size_t>(row.source)].says, row.says) << row.evidence;
  }
}

TEST(DecideModeTextTest, EachEvidenceNamesWhatWasSeen) {
  const FamilyMode decided = DecideMode({.family = netlink::Family::kIPv6,
                                         .program = kNft,
                                         .program_text = "/usr/sbin/iptables -> x",
                                         .nft = {.hint = true, .rules = true},
                                         .legacy = TracesOf("unreadable")});
  EXPECT_EQ(decided.family, netlink::Family::kIPv6);
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
