// SPDX-License-Identifier: Apache-2.0
//
// Connection tracking that is nearly full: its heaviest users are named, and repairs are not later.
// The entries are made by conntrack(8), whose list is the oracle.
#include "agent/endpoints/conntrack.h"

#include <cstdint>

#include "absl/strings/str_format.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/turn_loop.h"

namespace kipt::testing {
namespace {

constexpr char kCulprit[] = "192.0.2.1";

uint64_t Limit() {
  uint64_t limit = 0;
  std::ifstream("/proc/sys/net/netfilter/nf_conntrack_max") >> limit;
  return limit;
}

// Half of the entries are the culprit's, to 20 destinations.
void Fill(uint64_t entries) {
  const TemporaryTree files;
  std::string lines;
  for (uint64_t i = 0; i < entries; ++i) {
    const std::string source =
        i % 2 == 0 ? kCulprit
                   : absl::StrFormat("10.%d.%d.%d", i >> 16 & 255, i >> 8 & 255, i & 255);
    absl::StrAppendFormat(&lines, "-A -s %s -d 198.51.100.%d -p udp --sport %d --dport %d -t 600\n",
                          source, i % 20, 1024 + i % 60000, 1 + i / 60000);
  }
  files.Write("entries", lines);
  const ProgramResult result = RunProgram({"conntrack", "-R", files.Path("entries")});
  ASSERT_EQ(result.exit_code, 0) << result;
  ASSERT_GE(agent::ReadConntrack()->entries, entries);
}

// What a watch reports in two checks: a timer's and one that is asked for.
class ConntrackWatchTest : public NetnsTest {
 protected:
  // `entries` and `limit` are the values in /proc.
  void Watch(uint64_t entries, uint64_t limit) {
    proc_.Write("sys/net/netfilter/nf_conntrack_count", absl::StrCat(entries, "\n"));
    proc_.Write("sys/net/netfilter/nf_conntrack_max", absl::StrCat(limit, "\n"));
    auto loop = agent::EventLoop::Create();
    ASSERT_THAT(loop, IsOk());
    watch_.reset();
    loop_ = *std::move(loop);
    watch_ = std::make_unique<agent::ConntrackWatch>(
        *loop_,
        agent::ConntrackWatch::Handlers{
            .report = [this](const auto& report) { reports_.push_back(report); },
            .failure = [](const absl::Status& status) { ADD_FAILURE() << status; }},
        proc_.root(), [this] { return now_; });
  }
  bool HasReports(size_t count, absl::Duration patience = absl::Seconds(5)) {
    return TurnUntil(
        *loop_, [&] { return reports_.size() >= count; }, patience);
  }

  const TemporaryTree proc_;
  agent::SteadyTime now_ = agent::SteadyNow();
  std::unique_ptr<agent::EventLoop> loop_;
  std::unique_ptr<agent::ConntrackWatch> watch_;
  std::vector<agent::ConntrackReport> reports_;
};

TEST_F(ConntrackWatchTest, ReadsNoEntriesBelowNinetyPercentAndWhereThereIsNoLimit) {
  for (const uint64_t limit : {1000U, 0U}) {
    Watch(899, limit);
    EXPECT_FALSE(HasReports(1, absl::Milliseconds(300)));
  }
}

TEST_F(ConntrackWatchTest, ReportsOnceInTenMinutesFromNinetyPercentOn) {
  Fill(100);
  Watch(900, 1000);
  ASSERT_TRUE(HasReports(1));
  EXPECT_EQ(reports_[0].entries, 100) << "of this network namespace";
  EXPECT_EQ(reports_[0].limit, 1000);
  now_ += absl::Minutes(10) - absl::Nanoseconds(1);
  watch_->Check();
  EXPECT_FALSE(HasReports(2, absl::Milliseconds(300)));
  now_ += absl::Nanoseconds(1);
  watch_->Check();
  EXPECT_TRUE(HasReports(2));
}

TEST_F(ConntrackWatchTest, CountsBothFamilies) {
  for (const char* source : {"2001:db8::7", "2001:db8::7", "2001:db8::8"}) {
    static int port = 1;
    const std::string to = std::to_string(++port);
    const ProgramResult made =
        RunProgram({"conntrack", "-I", "-s", source, "-d", "2001:db8:1::1", "-p", "tcp", "--sport",
                    to, "--dport", "443", "-t", "600", "--state", "ESTABLISHED"});
    ASSERT_EQ(made.exit_code, 0) << made;
  }
  Fill(4);
  Watch(1, 1);
  ASSERT_TRUE(HasReports(1));
  EXPECT_EQ(reports_[0].entries, 7);
  EXPECT_THAT(agent::ToString(reports_[0]),
              HasSubstr("by source: 192.0.2.1 (at least 2), 2001:db8::7 (at least 2), "));
  EXPECT_THAT(agent::ToString(reports_[0]),
              HasSubstr("by destination: 2001:db8:1::1 (at least 3), "));
}

class ConntrackFullTest : public DaemonTest {};

TEST_F(ConntrackFullTest, NamesItsTopSourceWhileDamageIsRepaired) {
  const uint64_t entries = Limit() * 91 / 100;
  ASSERT_NO_FATAL_FAILURE(Fill(entries));
  Start({});
  EXPECT_GE(Metric("kube_iptables_agent_conntrack_entries"), entries);
  EXPECT_EQ(Metric("kube_iptables_agent_conntrack_limit"), Limit());
  // Damage while the entries are read.
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Iptables{}.Run({"-t", "mangle", "-F"}).exit_code, 0);
    ASSERT_EQ(Iptables{}.Run({"-t", "mangle", "-X"}).exit_code, 0);
    ASSERT_TRUE(MetricReaches("kube_iptables_agent_drift_detected_total", i + 1))
        << daemon().Output();
  }
  const std::string named = absl::StrCat("entries (91 %). Most by source: ", kCulprit);
  EXPECT_TRUE(daemon().Prints(named, 1, absl::Seconds(30))) << daemon().Output();
  EXPECT_THAT(HttpGet(kMetricsPort, "/statusz").body,
              AllOf(HasSubstr(absl::StrCat(" of ", Limit(), " entries\n")), HasSubstr(named)));
}

}  // namespace
}  // namespace kipt::testing
