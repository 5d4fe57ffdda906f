// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "agent/xtables/iptables_save.h"

namespace kipt::testing {
namespace {

using agent::Fingerprint;
using agent::FingerprintSaved;
using agent::SelectSaved;
using netlink::Family;
using netlink::Table;

constexpr agent::FingerprintKey kKey = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

std::string Hex(const Fingerprint& fingerprint) {
  std::string bytes;
  for (const uint64_t word : fingerprint) {
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(word >> (8 * i));
  }
  return absl::BytesToHexString(bytes);
}

// The values are those of `openssl mac -macopt hexkey:000102030405060708090a0b0c0d0e0f
// -macopt size:16 SipHash`, OpenSSL 3.0.
TEST(FingerprintTest, IsSipHashOf128Bits) {
  struct Row {
    std::string text;
    std::string wanted;
  };
  for (const Row& row : std::vector<Row>{{"", "a3817f04ba25a8e66df67214c7550293"},
                                         {"iptables-save", "b7b7af749bf7901ee2bb45ae34f0bf40"}}) {
    agent::Fingerprinter whole(kKey);
    whole.Add(row.text);
    EXPECT_EQ(Hex(whole.Finish()), row.wanted);
    agent::Fingerprinter pieces(kKey);
    for (const char c : row.text) pieces.Add(std::string(1, c));
    EXPECT_EQ(Hex(pieces.Finish()), row.wanted);
  }
}

TEST(FingerprintTest, EveryBitOfAKeyIsRandom) {
  agent::FingerprintKey ones = {};
  agent::FingerprintKey zeroes = {};
  for (int i = 0; i < 64; ++i) {
    const agent::FingerprintKey key = agent::RandomFingerprintKey();
    for (size_t word = 0; word < key.size(); ++word) {
      ones[word] |= key[word];
      zeroes[word] |= ~key[word];
    }
  }
  EXPECT_EQ(ones, (agent::FingerprintKey{UINT64_MAX, UINT64_MAX}));
  EXPECT_EQ(zeroes, ones);
}

TEST(SavedTextTest, IsTheSameWhateverTheTimeAndTheCounters) {
  struct Row {
    std::string name;
    std::string a;
    std::string b;
    bool same;
  };
  const std::string rule = "-A X -m comment --comment \"";
  const std::vector<Row> rows = {
      {"time", "# noon\n*nat\nCOMMIT\n", "# one\n*nat\nCOMMIT\n", true},
      {"counters", ":INPUT ACCEPT [0:0]\n", ":INPUT ACCEPT [12:3]\n", true},
      {"policy", ":INPUT ACCEPT [0:0]\n", ":INPUT DROP [0:0]\n", false},
      {"chain", ":A - [0:0]\n", ":B - [0:0]\n", false},
      {"rule", "-A X -j DROP\n", "-A X -j RETURN\n", false},
      {"order", "-A X -j A\n-A X -j B\n", "-A X -j B\n-A X -j A\n", false},
      {"hash sign in a comment", rule + "a\n# b\"\n", rule + "a\n# c\"\n", false},
      {"colon in a comment", rule + "a\n: [1\"\n", rule + "a\n: [2\"\n", false},
      {"escaped quote", rule + "a\\\"\n# b\"\n", rule + "a\\\"\n# c\"\n", false},
      {"counters of a rule", "[0:0] -A X -j DROP\n", "[12:34] -A X -j DROP\n", true},
      {"counters of a rule, and none", "[1:2] -A X -j DROP\n", "-A X -j DROP\n", true},
      {"rule behind its counters", "[0:0] -A X -j DROP\n", "[0:0] -A Y -j DROP\n", false},
      {"counters in a comment", rule + "a\n[1:2] b\"\n", rule + "a\n[1:3] b\"\n", false},
      {"counters in a comment behind counters", "[0:0] " + rule + "a\n[1:2] b\"\n",
       "[0:0] " + rule + "a\n[1:3] b\"\n", false},
      {"no newline at the end", "# a", "# b", true},
      {"rule behind a comment with a quote", "# \"a\n-A X\n", "# \"a\n-A Y\n", false},
      {"time after an empty line", "\n# noon\n", "\n# one\n", true},
      {"counters after a comment with a quote", "# \"a\n[0:0] -A X\n", "# \"a\n[1:2] -A X\n", true},
      {"counters after a comment that ends in a space", rule + "a \"\n[0:0] -A X\n",
       rule + "a \"\n[1:2] -A X\n", true},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(FingerprintSaved(kKey, row.a) == FingerprintSaved(kKey, row.b), row.same);
  }
}

TEST(SavedTextTest, SelectsRulesAndKeepsEveryOtherLineInItsPlace) {
  const std::string text =
      "# time\n*nat\n:USER - [0:0]\n-A USER -j DROP\nCOMMIT\n*filter\n:USER - [0:0]\n"
      ":USER2 - [0:0]\n-A USER -j A\n-A USER2 -m comment --comment \"x\n-A USER -j B\" -j C\n"
      "-A USER2 -g WANTED\nCOMMIT\n*raw\n-A USER -j E\nCOMMIT\n";
  EXPECT_EQ(SelectSaved(text, Family::kIPv4,
                        {.chains = {{Family::kIPv4, Table::kFilter, "USER"}}, .words = {"WANTED"}}),
            "# time\n*nat\n:USER - [0:0]\n\nCOMMIT\n*filter\n:USER - [0:0]\n"
            ":USER2 - [0:0]\n-A USER -j A\n\n\n"
            "-A USER2 -g WANTED\nCOMMIT\n*raw\n\nCOMMIT\n");
  EXPECT_EQ(SelectSaved("-A USER", Family::kIPv4, {}), "") << "cut off";
  EXPECT_EQ(SelectSaved("*filter\n[1:2] -A USER -j A\n[3:4] -A USER2 -m comment --comment \"x\n"
                        "[0:0] -A USER -j B\" -j C\nCOMMIT\n",
                        Family::kIPv4,
                        {.chains = {{Family::kIPv4, Table::kFilter, "USER"}}, .words = {}}),
            "*filter\n[1:2] -A USER -j A\n\n\nCOMMIT\n");
}

// iptables-save 1.8.9 prints names as they are; the rules behind one must still be seen.
TEST(SavedTextTest, TakesAQuoteInsideOfAWordForItself) {
  const std::string text =
      "*filter\n:a\"b - [0:0]\n:USER - [0:0]\n"
      "-A INPUT -m recent --set --name r\"s --mask 255.255.255.255 --rsource\n-A a\"b -j RETURN\n"
      "-A a\"b -m comment --comment \"\\\"x\" -j RETURN\n-A USER -j A\nCOMMIT\n";
  EXPECT_EQ(SelectSaved(text, Family::kIPv4,
                        {.chains = {{Family::kIPv4, Table::kFilter, "USER"}}, .words = {}}),
            "*filter\n:a\"b - [0:0]\n:USER - [0:0]\n\n\n\n-A USER -j A\nCOMMIT\n");
}

}  // namespace
}  // namespace kipt::testing
