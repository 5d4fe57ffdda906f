// SPDX-License-Identifier: Apache-2.0
//
// Surveys of the legacy backend with the real iptables-legacy: they say what iptables-legacy-save
// prints, line by line, and leave nothing behind.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/process/command.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/private_run.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using netlink::Backend;
using netlink::ChainId;
using netlink::Family;
using netlink::Survey;
using netlink::SurveyRule;
using netlink::Table;
using netlink::TableId;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string TableNames() {
  return Contents("/proc/thread-self/net/ip_tables_names") + "/" +
         Contents("/proc/thread-self/net/ip6_tables_names");
}

// The names of the modules only: their use counts move with everything.
std::string Modules() {
  std::string names;
  for (const absl::string_view line : absl::StrSplit(Contents("/proc/modules"), '\n')) {
    absl::StrAppend(&names, line.substr(0, line.find(' ')), "\n");
  }
  return names;
}

// To the discard port of this namespace's loopback.
void SendOnePacket() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(sendto(fd, "x", 1, 0, reinterpret_cast<sockaddr*>(&address), sizeof address), 1);
  close(fd);
}

// Programs that are counted.
class CountingRunner : public agent::CommandRunner {
 public:
  absl::StatusOr<agent::CommandResult> Run(const agent::CommandRequest& request) override {
    if (request.arguments != std::vector<std::string>{"--version"}) ++runs;
    return real_->Run(request);
  }
  int runs = 0;

 private:
  std::unique_ptr<agent::CommandRunner> real_ = agent::NewCommandRunner();
};

std::string SavedBy(Family family) {
  return RunProgram(
             {family == Family::kIPv4 ? "iptables-legacy-save" : "ip6tables-legacy-save", "-c"})
      .out;
}

// Each rule of a save as "ip nat CHAIN [1:2] TEXT", in the order of its chain; each chain as
// "ip nat CHAIN POLICY".
std::multiset<std::string> LinesOf(Family family, const std::string& save) {
  std::multiset<std::string> lines;
  std::string table;
  std::map<std::string, int> count;
  for (const absl::string_view line : absl::StrSplit(save, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
    if (absl::StartsWith(line, "*")) {
      table = absl::StrCat(netlink::FamilyName(family), " ", line.substr(1), " ");
      count.clear();
    } else if (absl::StartsWith(line, ":")) {
      lines.insert(absl::StrCat(table, words[0].substr(1), " ", words[1]));
    } else if (absl::StartsWith(line, "[")) {
      lines.insert(absl::StrCat(table, words[2], " ", ++count[words[2]], " ", words[0], " ",
                                words.size() > 3 ? words[3] : ""));
    }
  }
  return lines;
}

std::multiset<std::string> LinesOf(const Survey& survey) {
  std::multiset<std::string> lines;
  for (const auto& [table, chains] : survey.tables) {
    for (const auto& [name, chain] : chains) {
      const std::string place = absl::StrCat(ToString(table), " ", name, " ");
      lines.insert(absl::StrCat(place, chain.base ? chain.policy : "-"));
      int count = 0;
      for (const SurveyRule& rule : chain.rules) {
        lines.insert(absl::StrCat(place, ++count, " [", rule.counters.packets, ":",
                                  rule.counters.bytes, "] ", ToString(table, rule)));
      }
    }
  }
  return lines;
}

class LegacySurveyKernelTest : public NetnsTest {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (!HasFatalFailure()) private_run_.emplace();
  }

  std::unique_ptr<Backend> Open() {
    auto backend = agent::NewIptablesLegacyBackend(&runner_, {});
    EXPECT_THAT(backend, IsOk());
    return backend.ok() ? *std::move(backend) : nullptr;
  }
  static Survey Take(Backend& backend) {
    absl::StatusOr<Survey> survey = backend.TakeSurvey({});
    EXPECT_THAT(survey, IsOk());
    return survey.ok() ? *std::move(survey) : Survey{};
  }
  static void Load(Family family, const std::string& text) {
    const ProgramResult result = RunProgram(
        {family == Family::kIPv4 ? "iptables-legacy-restore" : "ip6tables-legacy-restore", "-c"},
        text);
    ASSERT_EQ(result.exit_code, 0) << result;
  }

  CountingRunner runner_;

 private:
  std::optional<PrivateRun> private_run_;
};

TEST_F(LegacySurveyKernelTest, CreatesNoTableLoadsNoModuleAndRunsNoProgramWithoutTables) {
  auto backend = Open();
  const std::string tables = TableNames();
  const std::string modules = Modules();
  EXPECT_THAT(Take(*backend).tables, IsEmpty());
  EXPECT_EQ(runner_.runs, 0);
  EXPECT_EQ(TableNames(), tables);
  EXPECT_EQ(Modules(), modules);
}

