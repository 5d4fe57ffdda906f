// SPDX-License-Identifier: Apache-2.0
//
// The parser of iptables-save on what kube-proxy writes: testdata/rulesets/README.md.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/xtables/iptables_save.h"
#include "agent/xtables/saved_survey.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/surveyed.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent::captured_save_test {
namespace {

using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::Survey;

using Chains = std::map<ChainId, ObservedChain>;

std::vector<std::string> SortedWords(absl::string_view line) {
  std::vector<std::string> words = absl::StrSplit(line, ' ');
  std::sort(words.begin(), words.end());
  return words;
}

// Calls `check` with each save that was captured in `room`; how many there are.
int ForEachSave(const std::string& room,
                const std::function<void(Family family, const std::string& text)>& check) {
  int files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(absl::StrCat(KIPT_TESTDATA_DIR, "/", room))) {
    if (file.path().extension() != ".save") continue;
    SCOPED_TRACE(file.path());
    ++files;
    const bool ipv6 = absl::StrContains(file.path().string(), "-v6");
    check(ipv6 ? Family::kIPv6 : Family::kIPv4, FileText(file.path()));
  }
  return files;
}

// The matches of a Rule have no order, so a line may come back with other places for its words.
// What is opaque comes back byte for byte.
void ExpectEachLineBack(Family family, const std::string& text) {
  absl::StatusOr<Chains> chains = ParseSave(family, text);
  ASSERT_THAT(chains, IsOk());
  ASSERT_THAT(*chains, Not(IsEmpty()));
  std::string table;
  std::map<ChainId, size_t> next;
  size_t ours = 0;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (absl::StartsWith(line, "*")) table = line.substr(1);
    if (!absl::StartsWith(line, "-A ")) continue;
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    const std::string& name = words[1];
    ChainId id = Filter(name, family);
    if (table != "filter") id = table == "nat" ? Nat(name, family) : Mangle(name, family);
    ASSERT_EQ(chains->count(id), 1U) << ToString(id);
    const std::vector<ObservedRule>& rules = chains->at(id).rules;
    ASSERT_LT(next[id], rules.size()) << line;
    const ObservedRule& rule = rules[next[id]++];
    EXPECT_EQ(rule.handle, next[id]);
    if (rule.rule() != nullptr) {
      ++ours;
      EXPECT_EQ(SortedWords(ToString(family, rule)), SortedWords(words[2]));
    } else {
      EXPECT_EQ(ToString(family, rule), words[2]);
    }
  }
  for (const auto& [id, chain] : *chains) EXPECT_EQ(chain.rules.size(), next[id]) << ToString(id);
  EXPECT_GT(ours, 0U);
}

TEST(CapturedSavesTest, ComeBackLineByLine) {
  EXPECT_EQ(ForEachSave("rulesets", ExpectEachLineBack), 30);
}

// The output of iptables-save, sifted piece by piece, is what it is when it is read whole.

// Keeps rules of chains that begin with a letter up to `last`, and notes each call.
class LetterSieve : public netlink::SurveySieve {
 public:
  explicit LetterSieve(char last, bool bare) : last_(last), bare_(bare) {}

  absl::Status Begin(const netlink::TableId& table, const std::string& chain, bool base) override {
    absl::StrAppend(&told_, table.name, "/", chain, base ? " base\n" : "\n");
    keep_ = chain[0] <= last_;
    return absl::OkStatus();
  }
  bool Keep(const netlink::SurveyRule& rule) override {
    absl::StrAppend(&told_, "  ", netlink::ToString(Family::kIPv4, rule), "\n");
    return keep_;
  }
  bool KeepBare() override { return bare_; }

  const std::string& told() const { return told_; }

 private:
  const char last_;
  const bool bare_;
  bool keep_ = false;
  std::string told_;
};

