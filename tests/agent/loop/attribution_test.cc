// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/attribution.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

// The jumps of the base chains that begin with these letters: "IO" are those of INPUT and OUTPUT.
std::vector<Change> Jumps(absl::string_view letters) {
  std::vector<Change> jumps;
  for (const char letter : letters) {
    const netlink::ChainId chain = Filter(letter == 'I' ? "INPUT" : "OUTPUT");
    jumps.push_back({netlink::AddRule{.chain = chain, .rule = JumpTo("KUBE-FIREWALL")}, "why"});
  }
  return jumps;
}

uint32_t Number(absl::string_view text) {
  uint32_t number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << text;
  return number;
}

// Steps:
//   check@11:IO  a check of generation 11 misses the jumps of INPUT and OUTPUT; check6 is of IPv6
//   repair:I     we make the jump
//   rival@11     this program has committed generation 11
//   rival@9..14  it has committed these two, and all or some between them
//   rival@11x64  it has committed 64 generations, from 11 on, and each is reported for itself
//   others       a program has committed that was not seen
void Take(absl::string_view step, WriterAttribution& attribution) {
  const std::vector<std::string> parts = absl::StrSplit(step, absl::ByAnyChar("@:"));
  if (step == "others") return attribution.NoteCommits({}, /*others=*/true);
  if (parts[0] == "repair") return attribution.NoteApplied(Jumps(parts[1]));
  if (absl::StartsWith(parts[0], "check")) {
    Plan plan;
    plan.generation = Number(parts[1]);
    plan.families = {netlink::Family::kIPv4, netlink::Family::kIPv6};
    if (parts[0] == "check4") plan.families = {netlink::Family::kIPv4};
    if (parts[0] == "check6") plan.families = {netlink::Family::kIPv6};
    if (parts.size() == 3) plan.diff.changes = Jumps(parts[2]);
    return attribution.NoteCheck(plan);
  }
  const std::vector<std::string> range = absl::StrSplit(parts[1], "..");
  const std::vector<std::string> often = absl::StrSplit(parts[1], 'x');
  const uint32_t times = often.size() == 2 ? Number(often[1]) : 1;
  for (uint32_t i = 0; i < times; ++i) {
    const Commits commits = {.first = Number(range.size() == 2 ? range[0] : often[0]) + i,
                             .last = Number(range.size() == 2 ? range[1] : often[0]) + i,
                             .writer = {.pid = 100, .command = parts[0]}};
    attribution.NoteCommits({&commits, 1}, /*others=*/false);
  }
}

// "rival bystander ?": who may have deleted the jumps of `letters`, and "?" for one that was not
// seen.
std::string Suspects(absl::string_view letters, const WriterAttribution& attribution) {
  std::vector<Item> items;
  for (const Change& jump : Jumps(letters)) items.push_back(ItemOf(jump.operation));
  const Suspected suspected = attribution.Of(items);
  std::vector<std::string> names;
  for (const Writer& writer : suspected.writers) names.push_back(writer.command);
  if (suspected.others) names.emplace_back("?");
  return absl::StrJoin(names, " ");
}

TEST(AttributedWritersTest, AreThoseThatCommittedBetweenTwoChecks) {
  const std::string twelve =
      "check@10 a@11 b@12 c@13 d@14 e@15 f@16 g@17 h@18 i@19 j@20 k@21 l@22 check@22:I";
  const struct {
    const char* name;
    std::string steps;
    const char* suspects;
    const char* of = "I";
  } rows[] = {
      {"and no other writer", "early@9 check@10 rival@11 check@11:I late@12", "rival"},
      {"however often it is found missing",
       "check@10 rival@11 check@11:I bystander@12 check@12:I bystander@13 check@13:I", "rival"},
      {"not reported yet", "check@10 check@11:I", "?"},
      {"reported after the check that found what they did",
       "check@10 check@11:I rival@11 bystander@12", "rival"},
      {"not acquitted by what they did earlier and later", "check@10 check@12:I both@9..14",
       "both"},
      {"of one item", "check@10 first@11 check@11:I second@12 check@12:IO", "first"},
      {"of the other", "check@10 first@11 check@11:I second@12 check@12:IO", "second", "O"},
      {"of both", "check@10 first@11 check@11:I second@12 check@12:IO", "first second", "IO"},
      {"others where it was repaired and undone anew",
       "check@10 first@11 check@11:I repair:I second@13 check@13:I", "second"},
      {"others where another process had put it back",
       "check@10 first@11 check@11:I helper@12 check@12 second@13 check@13:I", "second"},
      // Families are read one by one where they cannot be read together.
      {"of one family back to its own last check",
       "check@10 rival@11 check6@11 bystander@12 check4@12:I", "rival bystander"},
      {"still missing, whatever the other family's check reports",
       "check@10 rival@11 check6@11 bystander@12 check4@12:I check6@12", "rival bystander"},
      {"of one family unknown though the other was checked",
       "check@10 others check6@11 rival@12 check4@12:I", "rival ?"},
      {"where generations start again",
       "check@4294967294 rival@4294967295..2 check@2:I bystander@3", "rival"},
      {"and one that was not reported", "check@10 bystander@11 others check@12:I", "bystander ?"},
      {"all were known by then", "check@12 rival@13 check@13:I others", "rival"},
      {"unknown of what was not missing", "check@10 rival@11 check@11:I", "?", "O"},
      {"unknown before the second check", "rival@10 check@10:I", "?"},
      {"unknown until all before the check are reported", "check@10 check@12:I others bystander@13",
       "?"},
      {"reported out of order", "check@10 check@12:I rival@11..13 bystander@9", "rival"},
      {"twelve", twelve, "a b c d e f g h i j k l"},
      {"at most twelve, and others", twelve + " m@22", "a b c d e f g h i j k l ?"},
      {"once, however often they commit", "check@10 rival@11x20 check@30:IO", "rival", "IO"},
      {"others too where more was reported than is kept", "check@10 rival@11x64 last@75 check@75:I",
       "rival ?"},
      {"known however much was reported before the last check",
       "check@10 bystander@11x64 check@74 rival@75 check@75:I", "rival"},
  };
  for (const auto& row : rows) {
    WriterAttribution attribution;
    for (const absl::string_view step : absl::StrSplit(row.steps, ' ')) Take(step, attribution);
    EXPECT_EQ(Suspects(row.of, attribution), row.suspects) << row.name;
  }
}

TEST(AttributedWritersTest, SayHowSureItIs) {
  const Writer one = {.pid = 1, .command = "a"};
  const Writer two = {.pid = 2, .command = "b"};
  EXPECT_EQ(ToString(Suspected{}), "a process that was not seen");
  EXPECT_EQ(ToString(Suspected{{one}, false}), "a (PID 1)");
  EXPECT_EQ(ToString(Suspected{{one, two}, false}), "one of a (PID 1), b (PID 2)");
  EXPECT_EQ(ToString(Suspected{{one}, true}), "a (PID 1), or another process that was not seen");
}

}  // namespace
}  // namespace kipt::agent
