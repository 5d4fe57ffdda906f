// SPDX-License-Identifier: Apache-2.0
//
// The parser of iptables-save against the decoder of nf_tables: the same kernel rules, read both
// ways, are equal. What differs is only how an opaque rule is spelled.
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "agent/xtables/iptables_save.h"
#include "tests/kernel/nft_fixture.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

// Rules of filter next to the third party's; THEIRS and LEAF are user chains. "4 " or "6 " before
// those of one family.
constexpr const char* kFilterRules[] = {
    "",
    "-j ACCEPT",
    "-j DROP",
    "-j RETURN",
    "-j LEAF",
    "-g LEAF",
    "-j REJECT",
    R"(-j LOG --log-prefix "-j DROP ")",
    "-j NFQUEUE --queue-num 3",
    "-j MARK --set-xmark 0x4000/0x0",
    "-j CLASSIFY --set-class 1:1",
    "-i -j -j DROP",
    "-s SELF -j DROP",
    "! -s NET -d SELF -j RETURN",
    "! -d NET -i lo -j DROP",
    "-m mark --mark 0x8000/0x8000 -j DROP",
    "-m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-m mark --mark 0 -j RETURN",
    "-m mark --mark 0x1 -j ACCEPT",
    "-m mark --mark 0x1 -m mark ! --mark 0x2 -j DROP",
    "-m mark --mark 0x1 -m comment --comment behind -j DROP",
    "-m conntrack --ctstate NEW -j DROP",
    "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
    "-m conntrack --ctstate INVALID,NEW,RELATED,ESTABLISHED,UNTRACKED,SNAT,DNAT -j DROP",
    "-m conntrack --ctstate NEW -m comment --comment c -m mark --mark 1 -j LEAF",
    "-m hashlimit --hashlimit-above 10/sec --hashlimit-name -j --hashlimit-mode srcip -j DROP",
    R"(-m string --algo bm --string "\"q\\uote" -j DROP)",
    R"(-m string --algo bm --string "-j LEAF" -j LOG)",
    "-m conntrack --ctstate NEW -m connlimit --connlimit-above 5 -j REJECT",
    "-m recent --rcheck --seconds 10 --reap --name x --rsource -j LEAF",
    "-m recent --set --name x --rsource",
    "-m recent ! --set --name x --rsource -j ACCEPT",
    "-m mark --mark 0x0/0x0 -j ACCEPT",
    "-m mark ! --mark 0x0/0x0 -j ACCEPT",
    "-p tcp -j NFQUEUE --queue-num 3 --queue-bypass",
    "-j AUDIT --type drop",
    "-m comment --comment word",
    "-m comment --comment word -j DROP",
    "-m comment --comment -j -j LEAF",
    R"(-m comment --comment "two words" -j ACCEPT)",
    R"(-m comment --comment "say \"hi\" \\ b'ack\\\\slash #hash -j DROP" -j ACCEPT)",
    R"(-m comment --comment "say \"hi\" \\ b'ack\\\\slash #hash -j DROP" -j LEAF)",
    R"(-m comment --comment "-A THEIRS -j LEAF" -j DROP)",
    R"(-m comment --comment "COMMIT" -j DROP)",
    R"(-m comment --comment ":LEAF - [0:0] $(id) `id` %s%n {}" -j DROP)",
    R"(-m comment --comment "" -j DROP)",
    "-m comment --comment one -m comment --comment two -j DROP",
    "4 -s 10.0.0.1/255.0.255.255 -j DROP",
    "4 -f -j DROP",
    "4 -m ttl --ttl-eq 3 -j LEAF",
    "6 -s fedc:ba98::/33 -d ::ffff:1.2.3.4/128 -j DROP",
    "6 -m hl --hl-eq 3 -j LEAF",
};

constexpr const char* kNatRules[] = {
    "-j MASQUERADE",
    "-j MASQUERADE --random-fully",
    "-m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully",
    "-j MARK --or-mark 0x4000",
    "-j MARK --and-mark 0xff",
    "-j MARK --xor-mark 0x4000",
    "-j MARK --set-mark 7",
    "-p udp -j MARK --set-mark 7",
};

std::string Spelled(Family family, absl::string_view rule) {
  const bool ipv4 = family == Family::kIPv4;
  return absl::StrReplaceAll(rule, {{"SELF", ipv4 ? "192.0.2.7" : "2001:db8::7"},
                                    {"NET", ipv4 ? "10.8.0.0/13" : "fd00::/9"}});
}

std::string Rules(Family family, absl::string_view chain, absl::Span<const char* const> rules) {
  std::string text;
  for (absl::string_view rule : rules) {
    if (absl::ConsumePrefix(&rule, family == Family::kIPv4 ? "6 " : "4 ")) continue;
    absl::ConsumePrefix(&rule, family == Family::kIPv4 ? "4 " : "6 ");
    absl::StrAppend(&text, "-A ", chain, " ", Spelled(family, rule), "\n");
  }
  return text;
}

