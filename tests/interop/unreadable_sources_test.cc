// SPDX-License-Identifier: Apache-2.0
//
// What the agent reads in addition to rules may be hidden from it: an error is not "none", and no
// answer gets safer by it.
#include <sys/mount.h>

#include "absl/types/span.h"
#include "tests/interop/retire_fixture.h"
#include "tests/support/in_place_of.h"

namespace kipt::testing {
namespace {

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
  const char* type = "tmpfs";
  const char* options = "";
  bool has_ipv6 = true;  // it is still known
};
constexpr Source kSources[] = {
    {"no settings", "/proc/sys"},
    {"no settings of IPv4", "/proc/sys/net/ipv4"},
    {"no settings of interfaces", "/proc/sys/net/ipv4/conf"},
    {"no settings of an interface", "/proc/sys/net/ipv4/conf/eth0"},
    // systemd's ProcSubset=pid.
    {"only processes in /proc", "/proc", "proc", "subset=pid"},
    {"no /proc", "/proc", "tmpfs", "", false},
};

class UnreadableSourcesTest : public RetireTest,
                              public ::testing::WithParamInterface<IptablesMode> {
 protected:
  void SetUp() override {
    RetireTest::SetUp();
    RunProgram({"ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1"});
  }

  static ProgramResult Command(std::vector<std::string> arguments) {
    arguments.push_back(absl::StrCat("--iptables-mode=", NameOf(GetParam())));
    return Agent(std::move(arguments));
  }
  // A program of the other mode sets kubelet's mark.
  static void MarkInTheOtherMode() {
    const bool nft = GetParam() == IptablesMode::kNft;
    const Iptables other = {.mode = nft ? IptablesMode::kLegacy : IptablesMode::kNft};
    other.Run({"-t", "nat", "-A", "PREROUTING", "-j", "MARK", "--set-xmark", "0x4000/0x4000"});
  }
  std::string Firewall() const { return iptables_.Run({"-S", "KUBE-FIREWALL"}).out; }

  const Iptables iptables_ = {.mode = GetParam()};
};

TEST_P(UnreadableSourcesTest, WhereRouteLocalnetCannotBeReadItMayBeOn) {
  for (const Source& row : kSources) {
    SCOPED_TRACE(row.name);
    Sync({.iptables = GetParam()});
    SetSysctl("ipv4/conf/eth0/route_localnet", "1");
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

TEST_P(UnreadableSourcesTest, RulesOfTheOtherModeThatCannotBeReadMaySetTheMark) {
  LeaveResidue(GetParam());
  MarkInTheOtherMode();
  for (const Source& row : kSources) {
    SCOPED_TRACE(row.name);
    SyncAndKeep(GetParam());
    {
      const Hidden hidden(row.path, row.type, row.options);
      Command({"retire", "--yes", "--ip-families=ipv4", "--host-root=/"});
    }
    EXPECT_EQ(iptables_.Run({"-t", "nat", "-S", "KUBE-POSTROUTING"}).exit_code, 0)
        << "its packets are masqueraded there";
  }
}

// The CNI configurations of a daemon in a container are the host's.
TEST_P(UnreadableSourcesTest, ADaemonInAContainerRetiresNothingAndReportsWhy) {
  LeaveResidue(GetParam());
  StartProgram({"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", AgentProgram(), "run",
                absl::StrCat("--iptables-mode=", NameOf(GetParam())), "--stale-chains=retire"});
  ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  EXPECT_TRUE(
      daemon().Prints("a CNI configuration may name it: CNI configurations: this process is "
                      "in a container (another pid namespace); give --host-root"))
      << daemon().Output();
  EXPECT_EQ(Metric("kube_iptables_agent_retired_total"), 0);
}

// k3s keeps its CNI configurations in a folder that the manifests do not mount.
TEST_P(UnreadableSourcesTest, AFolderThatIsNotMountedInAPodMayNameAChain) {
  LeaveResidue(GetParam());
  const auto retire = [&](const std::vector<std::string>& more = {}) {
    SyncAndKeep(GetParam());
    const ProgramResult result = Command(
        Words{"retire", "--yes", "--ip-families=ipv4", "--host-root=" + tree().Path("host")} +
        more);
    EXPECT_EQ(result.exit_code, kExitOk) << result;
    return iptables_.Run({"-t", "nat", "-S", "KUBE-MARK-MASQ"}).exit_code == 0 ? result.out : "";
  };
  tree().Directory("host/etc/cni/net.d");
  {
    const InPlaceOf part(cni_dir(), tree().Path("host/etc/cni/net.d"));
    const std::string kept = retire();
    EXPECT_THAT(kept, HasSubstr("not mounted here: " +
                                tree().Path("host/var/lib/rancher/k3s/agent/etc/cni/net.d, ")));
    EXPECT_THAT(kept, Not(HasSubstr(tree().Path("host/etc/cni/net.d"))));
    const ProgramResult audit = Command({"audit", "--host-root=" + tree().Path("host")});
    EXPECT_THAT(audit.out, HasSubstr("saved rules: " + tree().Path("host/etc/iptables/rules.v4")));
    EXPECT_EQ(retire({"--cni-conf-dir=" + tree().Path("host/etc/cni/net.d")}), "");
  }
  Kubelet(KubeletForm::k1_24, {.family = IpFamily::kIpv4, .mode = GetParam()});
  const InPlaceOf whole(tree().Path("host"), tree().Path("host"));
  const InPlaceOf part(cni_dir(), tree().Path("host/etc/cni/net.d"));
  EXPECT_THAT(retire(), HasSubstr("not mounted here: ")) << "it may be an emptyDir";
  for (const char* name : {"bin", "proc/self", "tmp"})
    tree().Directory(absl::StrCat("host/", name));
  EXPECT_EQ(retire(), "") << "what does not exist there does not exist on the node";
}

// As systemd and container engines hide it.
TEST_P(UnreadableSourcesTest, AnEmptyListOfSymbolsIsNoProofThatIptablesCanHoldNoRules) {
  const InPlaceOf hidden("/dev/null", "/proc/kallsyms");
  const AgentSettings settings = {.ownership_cleanup = false, .iptables = GetParam()};
  Words flags = settings.Flags();
  flags[0] += ",ConnLabelMarking=true";
  const ProgramResult plan = Agent(Words{"plan"} + flags);
  EXPECT_THAT(plan.out, HasSubstr("KUBE-MARK-MASQ"));
  EXPECT_THAT(plan.out, HasSubstr("KUBELET-MARK-MASQ"));
  EXPECT_THAT(plan.out, Not(HasSubstr("Impossible")));
  Sync(settings);
  ExpectNothingPlanned(settings);
}

struct FailedCall {
  const char* name;
  const char* error;
};

// Everything that `retire` asks about is claimed here, each by another source.
class FailedCallsTest : public UnreadableSourcesTest {
 protected:
  void SetUp() override {
    UnreadableSourcesTest::SetUp();
    LeaveResidue(GetParam());
    SyncAndKeep(GetParam());
    MarkInTheOtherMode();
    RunProgram({"ip", "rule", "add", "fwmark", "0x8000/0x8000", "lookup", "100"});
    SetSysctl("ipv4/conf/eth0/route_localnet", "1");
  }

  // What `retire` would remove, under `tracer`.
  Lines Removed(std::vector<std::string> tracer = {}) const {
    for (const std::string& argument :
         {AgentProgram(), std::string("retire"), "--cni-conf-dir=" + cni_dir(),
          absl::StrCat("--iptables-mode=", NameOf(GetParam())), std::string("--host-root=/"),
          std::string("--ip-families=ipv4"), std::string("--make-iptables-util-chains=false")}) {
      tracer.push_back(argument);
    }
    Lines lines;
    for (const absl::string_view line : absl::StrSplit(RunProgram(tracer).out, '\n')) {
      if (absl::StartsWith(line, "  - ")) lines.emplace(line);
    }
    return lines;
  }

  // Each call of that name fails once, and nothing else with it.
  void ExpectNothingMoreIsRemoved(const FailedCall& call) {
    const std::string trace = tree().Path("trace");
    const auto injected = [&](int nth) {
      return absl::StrCat("inject=", call.name, ":error=", call.error, ":when=", nth);
    };
    int nth = 0;
    do {
      ++nth;
      SCOPED_TRACE(injected(nth));
      const Lines removed = Removed({"strace", "-f", "-o", trace, "-e",
                                     absl::StrCat("trace=", call.name), "-e", injected(nth)});
      EXPECT_THAT(Without(removed, baseline_), IsEmpty()) << FileText(trace);
    } while (absl::StrContains(FileText(trace), "(INJECTED)"));
    EXPECT_GT(nth, 1) << call.name << " is never called";
  }

  void Walk(absl::Span<const FailedCall> calls) {
    const Lines more = Removed();
    std::ofstream(cni_dir() + "/10.conflist")
        << R"({"plugins": [{"type": "portmap", "externalSetMarkChain": "KUBE-MARK-MASQ"}]})";
    baseline_ = Removed();
    ASSERT_THAT(Without(more, baseline_), Not(IsEmpty())) << "a lost claim would go unnoticed";
    for (const FailedCall& call : calls) ExpectNothingMoreIsRemoved(call);
  }

 private:
  Lines baseline_;
};

TEST_P(FailedCallsTest, OfDirectoriesAndSocketsMakeNothingLookUnused) {
  Walk({{"socket", "EMFILE"}, {"getdents64", "EIO"}});
}

class FailedCallsLongTest : public FailedCallsTest {};

TEST_P(FailedCallsLongTest, MakeNothingLookUnused) {
  Walk({{"openat", "EACCES"},
        {"openat", "EMFILE"},
        {"read", "EIO"},
        {"recvfrom", "ENOBUFS"},
        {"sendto", "ENOMEM"},
        {"newfstatat", "EIO"},
        {"access", "EIO"}});
}

INSTANTIATE_TEST_SUITE_P(IptablesModes, FailedCallsTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });
INSTANTIATE_TEST_SUITE_P(IptablesModes, FailedCallsLongTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });
INSTANTIATE_TEST_SUITE_P(IptablesModes, UnreadableSourcesTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
