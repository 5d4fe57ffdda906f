// SPDX-License-Identifier: Apache-2.0
//
// What the judges let pass and what they do not: each row of a known failure has next to it what
// the failure does not explain.
#include "tests/skew/matrix/judge.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

namespace kipt::skew {
namespace {

using testing::IpFamily;

Question Asked(About about, Outcome sound, int balanced_over = 0) {
  Question question;
  question.probe.name = "a probe";
  question.probe.address = AddressOf(Place::kNode, IpFamily::kIpv4);
  question.about = about;
  question.sound = sound;
  question.balanced_over = balanced_over;
  return question;
}

// A node on which KUBE-MARK-DROP stays empty, though kube-proxy 1.24 uses it.
FamilyFacts FailsOpen() {
  FamilyFacts facts;
  KubeletSyncs({{1, 27}, {}}, facts);
  ProxySyncsFully({{1, 24}}, true, facts);
  return facts;
}

FamilyFacts Sound(IpFamily family = IpFamily::kIpv4) {
  FamilyFacts facts;
  facts.family = family;
  KubeletSyncs({{1, 24}, {}}, facts);
  ProxySyncsFully({{1, 24}}, true, facts);
  return facts;
}

FamilyFacts AllFlushed() {
  FamilyFacts facts = Sound();
  Flushed(facts);
  return facts;
}

struct CheckRow {
  const char* name;
  FamilyFacts facts;
  Question question;
  Outcome outcome;
  const char* dropped_by;
  bool as_expected;
};

const CheckRow kChecks[] = {
    {"a known leak", FailsOpen(), Asked(About::kRefusedBoundVip, Outcome::kDropped),
     Outcome::kReachedHost, "", true},
    {"the same packet lost", FailsOpen(), Asked(About::kRefusedBoundVip, Outcome::kDropped),
     Outcome::kLost, "", false},
    {"the same packet served", FailsOpen(), Asked(About::kRefusedBoundVip, Outcome::kDropped),
     Outcome::kServed, "", false},
    {"a known leak that did not happen", FailsOpen(),
     Asked(About::kRefusedBoundVip, Outcome::kDropped), Outcome::kDropped,
     "ip filter -A KUBE-FIREWALL -j DROP", false},
    {"another probe of that cell", FailsOpen(), Asked(About::kService, Outcome::kServedMasqueraded),
     Outcome::kReachedHost, "", false},
    {"the same probe where nothing is known", Sound(),
     Asked(About::kRefusedBoundVip, Outcome::kDropped), Outcome::kReachedHost, "", false},
};

TEST(JudgeCheckTest, ExcusesTheOutcomeThatIsKnownAndNoOther) {
  for (const CheckRow& row : kChecks) {
    ProbeResult result;
    result.outcome = row.outcome;
    result.dropped_by = row.dropped_by;
    const Check check = JudgeCheck(row.facts, row.question, result);
    EXPECT_EQ(check.AsExpected(), row.as_expected) << row.name << ": " << check.complaint;
  }
}

TEST(JudgeCheckTest, SeesALostBalance) {
  const Question question = Asked(About::kService, Outcome::kServedMasqueraded, 3);
  ProbeResult result;
  result.outcome = Outcome::kServedMasqueraded;
  result.sent = 60;
  result.receivers = {{"pod a", 20}, {"pod b", 22}, {"remote pod", 18}};
  EXPECT_TRUE(JudgeCheck(Sound(), question, result).AsExpected());
  result.receivers = {{"pod a", 50}, {"pod b", 5}, {"remote pod", 5}};
  EXPECT_FALSE(JudgeCheck(Sound(), question, result).AsExpected());
  result.receivers = {{"pod a", 30}, {"pod b", 30}};
  EXPECT_FALSE(JudgeCheck(Sound(), question, result).AsExpected());
}

StreamQuestion StreamNamed(About about, IpFamily family = IpFamily::kIpv4) {
  for (const StreamQuestion& question : StreamQuestions(family)) {
    if (question.about == about) return question;
  }
  ADD_FAILURE() << "no such stream";
  return {};
}

struct StreamRow {
  const char* name;
  About about;
  StreamMoment moment;
  StreamCount count;
  uint64_t bad;
  // Of these.
  uint64_t explained;
};

StreamMoment During(const FamilyFacts& before, const FamilyFacts& after) {
  return {.before = before, .after = after};
}
StreamMoment After(const FamilyFacts& facts) {
  return {.before = facts, .after = facts, .afterwards = true};
}
StreamMoment RepairedFlush() {
  StreamMoment moment = During(Sound(), Sound());
  moment.agent_repaired_flush = true;
  return moment;
}
StreamMoment Moved(int kubelet, IpFamily family = IpFamily::kIpv4) {
  StreamMoment moment = During(Sound(family), Sound(family));
  moment.moved_kubelet = KubeletVersion{{1, kubelet}, {}};
  return moment;
}
StreamMoment LongAfter(StreamMoment moment) {
  moment.afterwards = true;
  return moment;
}

FamilyFacts Nftables() {
  FamilyFacts facts;
  ProxyStarts({{1, 31}, ProxyMode::kNftables}, facts);
  ProxySyncsFully({{1, 31}, ProxyMode::kNftables}, true, facts);
  return facts;
}
StreamMoment ModeChange(const FamilyFacts& before, const FamilyFacts& after) {
  StreamMoment moment = During(before, after);
  moment.proxy_changed_mode = true;
  return moment;
}
// A cleanup that left the chains of nat, and kube-proxy's start after it.
StreamMoment StartsOverLeftChains() {
  FamilyFacts before = Sound();
  before.user_masq = true;
  ProxyCleansUp({1, 34}, before);
  FamilyFacts after = before;
  ProxyStarts({{1, 34}}, after);
  ProxySyncsFully({{1, 34}}, true, after);
  return During(before, after);
}

StreamRow Stream(const char* name, About about, const StreamMoment& moment,
                 const StreamCount& count, uint64_t bad = 0, uint64_t explained = 0) {
  return {name, about, moment, count, bad, explained};
}

const StreamRow kStreams[] = {
    Stream("while kube-proxy changes its mode nothing serves", About::kService,
           ModeChange(Sound(), Nftables()), {.sent = 99, .served_masqueraded = 59, .forwarded = 40},
           40, 40),
    Stream("and what it refused reaches the host", About::kRefusedBoundVip,
           ModeChange(Nftables(), Sound()), {.sent = 99, .reached_host = 40}, 40, 40),
    Stream("a service's packets do not", About::kService, ModeChange(Sound(), Nftables()),
           {.sent = 99, .served_masqueraded = 98, .reached_host = 1}, 1),
    Stream("nor are they served with the wrong address", About::kService,
           ModeChange(Sound(), Nftables()), {.sent = 99, .served = 1, .served_masqueraded = 98}, 1),
    Stream("nor lost on the way to nftables mode", About::kService, ModeChange(Sound(), Nftables()),
           {.sent = 99, .served_masqueraded = 98}, 1),
    Stream("on the way back for 25 ms", About::kService, ModeChange(Nftables(), Sound()),
           {.sent = 99, .served_masqueraded = 93}, 6, 5),
    Stream("martians stay out", About::kMartian, ModeChange(Sound(), Nftables()),
           {.sent = 99, .reached_host = 1}, 1),
    Stream("it is over afterwards", About::kService, LongAfter(ModeChange(Sound(), Nftables())),
           {.sent = 99, .served_masqueraded = 98, .forwarded = 1}, 1),
    Stream("chains that were left serve jump by jump", About::kService, StartsOverLeftChains(),
           {.sent = 99, .served = 50, .served_masqueraded = 9, .forwarded = 40}, 90, 90),
    Stream("for 250 ms", About::kService, StartsOverLeftChains(),
           {.sent = 99, .served = 51, .served_masqueraded = 8, .forwarded = 40}, 91, 90),
    Stream("no refused packet arrives", About::kRefusedBoundVip, After(Sound()), {.sent = 9}),
    Stream("a leak that nothing explains", About::kRefusedBoundVip, After(Sound()),
           {.sent = 9, .reached_host = 1}, 1),
    Stream("an unknown source is a leak too", About::kRefusedBoundVip, After(Sound()),
           {.sent = 9, .other = 1}, 1),
    Stream("a known leak", About::kRefusedBoundVip, After(FailsOpen()),
           {.sent = 9, .reached_host = 9}, 9, 9),
    Stream("does not explain that packets are forwarded", About::kRefusedBoundVip,
           After(FailsOpen()), {.sent = 9, .reached_host = 7, .forwarded = 2}, 9, 7),
    Stream("nor that another stream of the cell is lost", About::kService, After(FailsOpen()),
           {.sent = 9, .served_masqueraded = 7}, 2),
    Stream("nor martians", About::kMartian, After(FailsOpen()), {.sent = 9, .reached_host = 1}, 1),
    Stream("one that ends while the step acts", About::kRefusedBoundVip,
           During(FailsOpen(), Sound()), {.sent = 9, .reached_host = 4}, 4, 4),
    Stream("is over afterwards", About::kRefusedBoundVip, After(Sound()),
           {.sent = 9, .reached_host = 4}, 4),
    Stream("without kube-proxy's rules a service's packets are forwarded", About::kService,
           After(AllFlushed()), {.sent = 9, .forwarded = 9}, 9, 9),
    Stream("and not lost", About::kService, After(AllFlushed()), {.sent = 9, .forwarded = 6}, 9, 6),
    Stream("nor served with the wrong address", About::kService, After(AllFlushed()),
           {.sent = 9, .served = 2, .forwarded = 7}, 9, 7),
    Stream("one packet is between two hooks when the rules go", About::kService,
           During(Sound(), AllFlushed()),
           {.sent = 9, .served = 1, .served_masqueraded = 4, .forwarded = 4}, 5, 5),
    Stream("and no second one", About::kService, During(Sound(), AllFlushed()),
           {.sent = 9, .served = 2, .served_masqueraded = 4, .forwarded = 3}, 5, 4),
    Stream("a flush lets martians in for 100 ms", About::kMartian, RepairedFlush(),
           {.sent = 99, .reached_host = 21}, 21, 21),
    Stream("and no longer", About::kMartian, RepairedFlush(), {.sent = 99, .reached_host = 22}, 22,
           21),
    Stream("but as long as the machine held the harness up", About::kMartian, RepairedFlush(),
           {.sent = 99, .reached_host = 31, .late_in_all_milliseconds = 50}, 31, 31),
    Stream("and never longer than 250 ms", About::kMartian, RepairedFlush(),
           {.sent = 99, .reached_host = 51, .late_in_all_milliseconds = 900}, 51, 50),
    Stream("not where they are forwarded", About::kMartian, RepairedFlush(),
           {.sent = 99, .forwarded = 1}, 1),
    Stream("not once it is repaired", About::kMartian, LongAfter(RepairedFlush()),
           {.sent = 99, .reached_host = 1}, 1),
    Stream("not what a load balancer refuses", About::kRefusedBoundVip, RepairedFlush(),
           {.sent = 99, .reached_host = 1}, 1),
    Stream("a kubelet that moves to nft forgets to masquerade for a moment", About::kService,
           Moved(26), {.sent = 99, .served = 9, .served_masqueraded = 90}, 9, 9),
    Stream("and loses nothing", About::kService, Moved(26),
           {.sent = 99, .served = 9, .served_masqueraded = 89}, 10, 9),
    Stream("and is done after that moment", About::kService, LongAfter(Moved(26)),
           {.sent = 99, .served = 9, .served_masqueraded = 90}, 9),
    Stream("one that has no such rules has no such moment", About::kService, Moved(27),
           {.sent = 99, .served = 9, .served_masqueraded = 90}, 9),
    Stream("it lets nothing in", About::kRefusedBoundVip, Moved(26),
           {.sent = 99, .reached_host = 1}, 1),
};

TEST(JudgeStreamTest, ExplainsTheFateThatIsKnownAndNoOther) {
  for (const StreamRow& row : kStreams) {
    const StreamCheck check = JudgeStream(row.moment, StreamNamed(row.about), row.count);
    EXPECT_EQ(check.bad, row.bad) << row.name;
    EXPECT_EQ(check.allowed, row.explained) << row.name << ": " << check.because;
    EXPECT_EQ(check.AsExpected(), row.bad == row.explained) << row.name;
    EXPECT_EQ(check.afterwards, row.moment.afterwards) << row.name;
  }
}

TEST(JudgeStreamTest, ExplainsOneFamilyByItsOwnFacts) {
  const StreamCount count = {.sent = 9, .served = 9};
  const StreamQuestion ipv6 = StreamNamed(About::kService, IpFamily::kIpv6);
  // kubelet 1.19 writes no IPv6.
  EXPECT_EQ(JudgeStream(Moved(19, IpFamily::kIpv6), ipv6, count).allowed, 0U);
  EXPECT_EQ(JudgeStream(Moved(19), StreamNamed(About::kService), count).allowed, 9U);
}

struct ErrorRow {
  const char* name;
  std::array<bool, 2> families;
  std::string error;
  bool explained;
};

constexpr char kRefusedNft[] =
    "failed to execute iptables-restore: exit code 2: iptables-restore v1.8.9 (nf_tables): Chain "
    "'KUBE-MARK-DROP' does not exist\nError occurred at line: 63";
constexpr char kRefusedLegacy[] =
    "iptables -w 5 -C X -j KUBE-MARK-DROP: exit code 2: iptables v1.8.9 (legacy): Couldn't load "
    "target `KUBE-MARK-DROP':No such file or directory";
constexpr char kLocked[] =
    "iptables -w 5 -A X -j KUBE-MARK-DROP: exit code 4: Another app is currently holding the "
    "xtables lock";

std::string Errors(const std::string& ipv4, const std::string& ipv6) {
  if (ipv6.empty()) return "ipv4: " + ipv4;
  return ipv4.empty() ? "ipv6: " + ipv6 : "ipv4: " + ipv4 + "; ipv6: " + ipv6;
}

const ErrorRow kErrors[] = {
    {"nft's refusal", {true, true}, Errors(kRefusedNft, kRefusedNft), true},
    {"legacy's", {true, false}, Errors(kRefusedLegacy, ""), true},
    {"of IPv6 alone", {false, true}, Errors("", kRefusedNft), true},
    {"one family too many", {false, true}, Errors(kRefusedNft, kRefusedNft), false},
    {"one too few", {true, true}, Errors("", kRefusedNft), false},
    {"the wrong one", {true, false}, Errors("", kRefusedNft), false},
    {"another error of a command that names the chain", {true, false}, Errors(kLocked, ""), false},
    {"another error in one of two families", {true, true}, Errors(kRefusedNft, kLocked), false},
    {"a program that is missing",
     {true, false},
     Errors("failed to execute iptables-restore: exit code 127: No such file or directory", ""),
     false},
};

TEST(KnownErrorTest, ExplainsAChainThatIsStillUsed) {
  const std::string nft =
      "nat: exit code 4: iptables-nft-restore v1.8.9 (nf_tables): \nline 84: CHAIN_DEL failed "
      "(Device or resource busy): chain KUBE-MARK-MASQ";
  const std::string legacy = "nat: exit code 1: ip6tables-restore: line 84 failed";
  const auto in_both = [](const std::string& error) { return Errors(error, error); };
  KnownError known = {
      .because = "a fact", .busy_chain = "KUBE-MARK-MASQ", .families = {true, true}};
  EXPECT_TRUE(Explains(known, in_both(nft)));
  EXPECT_TRUE(Explains(known, in_both(legacy)));
  EXPECT_FALSE(Explains(known, Errors(nft, ""))) << "IPv6 has to fail too";
  EXPECT_FALSE(Explains(known, in_both("filter: exit code 1: iptables-restore: line 8 failed")));
  EXPECT_FALSE(Explains(known, in_both(nft + "; nft -f: exit code 1: x")));
  EXPECT_FALSE(Explains(known, in_both(kLocked)));
  const std::string ipvs = "ipvs: -X KUBE-MARK-MASQ: exit code 1: Directory not empty";
  EXPECT_TRUE(Explains(known, in_both(ipvs)));
  EXPECT_TRUE(Explains(known, Errors(legacy + "; ipv4: " + ipvs, nft + "; ipv6: " + ipvs)));
  EXPECT_FALSE(Explains(known, in_both(ipvs + "; ipvs: -F KUBE-MARK-MASQ: exit code 4: x")));
  known.busy_chain = "KUBE-POSTROUTING";
  EXPECT_FALSE(Explains(known, in_both(ipvs))) << "another chain";
  EXPECT_FALSE(Explains(known, in_both(nft))) << "another chain";
  known = {.because = "a fact",
           .busy_chain = "KUBE-MARK-MASQ",
           .may_succeed = true,
           .families = {false, true}};
  EXPECT_TRUE(Explains(known, ""));
  EXPECT_FALSE(Explains(known, Errors(nft, "")));
}

TEST(KnownErrorTest, ExplainsThatChainInTheseFamiliesAndNothingElse) {
  for (const ErrorRow& row : kErrors) {
    const KnownError known = {
        .because = "a fact", .missing_chain = "KUBE-MARK-DROP", .families = row.families};
    EXPECT_EQ(Explains(known, row.error), row.explained) << row.name;
  }
  const KnownError masq = {
      .because = "a fact", .missing_chain = "KUBE-MARK-MASQ", .families = {true, true}};
  EXPECT_FALSE(Explains(masq, Errors(kRefusedNft, kRefusedNft))) << "another chain";
}

}  // namespace
}  // namespace kipt::skew
