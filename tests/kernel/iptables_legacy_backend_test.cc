// SPDX-License-Identifier: Apache-2.0
//
// The iptables-legacy backend on the real programs, with others that use the same lock; its surveys
// equal what iptables-legacy-save prints, line by line. Each test has a network namespace and a
// /run of its own: the machine's lock is never touched.
#include "agent/xtables/iptables_legacy_backend.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "agent/process/command.h"
#include "tests/kernel/nft_fixture.h"

namespace kipt::testing::iptables_legacy_backend_test {
namespace {

using agent::CommandRequest;
using agent::CommandResult;
using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

constexpr char kLock[] = "/run/xtables.lock";
const ChainId kUser{Family::kIPv4, Table::kFilter, "USER"};
const ChainId kUser6{Family::kIPv6, Table::kFilter, "USER"};
const ChainId kNat{Family::kIPv4, Table::kNat, "NATUSER"};

// The real programs, and something else that happens just before each write.
class DisturbedRunner : public agent::CommandRunner {
 public:
  absl::StatusOr<CommandResult> Run(const CommandRequest& request) override {
    if (disturb && !request.input.empty()) disturb();
    return real_->Run(request);
  }
  std::function<void()> disturb;

 private:
  std::unique_ptr<agent::CommandRunner> real_ = agent::NewCommandRunner();
};

class LegacyBackendKernelTest : public PrivateRunTest {
 protected:
  std::unique_ptr<Backend> Open() {
    auto backend = agent::NewIptablesLegacyBackend(&runner_, {});
    EXPECT_THAT(backend, IsOk());
    return backend.ok() ? *std::move(backend) : nullptr;
  }

