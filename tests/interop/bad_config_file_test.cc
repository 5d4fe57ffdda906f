// SPDX-License-Identifier: Apache-2.0
//
// Configuration files that must be refused, and kubelet's own, which must not.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/agent_fixture.h"
#include "tests/support/generation_listener.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

// What must be refused: with words, an exit code, and a kernel in which nothing changed.
class RefusalTest : public AgentTest {
 protected:
  // A node where there is something to spoil: the rules of kubelet 1.17, which any sync would
  // change.
  void SetUp() override {
    AgentTest::SetUp();
    if (HasFatalFailure()) return;
    Kubelet(KubeletForm::k1_17, {IpFamily::kIpv4});
    before_ = Ruleset();
    auto listener = GenerationListener::Create();
    ASSERT_THAT(listener, IsOk());
    listener_ = *std::move(listener);
  }

  static std::string Ruleset() { return Output({"/usr/sbin/nft", "-a", "list", "ruleset"}); }

  void ExpectRefused(const ProgramResult& result, int exit_code,
                     const std::vector<std::string>& said) {
    EXPECT_EQ(result.exit_code, exit_code) << result;
    for (const std::string& words : said) EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.out, "") << "errors belong on standard error";
    ExpectKernelUnchanged();
  }
  void ExpectKernelUnchanged() {
    EXPECT_THAT(listener_->Drain(), IsOkAndHolds(IsEmpty()));
    EXPECT_EQ(Ruleset(), before_);
  }

  std::unique_ptr<GenerationListener> listener_;
  std::string before_;
};

using BadConfigFileTest = RefusalTest;

struct FileRow {
  const char* name;
  std::string content;
  std::vector<std::string> said;
};
void PrintTo(const FileRow& row, std::ostream* stream) { *stream << row.name; }

constexpr char kKubelets[] =
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

std::string AllBytes() {
  std::string bytes;
  // A multiplicative generator: the same 4096 bytes every time.
  uint32_t state = 2463534242U;
  for (int i = 0; i < 4096; ++i) {
    state = state * 1664525U + 1013904223U;
    bytes.push_back(static_cast<char>(state >> 24));
  }
  return bytes;
}

