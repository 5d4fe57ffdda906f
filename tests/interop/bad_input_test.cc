// SPDX-License-Identifier: Apache-2.0
//
// Whatever is wrong with flags, privileges or the node: a message that names it and says
// what to do, the right exit code, and a kernel in which nothing has changed.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/agent_fixture.h"
#include "tests/interop/refusal_fixture.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

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

TEST_F(BadInputTest, WithoutCapNetAdminSyncSaysSo) {
  for (const char* command : {"sync", "plan", "status"}) {
    SCOPED_TRACE(command);
    ExpectRefused(RunProgram({"/usr/bin/setpriv", "--bounding-set=-net_admin",
                              "--inh-caps=-net_admin", AgentProgram(), command}),
                  kExitFailed, {"CAP_NET_ADMIN"});
  }
}

TEST_F(BadInputTest, AnAllowListWithoutEndIsRefusedInLittleMemory) {
  const ProgramResult result = RunProgram(
      {"/usr/bin/prlimit", "--as=134217728", AgentProgram(), "audit", "--allow=/dev/zero"});
  ExpectRefused(result, kExitUsage, {"/dev/zero is larger than 1048576 bytes"});
}

TEST_F(BadInputTest, AnOrdinaryUserIsToldSo) {
  ExpectRefused(AgentAsNobody({"sync"}), kExitFailed, {"CAP_NET_ADMIN"});
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