absl::StatusOr<Survey> Sift(Family family, const std::string& text, size_t piece,
                            netlink::SurveySieve& sieve) {
  Survey survey = {.mode = "legacy", .generation = 0, .tables = {}};
  SaveSifter sifter(family, sieve, survey,
                    [](absl::string_view line) { return std::string(line); });
  for (size_t at = 0; at < text.size(); at += piece) {
    absl::Status status = sifter.Take(absl::string_view(text).substr(at, piece));
    if (!status.ok()) return status;
  }
  absl::Status status = sifter.Finish();
  if (!status.ok()) return status;
  return survey;
}

TEST(SaveSifterTest, KeepsEverythingAsItIsReadWhole) {
  const auto check = [](Family family, const std::string& text) {
    const auto whole = ParseSurvey("legacy", family, text, {});
    ASSERT_THAT(whole, IsOk());
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}}) {
      LetterSieve all('~', true);
      const auto sifted = Sift(family, text, piece, all);
      ASSERT_THAT(sifted, IsOk());
      EXPECT_EQ(*sifted, *whole) << "by " << piece;
    }
  };
  for (const char* room : {"rulesets", "audited"}) EXPECT_GT(ForEachSave(room, check), 0);
}

constexpr char kText[] =
    "# Generated by iptables-save v1.8.9 on Mon Nov 23\n"
    "*nat\n"
    ":POSTROUTING ACCEPT [0:0]\n"
    ":ALPHA - [0:0]\n"
    ":EMPTY - [0:0]\n"
    ":ZULU - [0:0]\n"
    "[3:180] -A POSTROUTING -m comment --comment \"two\\\"\nlines\" -j ZULU\n"
    "[0:0] -A ALPHA -j ZULU\n"
    "[0:0] -A ALPHA -j RETURN\n"
    "[0:0] -A ZULU -j RETURN\n"
    "COMMIT\n";

TEST(SaveSifterTest, KeepsWhatTheSieveChooses) {
  LetterSieve few('A', false);
  const auto sifted = Sift(Family::kIPv4, kText, 5, few);
  ASSERT_THAT(sifted, IsOk());
  const auto& nat = sifted->tables.at({"ip", "nat"});
  ASSERT_EQ(nat.size(), 2U) << "a base chain stays, empty";
  EXPECT_EQ(nat.at("POSTROUTING").rules.size(), 0U);
  EXPECT_EQ(nat.at("POSTROUTING").policy, "ACCEPT");
  ASSERT_EQ(nat.at("ALPHA").rules.size(), 2U);
  EXPECT_EQ(testing::JumpOf(nat.at("ALPHA").rules[0]), "ZULU");
  EXPECT_EQ(testing::JumpOf(nat.at("ALPHA").rules[1]), "");
  // Every chain once, those without rules at the end.
  EXPECT_EQ(few.told(),
            "nat/POSTROUTING base\n  -m comment --comment \"two\\\"\nlines\" -j ZULU\n"
            "nat/ALPHA\n  -j ZULU\n  -j RETURN\nnat/ZULU\n  -j RETURN\nnat/EMPTY\n");
}

TEST(SaveSifterTest, RefusesWhatIsNotWhole) {
  const std::string head = "*nat\n:A - [0:0]\n";
  for (const std::string& text :
       {std::string("hello\n"), std::string("COMMIT\n"), head, head + "COMMIT",
        head + "-A B -j A\n", head + "*nat\n", head + "COMMIT\n" + head,
        head + "-A A -m comment --comment \"open\nCOMMIT\n", head + "-A A\n:B - [0:0]\n",
        head + ":B MAYBE [0:0]\n", "[0:0]\n" + head}) {
    LetterSieve all('~', true);
    EXPECT_THAT(Sift(Family::kIPv4, text, 3, all), StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
}

TEST(SaveSifterTest, GivesUpALineThatDoesNotEnd) {
  LetterSieve all('~', true);
  const std::string text =
      "*nat\n:A - [0:0]\n-A A -m comment --comment \"" + std::string(size_t{3} << 20, 'x');
  EXPECT_THAT(Sift(Family::kIPv4, text, 65536, all),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not end")));
}

}  // namespace
}  // namespace kipt::agent::captured_save_test
