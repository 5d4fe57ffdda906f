// SPDX-License-Identifier: Apache-2.0
//
// What the agent reads in addition to rules may be hidden from it: an error is not "none", and no
// answer gets safer by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/retire_fixture.h"

namespace kipt::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A mount that hides a source from this test's mount namespace while it exists.
class Hidden {
 public:
  Hidden(const char* path, const char* type, const char* options) : path_(path) {
    EXPECT_EQ(mount("none", path, type, 0, options), 0) << path;
  }
  ~Hidden() { EXPECT_EQ(umount2(path_, MNT_DETACH), 0) << path_; }
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;

 private:
  const char* const path_;
};

struct Source {
  const char* name;
  const char* path;
  const char* type;
  const char* options;
  bool has_ipv6;  // it is still known
};
constexpr Source kSources[] = {
    {"no settings", "/proc/sys", "tmpfs", "", true},
    // systemd's ProcSubset=pid.
    {"only processes in /proc", "/proc", "proc", "subset=pid", true},
    {"no /proc", "/proc", "tmpfs", "", false},
};

class UnreadableSourcesTest : public RetireTest,
                              public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static ProgramResult Command(std::vector<std::string> arguments) {
    arguments.push_back(absl::StrCat("--iptables-mode=", NameOf(GetParam())));
    return Agent(std::move(arguments));
  }
  std::string Firewall() const { return iptables_.Run({"-S", "KUBE-FIREWALL"}).out; }

  const Iptables iptables_ = {.mode = GetParam()};
};

TEST_P(UnreadableSourcesTest, WhereRouteLocalnetCannotBeReadItMayBeOn) {
  for (const Source& row : kSources) {
    SCOPED_TRACE(row.name);
    Sync({.iptables = GetParam()});
    SetSysctl("ipv4/conf/all/route_localnet", "1");
    {
      const Hidden hidden(row.path, row.type, row.options);
      Command({"retire", "--yes", "--make-iptables-util-chains=false", "--ip-families=ipv4"});
    }
    EXPECT_THAT(Firewall(), HasSubstr("127.0.0.0/8")) << "retired, and the node is open";
    iptables_.Run({"-F", "KUBE-FIREWALL"});
    const Hidden hidden(row.path, row.type, row.options);
    for (const char* const command : {"status", "audit"}) {
      const ProgramResult result = Command({command, "--ip-families=ipv4"});
      EXPECT_THAT(result.out, Not(HasSubstr("is nowhere 1"))) << command;
      // iptables-legacy needs /proc for its namespace: an error.
      if (result.exit_code == kExitFailed) continue;
      EXPECT_EQ(result.exit_code, kExitDifferences) << result;
      EXPECT_THAT(result.out, HasSubstr("route_localnet may be 1")) << command;
    }
    EXPECT_NE(
        Command({"check", "--ip-families=ipv4", "--make-iptables-util-chains=false"}).exit_code,
        kExitOk);
  }
}

TEST_P(UnreadableSourcesTest, WithoutProcNoFamilyIsLeftOutSilently) {
  for (const Source& row : kSources) {
    SCOPED_TRACE(row.name);
    const Hidden hidden(row.path, row.type, row.options);
    const ProgramResult sync = Command({"sync"});
    // The programs of iptables-legacy cannot list tables that /proc does not show: an error.
    if (sync.exit_code == kExitFailed && GetParam() == IptablesMode::kLegacy) continue;
    EXPECT_EQ(sync.exit_code, row.has_ipv6 ? kExitOk : kExitUsage) << sync;
    EXPECT_THAT(
        sync.exit_code == kExitOk ? sync.out : sync.err,
        HasSubstr(row.has_ipv6 ? "ip6" : "cannot tell whether this network namespace has IPv6"));
  }
}

TEST_P(UnreadableSourcesTest, CniConfigurationsThatCannotBeReadMayNameAChain) {
  LeaveResidue(GetParam());
  std::ofstream(cni_dir() + "/10.conflist")
      << R"({"plugins": [{"type": "portmap", "externalSetMarkChain": "KUBE-MARK-MASQ"}]})";
  for (const Source& row : kSources) {
    SCOPED_TRACE(row.name);
    SyncAndKeep(GetParam());
    {
      const Hidden hidden(row.path, row.type, row.options);
      Command({"retire", "--yes", "--ip-families=ipv4", "--cni-conf-dir=" + cni_dir()});
    }
    EXPECT_EQ(iptables_.Run({"-t", "nat", "-S", "KUBE-MARK-MASQ"}).exit_code, 0) << "a pod uses it";
  }
}

INSTANTIATE_TEST_SUITE_P(IptablesModes, UnreadableSourcesTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