class SaveParserTest : public NftBackendTest {
 protected:
  static void Load(Family family, const std::string& text) {
    MustRun({Iptables(family) + "-restore"}, text);
  }

  static std::map<ChainId, ObservedChain> Parse(Family family,
                                                const std::vector<std::string>& options = {}) {
    std::vector<std::string> argv = {Iptables(family) + "-save"};
    argv.insert(argv.end(), options.begin(), options.end());
    const ProgramResult saved = RunProgram(argv);
    EXPECT_EQ(saved.exit_code, 0) << saved;
    auto chains = agent::ParseSave(family, saved.out);
    EXPECT_THAT(chains, IsOk()) << saved.out;
    return chains.ok() ? *std::move(chains) : std::map<ChainId, ObservedChain>();
  }

  // Every chain of the save, rule by rule.
  void ExpectAgreement(const std::map<ChainId, ObservedChain>& parsed) {
    std::vector<ChainId> ids;
    for (const auto& [id, chain] : parsed) ids.push_back(id);
    const Snapshot snapshot = Read(ids);
    for (const auto& [id, chain] : parsed) {
      const ObservedChain* read = snapshot.Find(id);
      // iptables-nft-save prints the built-in chains of a table that it has not made yet.
      if (read == nullptr) {
        EXPECT_TRUE(chain.hooked && chain.rules.empty()) << ToString(id);
        continue;
      }
      EXPECT_EQ(chain.hooked, read->hooked) << ToString(id);
      ASSERT_EQ(chain.rules.size(), read->rules.size()) << ToString(id);
      for (size_t i = 0; i < chain.rules.size(); ++i) {
        ExpectSame(id.family, chain.rules[i], read->rules[i]);
      }
    }
  }

  void ExpectSame(Family family, const ObservedRule& parsed, const ObservedRule& read) {
    SCOPED_TRACE(absl::StrCat(netlink::FamilyName(family), ": ", ToString(family, parsed),
                              "\nof nft: ", ToString(family, read)));
    ASSERT_EQ(parsed.rule() != nullptr, read.rule() != nullptr);
    if (const Rule* rule = parsed.rule()) {
      ++rules_;
      EXPECT_EQ(*rule, *read.rule());
      return;
    }
    ++opaque_;
    const OpaqueRule& ours = *parsed.opaque();
    const OpaqueRule& nft = *read.opaque();
    EXPECT_EQ(ours.jump, nft.jump);
    EXPECT_EQ(ours.unconditional, nft.unconditional);
    EXPECT_EQ(ours.decides, nft.decides);
    EXPECT_EQ(ours.terminal, nft.terminal);
    EXPECT_EQ(ours.perhaps_unconditional, nft.perhaps_unconditional);
    EXPECT_EQ(ours.perhaps_terminal, nft.perhaps_terminal);
  }

  int rules_ = 0;
  int opaque_ = 0;
};

TEST_F(SaveParserTest, AgreesWithTheNftBackendOnRulesOfAllKinds) {
  for (const Family family : netlink::kFamilies) {
    Load(family, absl::StrCat("*filter\n:THEIRS - [0:0]\n:LEAF - [0:0]\n",
                              Rules(family, "THEIRS", kFilterRules), "-A INPUT -j LEAF\nCOMMIT\n",
                              "*nat\n:SNATTED - [0:0]\n", Rules(family, "SNATTED", kNatRules),
                              "-A POSTROUTING -m comment --comment \"a b\" -j SNATTED\nCOMMIT\n"));
    ExpectAgreement(Parse(family));
    MustRun({Iptables(family) + "-restore", "--noflush"}, ThirdPartyRules(family));
    ExpectAgreement(Parse(family));
  }
  EXPECT_GT(rules_, 90);
  EXPECT_GT(opaque_, 240);
}

TEST_F(SaveParserTest, ACommentOfSeveralLinesIsOneRule) {
  const std::string comment = "first\n-A INPUT -j DROP\nCOMMIT\n*nat \"\\'";
  MustRun({"iptables-nft", "-A", "INPUT", "-m", "comment", "--comment", comment, "-j", "RETURN"});
  MustRun({"iptables-nft", "-A", "INPUT", "-j", "ACCEPT"});
  const std::map<ChainId, ObservedChain> parsed = Parse(Family::kIPv4);
  ExpectAgreement(parsed);
  const std::vector<ObservedRule>& rules =
      parsed.at({Family::kIPv4, Table::kFilter, "INPUT"}).rules;
  ASSERT_EQ(rules.size(), 2U);
  ASSERT_NE(rules[0].rule(), nullptr);
  EXPECT_EQ(rules[0].rule()->comment, comment);
}

}  // namespace
}  // namespace kipt::testing