  static Snapshot Read(Backend& backend) {
    absl::StatusOr<Snapshot> snapshot =
        backend.Read({{.chain = kUser}, {.chain = kUser6}, {.chain = kNat}});
    EXPECT_THAT(snapshot, IsOk());
    return snapshot.ok() ? *std::move(snapshot) : Snapshot{};
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
  static Transaction Adding(Backend& backend, const std::string& comment) {
    return {.generation = Read(backend).generation,
            .operations = {
                CreateChain{kUser},
                AddRule{.chain = kUser, .rule = Rule{.comment = comment, .target = Drop{}}}}};
  }

  DisturbedRunner runner_;
};

// Both namespaces are empty, so only the check can detect the wrong one.
TEST_F(LegacyBackendKernelTest, RefusesEverythingFromAThreadInAnotherNamespace) {
  auto here = Open();
  const Transaction transaction = Adding(*here, "here");
  std::thread([&] {
    const absl::StatusOr<Netns> other = Netns::Create();
    ASSERT_THAT(other, IsOk());
    ASSERT_THAT(other->Enter(), IsOk());
    const auto refused =
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another network namespace"));
    EXPECT_THAT(here->Apply(transaction), refused);
    EXPECT_EQ(FileText("/proc/thread-self/net/ip_tables_names"), "");
    EXPECT_THAT(here->Read({}), refused);
    EXPECT_THAT(here->TakeSurvey(nullptr), refused);
    EXPECT_THAT(here->Watch(netlink::WatchMode::kEvents), refused);
  }).join();
  EXPECT_THAT(here->Apply(transaction), IsOk()) << "nothing was done";
}

TEST_F(LegacyBackendKernelTest, NamesTheFaultOfTheLockFile) {
  auto backend = Open();
  const Transaction transaction = Adding(*backend, "a");
  ASSERT_EQ(mkdir(kLock, 0755), 0);
  EXPECT_THAT(backend->Apply(transaction),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("FileOrCreate")));
  ASSERT_EQ(rmdir(kLock), 0);
  ASSERT_EQ(mount(nullptr, "/run", nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  EXPECT_THAT(backend->Apply(transaction),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("mount the host's file")));
  ASSERT_EQ(mount(nullptr, "/run", nullptr, MS_REMOUNT, "mode=755"), 0);
  EXPECT_EQ(Read(*backend).Find(kUser), nullptr);
  EXPECT_THAT(backend->Apply(transaction), IsOk()) << "a missing file is made";
  // A file that exists on a read-only file system can be locked.
  ASSERT_EQ(mount(nullptr, "/run", nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  EXPECT_THAT(backend->Apply(Adding(*backend, "b")), IsOk());
}

TEST_F(LegacyBackendKernelTest, LetsNoProgramWriteBetweenTheSecondReadAndTheWrite) {
  auto backend = Open();
  ProgramResult other;
  runner_.disturb = [&] { other = RunProgram({"iptables-legacy", "-w", "1", "-N", "FOREIGN"}); };
  EXPECT_THAT(backend->Apply(Adding(*backend, "a")), IsOk());
  EXPECT_EQ(other.exit_code, 4) << other;
  EXPECT_NE(RunProgram({"iptables-legacy", "-S", "FOREIGN"}).exit_code, 0);
}

TEST_F(LegacyBackendKernelTest, MakesAdditionsWhateverElseHasChangedIfItMay) {
  auto backend = Open();
  auto other = Open();
  ASSERT_THAT(backend->Apply(Adding(*backend, "a")), IsOk());
  const struct {
    std::string name;
    std::optional<netlink::RuleHandle> before;
    std::vector<std::string> others;
    absl::StatusCode result;
  } rows[] = {
      {"another table", 2, {"-t", "nat", "-N", "OTHER"}, absl::StatusCode::kOk},
      {"another chain", 2, {"-A", "INPUT", "-j", "DROP"}, absl::StatusCode::kOk},
      {"the number is another rule's",
       2,
       {"-I", "USER", "-j", "ACCEPT"},
       absl::StatusCode::kAborted},
      {"it would be the only one", std::nullopt, {"-F", "USER"}, absl::StatusCode::kAborted},
      {"at the front", 1, {"-I", "USER", "-j", "ACCEPT"}, absl::StatusCode::kOk},
      {"it is there",
       1,
       {"-A", "USER", "-m", "comment", "--comment", "it is there", "-j", "DROP"},
       absl::StatusCode::kAborted},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    ASSERT_THAT(backend->Apply(Adding(*backend, "last")), IsOk());
    Transaction late = Adding(*backend, row.name);
    std::get<AddRule>(late.operations.back()).before = row.before;
    std::vector<std::string> command = {"iptables-legacy", "-w"};
    command.insert(command.end(), row.others.begin(), row.others.end());
    ASSERT_EQ(RunProgram(command).exit_code, 0);
    late.despite_changes = true;
    const size_t before = Read(*other).Find(kUser)->rules.size();
    EXPECT_THAT(backend->Apply(late), StatusIs(row.result));
    const size_t made = row.result == absl::StatusCode::kOk ? 1 : 0;
    EXPECT_THAT(Read(*other).Find(kUser)->rules, SizeIs(before + made));
  }
}

TEST_F(LegacyBackendKernelTest, LeavesPoliciesAndOtherPeoplesRulesAndCountersAlone) {
  ASSERT_NO_FATAL_FAILURE(
      Load(Family::kIPv4,
           "*filter\n:INPUT DROP [5:500]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
           ":FOREIGN - [0:0]\n[3:300] -A FOREIGN -s 10.0.0.0/8 -j ACCEPT\nCOMMIT\n"));
  auto backend = Open();
  ASSERT_THAT(backend->Apply(Adding(*backend, "it's \"quoted\"")), IsOk());
  // Every write of iptables-legacy loses the counters of policies, so they are not compared.
  const ProgramResult saved = RunProgram({"iptables-legacy-save", "--counters"});
  EXPECT_THAT(saved.out, AllOf(HasSubstr(":INPUT DROP ["),
                               HasSubstr(R"(--comment "it\'s \"quoted\"" -j DROP)"),
                               HasSubstr("[3:300] -A FOREIGN -s 10.0.0.0/8 -j ACCEPT\n")));
}

std::string SavedBy(Family family) {
  return RunProgram(
             {family == Family::kIPv4 ? "iptables-legacy-save" : "ip6tables-legacy-save", "-c"})
      .out;
}

void ExpectWhatIptablesSaves(const Survey& survey) {
  for (const Family family : netlink::kFamilies) {
    EXPECT_EQ(TablesOf(ToString(survey), FamilyName(family), /*policies=*/true),
              TablesOf(SavedBy(family), "", /*policies=*/true));
  }
}

TEST_F(LegacyBackendKernelTest, SpellsCapturedRulesetsAsIptablesSave) {
  int loaded = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KIPT_RULESETS_DIR)) {
    const std::string name = entry.path().filename();
    if (!absl::StrContains(name, "-A-")) continue;
    SCOPED_TRACE(name);
    ++loaded;
    const Family family = absl::StrContains(name, "-v6") ? Family::kIPv6 : Family::kIPv4;
    ASSERT_NO_FATAL_FAILURE(Load(family, FileText(entry.path())));
    auto backend = Open();
    EXPECT_GT(SavedBy(family).size(), 1000U);
    ExpectWhatIptablesSaves(Take(*backend));
  }
  EXPECT_EQ(loaded, 17);
}

TEST_F(LegacyBackendKernelTest, SpellsForeignRulesAsIptablesSave) {
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
  const Survey survey = Take(*backend);
  ExpectWhatIptablesSaves(survey);
  EXPECT_EQ(survey.tables.size(), 8U);
  const auto& divert = survey.tables.at({"ip6", "mangle"}).at("DIVERT");
  EXPECT_EQ(MarksSet(divert.rules.at(0)), 1U);
  EXPECT_EQ(MarksSet(survey.tables.at({"ip", "mangle"}).at("PREROUTING").rules.at(1)), 0xffU);
  EXPECT_EQ(MarksTested(survey.tables.at({"ip", "filter"}).at("X").rules.at(1)), 0x8000U);
}

}  // namespace
}  // namespace kipt::testing::iptables_legacy_backend_test