std::vector<FileRow> BadFiles() {
  return {
      {"Tab",
       absl::StrCat(kConfigHead, "featureGates:\n\tIPTablesOwnershipCleanup: false\n"),
       {":4:"}},
      {"DuplicateKey",
       absl::StrCat(kConfigHead, "iptablesDropBit: 15\niptablesDropBit: 16\n"),
       {":4:", "iptablesDropBit"}},
      {"UnknownField",
       absl::StrCat(kConfigHead, "iptablesDropBits: 15\n"),
       {":3:", "iptablesDropBits"}},
      {"WrongType",
       absl::StrCat(kConfigHead, "iptablesDropBit: fifteen\n"),
       {":3:", "iptablesDropBit"}},
      {"WrongTypeList",
       absl::StrCat(kConfigHead, "iptablesDropBit: [15]\n"),
       {":3:", "iptablesDropBit"}},
      {"WrongTypeInKubeletsFile",
       absl::StrCat(kKubelets, "featureGates: yes please\n"),
       {":3:", "featureGates"}},
      {"GateOfTheWrongType",
       absl::StrCat(kConfigHead, "featureGates:\n  IPTablesOwnershipCleanup: 7\n"),
       {":4:", "IPTablesOwnershipCleanup"}},
      {"UnknownGateInOurKind",
       absl::StrCat(kConfigHead, "featureGates:\n  NodeSwap: true\n"),
       {"NodeSwap"}},
      {"LockedGateInKubeletsFile",
       absl::StrCat(kKubelets, "featureGates:\n  IPTablesOwnershipCleanup: maybe\n"),
       {":4:", "IPTablesOwnershipCleanup"}},
      {"BitOutOfRange",
       absl::StrCat(kConfigHead, "iptablesMasqueradeBit: 32\n"),
       {"32", "0 and 31"}},
      {"AnotherKind", "apiVersion: v1\nkind: Pod\n", {":1:", "KubeletConfiguration"}},
      {"NoKind", "iptablesDropBit: 15\n", {"apiVersion"}},
      {"RandomBytes", AllBytes(), {"config.yaml"}},
      {"Empty", "", {"config.yaml", "apiVersion"}},
      {"OnlyAComment", "# nothing\n", {"config.yaml", "apiVersion"}},
      {"BracketsThatNeverEnd", std::string(100'000, '['), {"config.yaml"}},
      {"AliasThatGrows", absl::StrCat(kConfigHead, "a: &a [x, x]\nb: [*a, *a]\n"), {"config.yaml"}},
      {"TwoDocuments", absl::StrCat(kConfigHead, "---\n", kConfigHead), {"config.yaml"}},
  };
}

class BadFileRowTest : public RefusalTest, public ::testing::WithParamInterface<FileRow> {};

TEST_P(BadFileRowTest, IsRefusedWithItsPathAndWhatIsWrong) {
  const TemporaryFile file(GetParam().content);
  std::vector<std::string> said = GetParam().said;
  said.push_back(file.path());
  ExpectRefused(Agent({"sync", absl::StrCat("--config=", file.path())}), kExitUsage, said);
}

INSTANTIATE_TEST_SUITE_P(Rows, BadFileRowTest, ::testing::ValuesIn(BadFiles()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_F(BadConfigFileTest, AFileThatMayNotBeReadIsRefused) {
  const TemporaryFile file(kConfigHead);
  ASSERT_EQ(chmod(file.path().c_str(), 0), 0);
  // Root reads everything; root without these two capabilities does not.
  ExpectRefused(RunProgram({"/usr/bin/setpriv", "--bounding-set=-dac_override,-dac_read_search",
                            "--inh-caps=-dac_override,-dac_read_search", AgentProgram(), "sync",
                            absl::StrCat("--config=", file.path())}),
                kExitUsage, {file.path(), "Permission denied"});
}

TEST_F(BadConfigFileTest, TheKubeletConfigurationOfARealNodeIsAccepted) {
  const std::string config = absl::StrCat("--config=", KIPT_KUBELET_CONFIG);
  EXPECT_EQ(Agent({"plan", config}).exit_code, kExitDifferences);
  ExpectKernelUnchanged();
  const ProgramResult sync = Agent({"sync", config});
  EXPECT_EQ(sync.exit_code, kExitOk) << sync;
  // The gate and the bits of the file count; makeIPTablesUtilChains speaks of kubelet only.
  const SavedRules from_file = SavedRules::Of({IpFamily::kIpv6});
  const Netns fresh = NewNetns();
  const InNetns in(fresh);
  Sync({.ownership_cleanup = false, .bits = {12, 13}});
  EXPECT_EQ(from_file, SavedRules::Of({IpFamily::kIpv6}));
}

TEST_F(BadConfigFileTest, WhoElseMayWriteItIsTold) {
  const TemporaryFile file(kConfigHead);
  struct Row {
    uid_t owner;
    gid_t group;
    mode_t mode;
    std::string says;
  };
  for (const Row& row : std::vector<Row>{{0, 0, 0664, ""},
                                         {0, 1000, 0644, ""},
                                         {0, 1000, 0664, "can be written by group 1000, and so"},
                                         {1000, 0, 0600, "can be written by user 1000, and so"}}) {
    ASSERT_EQ(chown(file.path().c_str(), row.owner, row.group), 0);
    ASSERT_EQ(chmod(file.path().c_str(), row.mode), 0);
    const ProgramResult result = Agent({"plan", "--config=" + file.path()});
    EXPECT_EQ(result.exit_code, kExitDifferences) << result;
    if (row.says.empty()) {
      EXPECT_THAT(result.err, Not(HasSubstr("can be written"))) << result;
    } else {
      EXPECT_THAT(result.err, HasSubstr(row.says)) << result;
    }
  }
}

// Whatever is wrong with flags, privileges or the node: a message that names it and says what to
// do, the right exit code, and a kernel in which nothing has changed.

class BadInputTest : public RefusalTest {};

// ---- flags ----

struct FlagsRow {
  const char* name;
  std::vector<std::string> flags;
  std::vector<std::string> said;
};
void PrintTo(const FlagsRow& row, std::ostream* stream) { *stream << row.name; }

constexpr char kGateOff[] = "--feature-gates=IPTablesOwnershipCleanup=false";

const FlagsRow kBadFlags[] = {
    {"MasqueradeBit32",
     {"--iptables-masquerade-bit=32"},
     {"invalid configuration: iptablesMasqueradeBit (--iptables-masquerade-bit) 32 must be between "
      "0 and 31, inclusive"}},
    {"DropBit32",
     {kGateOff, "--iptables-drop-bit=32"},
     {"invalid configuration: iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, "
      "inclusive"}},
    {"DropBitMinus1",
     {kGateOff, "--iptables-drop-bit=-1"},
     {"invalid configuration: iptablesDropBit (--iptables-drop-bit) -1 must be between 0 and 31, "
      "inclusive"}},
    {"DropBitX", {"--iptables-drop-bit=x"}, {"invalid argument \"x\"", "--iptables-drop-bit"}},
    {"DropBitMissing", {"--iptables-drop-bit"}, {"flag needs an argument: --iptables-drop-bit"}},
    {"EqualBits",
     {kGateOff, "--iptables-masquerade-bit=7", "--iptables-drop-bit=7"},
     {"iptables-masquerade-bit and iptables-drop-bit must be different"}},
    {"UnknownGate",
     {"--feature-gates=IPTablesOwnershipClean=true"},
     {"unrecognized feature gate: IPTablesOwnershipClean"}},
    {"GateBeforeItsTime",
     {"--emulated-version=1.24", kGateOff},
     {"unrecognized feature gate: IPTablesOwnershipCleanup"}},
    {"LockedGate",
     {"--emulated-version=1.28", kGateOff},
     {"cannot set feature gate IPTablesOwnershipCleanup to false, feature is locked to true"}},
    {"RemovedGate",
     {"--emulated-version=1.30", kGateOff},
     {"unrecognized feature gate: IPTablesOwnershipCleanup"}},
    {"GateWithoutValue",
     {"--feature-gates=IPTablesOwnershipCleanup"},
     {"malformed pair, expect string=bool"}},
    {"GateWithAnotherValue",
     {"--feature-gates=IPTablesOwnershipCleanup=maybe"},
     {"invalid value of IPTablesOwnershipCleanup: maybe"}},
    {"UnknownFlag", {"--iptables-drop-byte=1"}, {"unknown flag: --iptables-drop-byte"}},
    {"RemovedFlag",
     {"--emulated-version=1.31", "--iptables-drop-bit=15"},
     {"unknown flag: --iptables-drop-bit"}},
    {"Version1_23", {"--emulated-version=1.23"}, {"1.23", "1.24"}},
    {"Version2_0", {"--emulated-version=2.0"}, {"2.0"}},
    {"VersionBanana", {"--emulated-version=banana"}, {"banana"}},
    {"FamilyIpx", {"--ip-families=ipx"}, {"ipx", "ipv4"}},
    {"OutputYaml", {"--output=yaml"}, {"yaml", "json"}},
    {"NetnsMissing", {"--netns=/nonexistent"}, {"/nonexistent"}},
    {"NetnsNoNamespace", {"--netns=/etc/passwd"}, {"/etc/passwd"}},
    {"ConfigMissing", {"--config=/nonexistent.yaml"}, {"/nonexistent.yaml"}},
    {"ConfigIsADirectory", {"--config=/etc"}, {"/etc"}},
    {"ConfigIsADevice", {"--config=/dev/zero"}, {"/dev/zero"}},
    {"WordBehindTheCommand", {"now"}, {"now"}},
};

class BadFlagsTest : public RefusalTest, public ::testing::WithParamInterface<FlagsRow> {};

TEST_P(BadFlagsTest, AreRefusedByEveryCommandThatReadsThem) {
  for (const char* command : {"sync", "plan", "status"}) {
    SCOPED_TRACE(command);
    std::vector<std::string> arguments = GetParam().flags;
    arguments.insert(arguments.begin(), command);
    ExpectRefused(Agent(arguments), kExitUsage, GetParam().said);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, BadFlagsTest, ::testing::ValuesIn(kBadFlags),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_F(BadInputTest, ACommandThatDoesNotExistIsRefused) {
  ExpectRefused(Agent({"synch"}), kExitUsage, {"synch"});
}

// ---- privileges and the node ----

TEST_F(BadInputTest, AnAllowListWithoutEndIsRefusedInLittleMemory) {
  const ProgramResult result = RunProgram(
      {"/usr/bin/prlimit", "--as=134217728", AgentProgram(), "audit", "--allow=/dev/zero"});
  ExpectRefused(result, kExitUsage, {"/dev/zero is larger than 1048576 bytes"});
}

class NoIpv6Test : public RefusalTest {
 protected:
  // A node booted with ipv6.disable=1 has no if_inet6, but a list of interfaces; here the directory
  // it is in is hidden from this one process, in a mount namespace of its own.
  // (`--propagation=private` would want the root directory to be a mount point, which it is not in
  // a plain chroot.)
  static ProgramResult AgentWithoutIpv6(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {
        "/usr/bin/unshare",
        "--mount",
        "--propagation=unchanged",
        "/bin/sh",
        "-c",
        "mount --make-rprivate /proc && mount -t tmpfs none /proc/$$/task/$$/net && "
        ": >/proc/$$/task/$$/net/dev && exec \"$@\"",
        "sh",
        AgentProgram()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return RunProgram(std::move(command));
  }
};

TEST_F(NoIpv6Test, AnExplicitIpv6IsAnError) {
  for (const char* families : {"ipv6", "ipv4,ipv6"}) {
    for (const char* command : {"sync", "plan"}) {
      SCOPED_TRACE(command);
      const ProgramResult result =
          AgentWithoutIpv6({command, absl::StrCat("--ip-families=", families)});
      ExpectRefused(result, kExitUsage, {"IPv6", "--ip-families", "ipv6.disable=0"});
    }
  }
}

TEST_F(NoIpv6Test, AutoMeansIpv4Only) {
  const ProgramResult result = AgentWithoutIpv6({"sync", kGateOff});
  EXPECT_EQ(result.exit_code, kExitOk) << result;
  EXPECT_THAT(Output({"/usr/sbin/nft", "list", "tables"}),
              AllOf(HasSubstr("table ip filter"), Not(HasSubstr("ip6"))));
}

}  // namespace
}  // namespace kipt::testing
