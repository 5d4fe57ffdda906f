// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/attribution.h"

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

constexpr uint32_t kPids = 100;

class AttributedWritersTest : public ::testing::Test {
 protected:
  static Change InputJump() {
    return {netlink::AddRule{.chain = Filter("INPUT"), .rule = JumpTo("KUBE-FIREWALL")}, "why"};
  }
  static Change OutputJump() {
    return {netlink::AddRule{.chain = Filter("OUTPUT"), .rule = JumpTo("KUBE-FIREWALL")}, "why"};
  }
  void Check(uint32_t generation, std::vector<Change> missing,
             std::vector<netlink::Family> families = {netlink::Family::kIPv4,
                                                      netlink::Family::kIPv6}) {
    Plan plan;
    plan.generation = generation;
    plan.families = std::move(families);
    plan.diff.changes = std::move(missing);
    attribution_.NoteCheck(plan);
  }
  // `command` committed all of the generations from `first` to `last`, or some, these two among
  // them.
  void Hear(const std::string& command, uint32_t first, uint32_t last) {
    const Commits commits = {
        .first = first, .last = last, .writer = {.pid = kPids + first, .command = command}};
    attribution_.NoteCommits({&commits, 1}, /*others=*/false);
  }
  void Hear(const std::string& command, uint32_t generation) {
    Hear(command, generation, generation);
  }
  // `count` times from generation `first` on; one process.
  void HearOften(const std::string& command, uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const Commits commits = {
          .first = first + i, .last = first + i, .writer = {.pid = kPids, .command = command}};
      attribution_.NoteCommits({&commits, 1}, /*others=*/false);
    }
  }
  void HearOfOthers() { attribution_.NoteCommits({}, /*others=*/true); }

  Suspected Of(const Change& change) const {
    const Item item = ItemOf(change.operation);
    return attribution_.Of({&item, 1});
  }
  std::vector<std::string> NamesOf(const Change& change) const {
    std::vector<std::string> names;
    for (const Writer& writer : Of(change).writers) names.push_back(writer.command);
    return names;
  }

  WriterAttribution attribution_;
};

TEST_F(AttributedWritersTest, AreThoseThatCommittedBetweenTwoChecksAndNobodyElse) {
  Hear("early", 9);
  Check(10, {});
  Hear("rival", 11);
  Check(11, {InputJump()});
  Hear("late", 12);
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("rival"));
  EXPECT_FALSE(Of(InputJump()).others);
}

TEST_F(AttributedWritersTest, StayTheSameHoweverOftenItIsFoundMissing) {
  Check(10, {});
  Hear("rival", 11);
  Check(11, {InputJump()});
  for (uint32_t generation = 12; generation < 50; ++generation) {
    Hear("bystander", generation);
    Check(generation, {InputJump()});
  }
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("rival"));
  EXPECT_FALSE(Of(InputJump()).others);
}

TEST_F(AttributedWritersTest, MayBeReportedAfterTheCheckThatFoundWhatTheyDid) {
  Check(10, {});
  Check(11, {InputJump()});
  EXPECT_THAT(NamesOf(InputJump()), IsEmpty());
  EXPECT_TRUE(Of(InputJump()).others) << "not reported yet";
  Hear("rival", 11);
  Hear("bystander", 12);
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("rival"));
  EXPECT_FALSE(Of(InputJump()).others);
}

TEST_F(AttributedWritersTest, AreNotAcquittedByWhatTheyDidEarlierAndLater) {
  Check(10, {});
  Check(12, {InputJump()});
  Hear("both", 9, 14);
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("both"));
}

TEST_F(AttributedWritersTest, OfEachItemAreItsOwn) {
  Check(10, {});
  Hear("first", 11);
  Check(11, {InputJump()});
  Hear("second", 12);
  Check(12, {InputJump(), OutputJump()});
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("first"));
  EXPECT_THAT(NamesOf(OutputJump()), ElementsAre("second"));
  const std::vector<Item> both = {ItemOf(InputJump().operation), ItemOf(OutputJump().operation)};
  EXPECT_THAT(attribution_.Of(both).writers,
              ElementsAre(Field(&Writer::command, "first"), Field(&Writer::command, "second")));
}

TEST_F(AttributedWritersTest, AreOthersWhereTheItemWasRepairedAndUndoneAnew) {
  Check(10, {});
  Hear("first", 11);
  Check(11, {InputJump()});
  const Change repair = InputJump();
  attribution_.NoteApplied({&repair, 1});
  Hear("second", 13);
  Check(13, {InputJump()});
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("second"));
}

TEST_F(AttributedWritersTest, AreOthersWhereAnotherProcessHadPutItBack) {
  Check(10, {});
  Hear("first", 11);
  Check(11, {InputJump()});
  Hear("helper", 12);
  Check(12, {});
  Hear("second", 13);
  Check(13, {InputJump()});
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("second"));
}

