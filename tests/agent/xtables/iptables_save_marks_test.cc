// SPDX-License-Identifier: Apache-2.0
//
// Which bits of the packet mark a saved rule tests and sets, in every spelling.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "agent/xtables/saved_rule.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using netlink::kAllMarks;

struct Row {
  std::string rule;
  netlink::Marks marks;
};

const netlink::Marks kAnything = {
    .tested = kAllMarks, .set = kAllMarks, .labels_set = netlink::AllConnLabels()};
const netlink::Marks kReplaced = {.set = kAllMarks, .cleared = kAllMarks};

// Of any rule, whether it is one of ours or opaque.
netlink::Marks MarksOf(const std::string& text) {
  const SavedChains chains = {{"OTHER", "-"}, {"INPUT", "ACCEPT"}};
  std::vector<absl::string_view> words;
  EXPECT_EQ(SplitSavedRule(text, words), text.size());
  netlink::ObservedRule rule;
  rule.content = ParseSavedRule(netlink::Family::kIPv4, chains, text);
  return {.tested = netlink::MarksTested(rule),
          .set = netlink::MarksSet(rule),
          .cleared = netlink::MarksCleared(rule),
          .labels_set = netlink::LabelsSet(rule)};
}

void Expect(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.rule);
    const netlink::Marks marks = MarksOf(row.rule);
    EXPECT_EQ(marks.tested, row.marks.tested);
    EXPECT_EQ(marks.set, row.marks.set);
    EXPECT_EQ(marks.cleared, row.marks.cleared);
    EXPECT_EQ(marks.labels_set, row.marks.labels_set);
  }
}

TEST(SaveMarksTest, ReadsWhichBitsAreTested) {
  Expect({
      {"-p tcp -m tcp --dport 22 -j ACCEPT", {}},
      {"-m mark --mark 0x4000/0x4000 -j ACCEPT", {.tested = 0x4000}},
      {"-m mark ! --mark 0x4000/0xc000 -j RETURN", {.tested = 0xc000}},
      {"-m mark --mark 0x8000/0x8000 -j DROP", {.tested = 0x8000}},
      {"-m mark --mark 0x1 -j ACCEPT", {.tested = kAllMarks}},
      {"-m mark --mark 16/16 -j ACCEPT", {.tested = 16}},
      {"-m mark --mark 020/020 -j ACCEPT", {.tested = 16}},
      {"-m mark --mark 0x1/0x100000000 -j ACCEPT", {.tested = kAllMarks}},
      {"-m mark --mark 0x1/-1 -j ACCEPT", {.tested = kAllMarks}},
      {"-m mark --mark all -j ACCEPT", {.tested = kAllMarks}},
      {"-m mark -j ACCEPT", {.tested = kAllMarks}},
      {"-m mark --mark 0x1/0x1 -m mark ! --mark 0x2/0x2 -j ACCEPT", {.tested = 3}},
      {"-m connmark --mark 0x1/0xff -j ACCEPT", {}},
      {R"(-m comment --comment "-m mark --mark 0x1" -j ACCEPT)", {}},
      {"-m whatever --mark 0x1/0x1 -j ACCEPT",
       {.tested = kAllMarks, .labels_set = netlink::AllConnLabels()}},
      {"-m bpf", {.tested = kAllMarks}},
      {"-m bpf --bytecode \"4,48 0 0 9\" -j ACCEPT", {.tested = kAllMarks}},
      {"-m rpfilter --loose -j ACCEPT", {}},
      {"-m rpfilter --validmark -j DROP", {.tested = kAllMarks}},
      {"-m socket --transparent -j ACCEPT", {}},
      {"-p tcp -m socket --restore-skmark -j ACCEPT", kReplaced},
      {"-m socket -m addrtype --restore-skmark -m rpfilter -j ACCEPT --validmark", {}},
      {"-m set --match-set s src -j ACCEPT", {}},
      {"-j CONNMARK --save-mark --nfmask 0xff --ctmask 0xf0", {.tested = 0xff}},
      {"-j CONNMARK --save-mark", {.tested = kAllMarks}},
      {"-j CONNMARK --save-mark --mask 0xff", {.tested = 0xff}},
  });
}