TEST_F(LegacySurveyKernelTest, CreatesNoTableBesideThoseThatExist) {
  ASSERT_EQ(RunProgram({"iptables-legacy", "-t", "raw", "-N", "X"}).exit_code, 0);
  auto backend = Open();
  const std::string tables = TableNames();
  const std::string modules = Modules();
  ASSERT_EQ(tables, "raw\n/");
  const Survey survey = Take(*backend);
  EXPECT_EQ(survey.tables.size(), 1U);
  EXPECT_EQ(survey.tables.count({"ip", "raw"}), 1U);
  EXPECT_EQ(runner_.runs, 1) << "IPv6 has no table";
  EXPECT_EQ(TableNames(), tables);
  EXPECT_EQ(Modules(), modules);
}

TEST_F(LegacySurveyKernelTest, SaysWhatIptablesSavePrintsOfCapturedRulesets) {
  int loaded = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KIPT_RULESETS_DIR)) {
    const std::string name = entry.path().filename();
    if (!absl::EndsWith(name, "-legacy.save")) continue;
    SCOPED_TRACE(name);
    ++loaded;
    const Family family = absl::StrContains(name, "-v6") ? Family::kIPv6 : Family::kIPv4;
    ASSERT_NO_FATAL_FAILURE(Load(family, Contents(entry.path())));
    auto backend = Open();
    std::multiset<std::string> wanted = LinesOf(Family::kIPv4, SavedBy(Family::kIPv4));
    wanted.merge(LinesOf(Family::kIPv6, SavedBy(Family::kIPv6)));
    EXPECT_GT(wanted.size(), 10U);
    EXPECT_EQ(LinesOf(Take(*backend)), wanted);
  }
  EXPECT_EQ(loaded, 10);
}

TEST_F(LegacySurveyKernelTest, SaysWhatIptablesSavePrintsOfOtherPeoplesRules) {
  for (const Family family : netlink::kFamilies) {
    Load(family,
         "*raw\n:PREROUTING ACCEPT [1:2]\n[3:4] -A PREROUTING -i lo -j NOTRACK\nCOMMIT\n"
         "*security\n:INPUT ACCEPT [0:0]\nCOMMIT\n"
         "*mangle\n:PREROUTING ACCEPT [0:0]\n:DIVERT - [0:0]\n"
         "[5:6] -A PREROUTING -p tcp -m socket --transparent -j DIVERT\n"
         "[7:8] -A DIVERT -j MARK --set-xmark 0x1/0xffffffff\n"
         "[9:10] -A PREROUTING -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff\nCOMMIT\n"
         "*filter\n:INPUT DROP [7:420]\n:X - [0:0]\n"
         "[18446744073709551615:1] -A INPUT -m comment --comment \"a \\\"b\\\" [1:2] -j X\" -g X\n"
         "[0:0] -A X\n[0:0] -A X -m mark ! --mark 0x8000/0x8000 -m limit --limit 5/min -j LOG "
         "--log-prefix \"-j DROP \"\nCOMMIT\n");
    if (HasFatalFailure()) return;
  }
  auto backend = Open();
  std::multiset<std::string> wanted = LinesOf(Family::kIPv4, SavedBy(Family::kIPv4));
  wanted.merge(LinesOf(Family::kIPv6, SavedBy(Family::kIPv6)));
  const Survey survey = Take(*backend);
  EXPECT_EQ(LinesOf(survey), wanted);
  EXPECT_EQ(survey.tables.size(), 8U);
  const auto& divert = survey.tables.at({"ip6", "mangle"}).at("DIVERT");
  EXPECT_EQ(MarksSet(divert.rules.at(0)), 1U);
  EXPECT_EQ(MarksSet(survey.tables.at({"ip", "mangle"}).at("PREROUTING").rules.at(1)), 0xffU);
  EXPECT_EQ(MarksTested(survey.tables.at({"ip", "filter"}).at("X").rules.at(1)), 0x8000U);
}

TEST_F(LegacySurveyKernelTest, KeepsTheGenerationWhileOnlyCountersMove) {
  ASSERT_EQ(RunProgram({"iptables-legacy", "-A", "OUTPUT", "-o", "lo", "-j", "ACCEPT"}).exit_code,
            0);
  auto backend = Open();
  const ChainId output{Family::kIPv4, Table::kFilter, "OUTPUT"};
  const ChainId output6{Family::kIPv6, Table::kFilter, "OUTPUT"};
  const Survey before = Take(*backend);
  SendOnePacket();
  const Survey after = Take(*backend);
  const auto packets = [](const Survey& survey) {
    return survey.tables.at({"ip", "filter"}).at("OUTPUT").rules.at(0).counters.packets;
  };
  EXPECT_GT(packets(after), packets(before));
  EXPECT_EQ(after.generation, before.generation);
  const absl::StatusOr<netlink::Snapshot> read =
      backend->Read({{.chain = output}, {.chain = output6}});
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->generation, after.generation);
  ASSERT_NE(read->Find(output), nullptr);
  EXPECT_EQ(read->Find(output)->rules.at(0).counters.packets, packets(after));
}

}  // namespace
}  // namespace kipt::testing
