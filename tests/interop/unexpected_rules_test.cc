// SPDX-License-Identifier: Apache-2.0
//
// New rules of other programs in base chains: named with their writer, counted and shown, whatever
// a hostile neighbour writes.
#include "tests/interop/daemon_fixture.h"

namespace kipt::testing {
namespace {

constexpr char kTotal[] = "kube_iptables_agent_foreign_rules_total";
constexpr char kNews[] = "New rules of another program, by ";

class UnexpectedRulesTest : public DaemonTest {
 protected:
  static void Iptables(const std::string& arguments, const std::string& program = "iptables-nft") {
    Output({"/bin/sh", "-c", program + " " + arguments});
  }
  static std::string Statusz() { return HttpGet(kMetricsPort, "/statusz").body; }
};

TEST_F(UnexpectedRulesTest, EachKindIsReportedOnceWithItsWriter) {
  Iptables("-A INPUT -s 192.0.2.9 -j DROP");
  Start({});
  struct Row {
    const char* rule;
    const char* table;
    const char* kind;
  };
  int lines = 0;
  std::map<std::string, int> of_kind;
  for (const Row& row :
       {Row{"INPUT -s 192.0.2.1/32 -j DROP", "filter", "drop"},
        Row{"OUTPUT -d 192.0.2.2/32 -j REJECT", "filter", "reject"},
        Row{"PREROUTING -d 192.0.2.3/32 -j DNAT --to-destination 192.0.2.4", "nat", "dnat"},
        Row{"PREROUTING -p tcp -m tcp --dport 81 -j REDIRECT --to-ports 8080", "nat", "redirect"},
        Row{"OUTPUT -d 192.0.2.0/30 -j NETMAP --to 198.51.100.0/30", "nat", "redirect"},
        Row{"INPUT -s 192.0.2.5/32 -j MARK --set-mark 0xca6c", "filter", "mark"}}) {
    SCOPED_TRACE(row.rule);
    Iptables(absl::StrCat("-t ", row.table, " -A ", row.rule));
    ASSERT_TRUE(MetricReaches(kTotal, ++lines)) << daemon().Output();
    EXPECT_TRUE(daemon().Prints(kNews, lines));
    EXPECT_EQ(Metric(kTotal, absl::StrCat("family=\"ip\",kind=\"", row.kind, "\",table=\"",
                                          row.table, "\"")),
              ++of_kind[row.kind]);
  }
  Iptables("-A OUTPUT -j DROP", "ip6tables-nft");
  ASSERT_TRUE(MetricReaches(kTotal, 1, "family=\"ip6\""));
  // Harmless, or its own.
  Iptables("-A INPUT -s 192.0.2.6 -j ACCEPT");
  Iptables("-N OTHER");
  Iptables("-A OTHER -j DROP");
  Iptables("-D INPUT -s 192.0.2.1/32 -j DROP");
  Iptables("-A INPUT -s 192.0.2.1/32 -j DROP");
  Iptables("-F INPUT");
  ASSERT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", 1));
  EXPECT_EQ(Metric(kTotal), 7);
  EXPECT_EQ(CountOf(kNews, daemon().Output()), 7) << daemon().Output();
  EXPECT_THAT(daemon().Output(),
              AllOf(HasSubstr("by iptables"), HasSubstr("ip filter/INPUT -s 192.0.2.1/32 -j DROP"),
                    Not(HasSubstr("192.0.2.9"))));
  EXPECT_THAT(Statusz(), AllOf(HasSubstr("Unexpected rules of other programs: 5"),
                               HasSubstr("ip6 filter/OUTPUT -j DROP")));
}

TEST_F(UnexpectedRulesTest, ExpectedOnesAreSilentAndTheListIsReadAgain) {
  const TemporaryFile expected(
      "# EKS' form\nfilter/OUTPUT\nfilter/INPUT -s 192.0.2.1/32 -j DROP\n");
  Start({}, {"--expected-rules=" + expected.path()});
  // Not what the endpoints answer.
  Iptables("-A OUTPUT -d 192.0.2.8 -j DROP");
  Iptables("-A INPUT -s 192.0.2.1 -j DROP");
  Iptables("-A INPUT -s 192.0.2.2 -j DROP");
  ASSERT_TRUE(MetricReaches(kTotal, 1));
  EXPECT_TRUE(daemon().Prints("192.0.2.2/32 -j DROP"));
  EXPECT_THAT(daemon().Output(), Not(HasSubstr("192.0.2.1/32")));
  std::ofstream(expected.path()) << "filter/INPUT\nfilter/OUTPUT\n";
  daemon().Signal(SIGHUP);
  ASSERT_TRUE(daemon().Prints("Using the new configuration")) << daemon().Output();
  EXPECT_TRUE(WaitUntil(
      [] { return Statusz().find("Unexpected rules of other programs: 0") != std::string::npos; }));
  Iptables("-A INPUT -s 192.0.2.3 -j DROP");
  Iptables("-F INPUT");
  ASSERT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", 1));
  EXPECT_EQ(Metric(kTotal), 1);
  std::ofstream(expected.path()) << "no list\n";
  daemon().Signal(SIGHUP);
  EXPECT_TRUE(daemon().Prints("is invalid; the previous one stays in force")) << daemon().Output();
  const ProgramResult wrong = Agent({"plan", "--expected-rules=" + expected.path()});
  EXPECT_EQ(wrong.exit_code, kExitUsage) << wrong;
  EXPECT_THAT(wrong.err, HasSubstr("line 1: "));
}

TEST_F(UnexpectedRulesTest, IptablesLegacyIsReportedOnlyOnRequest) {
  const AgentSettings legacy{.iptables = IptablesMode::kLegacy};
  for (const bool report : {false, true}) {
    Start(legacy,
          report ? std::vector<std::string>{"--foreign-rules=report"} : std::vector<std::string>());
    Iptables(absl::StrCat("-A INPUT -s 192.0.2.", report, " -j DROP"), "iptables-legacy");
    Iptables("-F OUTPUT", "iptables-legacy");
    if (report) {
      ASSERT_TRUE(MetricReaches(kTotal, 1)) << daemon().Output();
      EXPECT_TRUE(daemon().Prints("by a process that was not seen"));
    }
    Iptables("-t mangle -X KUBE-IPTABLES-HINT", "iptables-legacy");
    ASSERT_TRUE(MetricReaches("kube_iptables_agent_repair_latency_seconds_count", 1));
    EXPECT_EQ(Metric(kTotal), report ? 1 : 0);
  }
}

TEST_F(UnexpectedRulesTest, AWriterThatChangesOneAllTheTimeDoesNotFillTheLog) {
  Start({});
  std::string batch;
  for (int i = 0; i < 2000; ++i) {
    absl::StrAppend(&batch,
                    "flush chain ip filter OUTPUT\nadd rule ip filter OUTPUT ip saddr 10.0.",
                    i >> 8, ".", i & 255, " drop\n");
  }
  const TemporaryFile file(batch);
  // Two lines a commit.
  const std::string script =
      "while read flush && read add; do printf '%s\\n%s\\n' \"$flush\" \"$add\" | nft -f -; done "
      "< " +
      file.path();
  const BackgroundProgram writer({"/bin/sh", "-c", script});
  absl::SleepFor(absl::Seconds(5));
  EXPECT_GE(Metric(kTotal), 20) << "each that a check sees";
  EXPECT_LE(CountOf(kNews, daemon().Output()), 11) << daemon().Output();
  EXPECT_GE(CountOf(kNews, daemon().Output()), 10);
}

TEST_F(UnexpectedRulesTest, ARuleThatEndsWhatOursDoDoesNotFillTheLogEither) {
  Start({});
  Output({"/bin/sh", "-c",
          "for i in $(seq 24); do iptables-nft -I INPUT -j ACCEPT; sleep 0.15; iptables-nft -D "
          "INPUT -j ACCEPT; sleep 0.15; done"});
  EXPECT_THAT(CountOf("ShadowedJump: ", daemon().Output()), AllOf(Ge(10), Le(11)))
      << daemon().Output();
}

}  // namespace
}  // namespace kipt::testing