TEST(SaveMarksTest, ReadsWhatIsTurnedOn) {
  Expect({
      {"-j MARK --set-xmark 0x4000/0x4000", {.set = 0x4000}},
      {"-j MARK --set-xmark 0x4000/0x0", {.set = 0x4000, .cleared = 0x4000}},
      {"-j MARK --set-xmark 0x0/0x4000", {.cleared = 0x4000}},
      {"-p udp -j MARK --set-xmark 0x0/0xffffffff", {.cleared = kAllMarks}},
      {"-p tcp -j MARK --set-xmark 0x3/0x1", {.set = 3, .cleared = 2}},
      {"-p tcp -j MARK --set-xmark 0x3", {.set = 3, .cleared = ~3U}},
      {"-j MARK --set-mark 7", {.set = 7, .cleared = ~7U}},
      {"-j MARK --set-mark 0x10/0xff", {.set = 0x10, .cleared = 0xef}},
      {"-j MARK --or-mark 0x4000", {.set = 0x4000}},
      {"-j MARK --xor-mark 16384", {.set = 0x4000, .cleared = 0x4000}},
      {"-j MARK --and-mark 0xffffbfff", {.cleared = 0x4000}},
      {"-j MARK --set-mark x", {.set = kAllMarks}},
      {"-j MARK --flip-mark 0x1", {.set = kAllMarks}},
      {"-j CONNMARK --restore-mark --nfmask 0xf0 --ctmask 0xff", {.set = 0xff, .cleared = 0xff}},
      {"-j CONNMARK --restore-mark --nfmask 0xf0 --ctmask 0x80", {.set = 0x80, .cleared = 0xf0}},
      {"-j CONNMARK --restore-mark", kReplaced},
      {"-j CONNMARK --restore-mark --mask 0xf0000", {.set = 0xf0000, .cleared = 0xf0000}},
      {"-j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff --left-shift-mark 8",
       {.set = 0xff00, .cleared = 0xffff}},
      {"-j CONNMARK --restore-mark --right-shift-mark 32", {.set = kAllMarks}},
      {"-j CONNMARK --set-xmark 0x1/0x1", {}},
      {"-j CONNMARK --set-mark 0x1", {}},
      {"-j CONNMARK --what", kAnything},
      {"-p tcp -j TPROXY --on-port 1 --on-ip 0.0.0.0 --tproxy-mark 0x1/0xff",
       {.set = 1, .cleared = 0xfe}},
      {"-p tcp -j TPROXY --on-port 1", {}},
      {"-j SET --add-set s src", {}},
      {"-j SET --map-set s src --map-mark", {.set = kAllMarks}},
      {"-j NFQUEUE --queue-num 1", kAnything},
      {"-j HMARK --hmark-tuple src --hmark-mod 2 --hmark-offset 1 --hmark-rnd 1", kReplaced},
      {"-j WHATEVER", kAnything},
      {"-j OTHER", {}},
      {"-j -x", {.set = kAllMarks, .labels_set = netlink::AllConnLabels()}},
      {"-p tcp", {}},
      {"-p tcp -j MASQUERADE", {}},
  });
}

TEST(SaveMarksTest, ReadsWhichLabelsAreSet) {
  const auto label = [](size_t number) {
    return netlink::Marks{.labels_set = netlink::ConnLabelSet().set(number)};
  };
  const netlink::Marks any = {.labels_set = netlink::AllConnLabels()};
  Expect({
      {"-m connlabel --label \"114\" --set", label(114)},
      {"-m connlabel --label \"114\" -j DROP", {}},
      {"-m connlabel --label \"mine\" -j DROP", {}},
      {"-p tcp -m connlabel --label \"127\" --set -j ACCEPT", label(127)},
      {"-m connlabel --set 5 -j ACCEPT", any},
      {"-m connlabel ! --label \"7\" --set -j ACCEPT", label(7)},
      {"-m connlabel --label 0x10 --set -j ACCEPT", label(16)},
      {"-m connlabel --label \"mine\" --set -j ACCEPT", any},
      {"-m connlabel --label \"128\" --set -j ACCEPT", any},
      {"-m connlabel --label \"9\" -m set --set -j ACCEPT", {}},
      {"-m connlabel --label \"1\" --set -m connlabel --label \"2\" --set",
       {.labels_set = netlink::ConnLabelSet().set(1).set(2)}},
  });
}

}  // namespace
}  // namespace kipt::agent