// Families are read one by one where they cannot be read together.
TEST_F(AttributedWritersTest, OfOneFamilyReachBackToItsOwnLastCheck) {
  Check(10, {});
  Hear("rival", 11);
  Check(11, {}, {netlink::Family::kIPv6});
  Hear("bystander", 12);
  Check(12, {InputJump()}, {netlink::Family::kIPv4});
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("rival", "bystander"));
  Check(12, {}, {netlink::Family::kIPv6});
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("rival", "bystander")) << "still missing";
}

TEST_F(AttributedWritersTest, AreFoundWhereGenerationsStartAgain) {
  Check(0xffff'fffe, {});
  Hear("rival", 0xffff'ffff, 2);
  Check(2, {InputJump()});
  Hear("bystander", 3);
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("rival"));
  EXPECT_FALSE(Of(InputJump()).others);
}

TEST_F(AttributedWritersTest, MayBeUnknownWhereAWriterWasNotReported) {
  Check(10, {});
  Hear("bystander", 11);
  HearOfOthers();
  Check(12, {InputJump()});
  EXPECT_TRUE(Of(InputJump()).others);

  Check(12, {});
  Hear("rival", 13);
  Check(13, {InputJump()});
  HearOfOthers();
  EXPECT_FALSE(Of(InputJump()).others) << "all up to the check were known by then";
}

TEST_F(AttributedWritersTest, OfWhatWasNotMissingAtTheLastCheckAreUnknown) {
  Check(10, {});
  Hear("rival", 11);
  Check(11, {InputJump()});
  EXPECT_EQ(Of(OutputJump()), Suspected());
}

TEST_F(AttributedWritersTest, AreUnknownBeforeTheSecondCheck) {
  Hear("rival", 10);
  Check(10, {InputJump()});
  EXPECT_TRUE(Of(InputJump()).others);
}

TEST_F(AttributedWritersTest, MayBeUnknownUntilAllThatCommittedBeforeTheCheckAreReported) {
  Check(10, {});
  Check(12, {InputJump()});
  HearOfOthers();
  Hear("bystander", 13);
  EXPECT_TRUE(Of(InputJump()).others);
}

TEST_F(AttributedWritersTest, AreKnownWhereWritersAreReportedOutOfOrder) {
  Check(10, {});
  Check(12, {InputJump()});
  Hear("rival", 11, 13);
  Hear("bystander", 9);
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("rival"));
  EXPECT_FALSE(Of(InputJump()).others);
}

TEST_F(AttributedWritersTest, OfOneFamilyMayBeUnknownThoughTheOtherWasChecked) {
  Check(10, {});
  HearOfOthers();
  Check(11, {}, {netlink::Family::kIPv6});
  Hear("rival", 12);
  Check(12, {InputJump()}, {netlink::Family::kIPv4});
  EXPECT_TRUE(Of(InputJump()).others);
}

TEST_F(AttributedWritersTest, AreAtMostTwelveAndOthers) {
  Check(10, {});
  for (uint32_t i = 1; i <= 12; ++i) Hear(absl::StrCat("writer", i), 10 + i);
  Check(22, {InputJump()});
  EXPECT_THAT(Of(InputJump()).writers, SizeIs(12));
  EXPECT_FALSE(Of(InputJump()).others);
  Hear("thirteenth", 22);
  EXPECT_THAT(Of(InputJump()).writers, SizeIs(12));
  EXPECT_TRUE(Of(InputJump()).others);
}

TEST_F(AttributedWritersTest, AreNamedOnceHoweverOftenTheyCommit) {
  Check(10, {});
  HearOften("rival", 11, 20);
  Check(30, {InputJump(), OutputJump()});
  const Suspected rival = {.writers = {{.pid = kPids, .command = "rival"}}, .others = false};
  EXPECT_EQ(Of(InputJump()), rival);
  EXPECT_EQ(attribution_.Of({ItemOf(InputJump().operation), ItemOf(OutputJump().operation)}),
            rival);
}

TEST_F(AttributedWritersTest, AreOthersTooWhereMoreWasReportedThanIsKept) {
  Check(10, {});
  HearOften("rival", 11, 64);
  Hear("last", 75);
  Check(75, {InputJump()});
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("rival"));
  EXPECT_TRUE(Of(InputJump()).others);
}

TEST_F(AttributedWritersTest, AreKnownHoweverMuchWasReportedBeforeTheLastCheck) {
  Check(10, {});
  HearOften("bystander", 11, 64);
  Check(74, {});
  Hear("rival", 75);
  Check(75, {InputJump()});
  EXPECT_THAT(NamesOf(InputJump()), ElementsAre("rival"));
  EXPECT_FALSE(Of(InputJump()).others);
}

TEST_F(AttributedWritersTest, SayHowSureItIs) {
  const Writer one = {.pid = 1, .command = "a"};
  const Writer two = {.pid = 2, .command = "b"};
  EXPECT_EQ(ToString(Suspected{}), "a process that was not seen");
  EXPECT_EQ(ToString(Suspected{{one}, false}), "a (PID 1)");
  EXPECT_EQ(ToString(Suspected{{one, two}, false}), "one of a (PID 1), b (PID 2)");
  EXPECT_EQ(ToString(Suspected{{one}, true}), "a (PID 1), or another process that was not seen");
}

}  // namespace
}  // namespace kipt::agent
