// SPDX-License-Identifier: Apache-2.0
//
// Which bits of the packet mark a saved rule looks at and turns on, in every spelling.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "agent/xtables/saved_rule.h"
#include "netlink/ruleset.h"
#include "netlink/xt_info.h"

namespace kipt::agent {
namespace {

using netlink::kAllMarks;

struct Row {
  std::string name;
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
    SCOPED_TRACE(row.name);
    const netlink::Marks marks = MarksOf(row.rule);
    EXPECT_EQ(marks.tested, row.marks.tested);
    EXPECT_EQ(marks.set, row.marks.set);
    EXPECT_EQ(marks.cleared, row.marks.cleared);
    EXPECT_EQ(marks.labels_set, row.marks.labels_set);
  }
}

TEST(SaveMarksTest, ReadsWhatIsLookedAt) {
  Expect({
      {"nothing", "-p tcp -m tcp --dport 22 -j ACCEPT", {}},
      {"mark", "-m mark --mark 0x4000/0x4000 -j ACCEPT", {.tested = 0x4000}},
      {"not mark", "-m mark ! --mark 0x4000/0xc000 -j RETURN", {.tested = 0xc000}},
      {"mark of our own rule", "-m mark --mark 0x8000/0x8000 -j DROP", {.tested = 0x8000}},
      {"no mask", "-m mark --mark 0x1 -j ACCEPT", {.tested = kAllMarks}},
      {"decimal", "-m mark --mark 16/16 -j ACCEPT", {.tested = 16}},
      {"octal", "-m mark --mark 020/020 -j ACCEPT", {.tested = 16}},
      {"too large", "-m mark --mark 0x1/0x100000000 -j ACCEPT", {.tested = kAllMarks}},
      {"sign", "-m mark --mark 0x1/-1 -j ACCEPT", {.tested = kAllMarks}},
      {"no number", "-m mark --mark all -j ACCEPT", {.tested = kAllMarks}},
      {"no argument", "-m mark -j ACCEPT", {.tested = kAllMarks}},
      {"two", "-m mark --mark 0x1/0x1 -m mark ! --mark 0x2/0x2 -j ACCEPT", {.tested = 3}},
      {"mark of a connection", "-m connmark --mark 0x1/0xff -j ACCEPT", {}},
      {"name in a comment", R"(-m comment --comment "-m mark --mark 0x1" -j ACCEPT)", {}},
      {"unknown match",
       "-m whatever --mark 0x1/0x1 -j ACCEPT",
       {.tested = kAllMarks, .labels_set = netlink::AllConnLabels()}},
      {"program", "-m bpf --bytecode \"4,48 0 0 9\" -j ACCEPT", {.tested = kAllMarks}},
      {"reverse path", "-m rpfilter --loose -j ACCEPT", {}},
      {"reverse path with the mark", "-m rpfilter --validmark -j DROP", {.tested = kAllMarks}},
      {"socket", "-m socket --transparent -j ACCEPT", {}},
      {"socket with its mark", "-p tcp -m socket --restore-skmark -j ACCEPT", kReplaced},
      {"option of the next match",
       "-m socket -m addrtype --restore-skmark -m rpfilter -j ACCEPT --validmark",
       {}},
      {"set", "-m set --match-set s src -j ACCEPT", {}},
      {"saved to the connection",
       "-j CONNMARK --save-mark --nfmask 0xff --ctmask 0xf0",
       {.tested = 0xff}},
      {"saved whole", "-j CONNMARK --save-mark", {.tested = kAllMarks}},
      {"saved, old spelling", "-j CONNMARK --save-mark --mask 0xff", {.tested = 0xff}},
  });
}

TEST(SaveMarksTest, ReadsWhatIsTurnedOn) {
  Expect({
      {"own form", "-j MARK --set-xmark 0x4000/0x4000", {.set = 0x4000}},
      {"own form, unmasked", "-j MARK --set-xmark 0x4000/0x0", {.set = 0x4000, .cleared = 0x4000}},
      {"cleared", "-j MARK --set-xmark 0x0/0x4000", {.cleared = 0x4000}},
      {"cleared on a condition",
       "-p udp -j MARK --set-xmark 0x0/0xffffffff",
       {.cleared = kAllMarks}},
      {"value beyond the mask", "-p tcp -j MARK --set-xmark 0x3/0x1", {.set = 3, .cleared = 2}},
      {"no mask", "-p tcp -j MARK --set-xmark 0x3", {.set = 3, .cleared = ~3U}},
      {"set", "-j MARK --set-mark 7", {.set = 7, .cleared = ~7U}},
      {"set with a mask", "-j MARK --set-mark 0x10/0xff", {.set = 0x10, .cleared = 0xef}},
      {"or", "-j MARK --or-mark 0x4000", {.set = 0x4000}},
      {"xor", "-j MARK --xor-mark 16384", {.set = 0x4000, .cleared = 0x4000}},
      {"and", "-j MARK --and-mark 0xffffbfff", {.cleared = 0x4000}},
      {"no number", "-j MARK --set-mark x", {.set = kAllMarks}},
      {"unknown option", "-j MARK --flip-mark 0x1", {.set = kAllMarks}},
      {"restored",
       "-j CONNMARK --restore-mark --nfmask 0xf0 --ctmask 0xff",
       {.set = 0xff, .cleared = 0xff}},
      {"restored in part",
       "-j CONNMARK --restore-mark --nfmask 0xf0 --ctmask 0x80",
       {.set = 0x80, .cleared = 0xf0}},
      {"restored whole", "-j CONNMARK --restore-mark", kReplaced},
      {"restored, old spelling",
       "-j CONNMARK --restore-mark --mask 0xf0000",
       {.set = 0xf0000, .cleared = 0xf0000}},
      {"restored and shifted",
       "-j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff --left-shift-mark 8",
       {.set = 0xff00, .cleared = 0xffff}},
      {"restored and shifted away",
       "-j CONNMARK --restore-mark --right-shift-mark 32",
       {.set = kAllMarks}},
      {"connection's only", "-j CONNMARK --set-xmark 0x1/0x1", {}},
      {"connection's, set", "-j CONNMARK --set-mark 0x1", {}},
      {"connection, unknown", "-j CONNMARK --what", kAnything},
      {"proxy",
       "-p tcp -j TPROXY --on-port 1 --on-ip 0.0.0.0 --tproxy-mark 0x1/0xff",
       {.set = 1, .cleared = 0xfe}},
      {"proxy without a mark", "-p tcp -j TPROXY --on-port 1", {}},
      {"set of addresses", "-j SET --add-set s src", {}},
      {"set that gives marks", "-j SET --map-set s src --map-mark", {.set = kAllMarks}},
      {"queue", "-j NFQUEUE --queue-num 1", kAnything},
      {"hash", "-j HMARK --hmark-tuple src --hmark-mod 2 --hmark-offset 1 --hmark-rnd 1",
       kReplaced},
      {"unknown target", "-j WHATEVER", kAnything},
      {"jump", "-j OTHER", {}},
      {"target that cannot be told",
       "-j -x",
       {.set = kAllMarks, .labels_set = netlink::AllConnLabels()}},
      {"none", "-p tcp", {}},
      {"masquerade", "-p tcp -j MASQUERADE", {}},
  });
}

TEST(SaveMarksTest, ReadsWhichLabelsAreSet) {
  const auto label = [](size_t number) {
    return netlink::Marks{.labels_set = netlink::ConnLabelSet().set(number)};
  };
  const netlink::Marks any = {.labels_set = netlink::AllConnLabels()};
  Expect({
      {"own form", "-m connlabel --label \"114\" --set", label(114)},
      {"tested", "-m connlabel --label \"114\" -j DROP", {}},
      {"tested by name", "-m connlabel --label \"mine\" -j DROP", {}},
      {"the last, on a condition", "-p tcp -m connlabel --label \"127\" --set -j ACCEPT",
       label(127)},
      {"number of another option", "-m connlabel --set 5 -j ACCEPT", any},
      {"negated", "-m connlabel ! --label \"7\" --set -j ACCEPT", label(7)},
      {"hexadecimal", "-m connlabel --label 0x10 --set -j ACCEPT", label(16)},
      {"by name", "-m connlabel --label \"mine\" --set -j ACCEPT", any},
      {"beyond the last", "-m connlabel --label \"128\" --set -j ACCEPT", any},
      {"option of the next match", "-m connlabel --label \"9\" -m set --set -j ACCEPT", {}},
      {"two",
       "-m connlabel --label \"1\" --set -m connlabel --label \"2\" --set",
       {.labels_set = netlink::ConnLabelSet().set(1).set(2)}},
  });
}

}  // namespace
}  // namespace kipt::agent
