// SPDX-License-Identifier: Apache-2.0
//
// The gate goes on under a running daemon that retires what is stale, beside kube-proxy of every
// generation: one that serves, an idle one, none that comes later. What must be masqueraded is,
// what must be dropped is, before and after.
#include "tests/interop/retire_fixture.h"
#include "tests/interop/service_world.h"

namespace kipt::testing {
namespace {

constexpr char kGateOff[] = "featureGates: {IPTablesOwnershipCleanup: false}\n";

// Nothing answers for so long: what is let through arrives in a fraction of it.
constexpr absl::Duration kSilence = absl::Milliseconds(200);

class FlipTest : public RetireTest {
 protected:
  void WriteConfig(const std::string& more) const {
    std::ofstream(file_.path()) << kConfigHead << more;
  }
  void StartDaemon(IptablesMode mode) {
    std::vector<std::string> flags = RetireFlags(mode);
    flags.push_back("--config=" + file_.path());
    // What it could not retire when the gate went on it retires at the timer.
    flags.push_back("--iptables-sync-period=1s");
    StartOnly(flags);
    ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  }
  // All is as the daemon means to leave it.
  bool Settles(IptablesMode mode) const {
    std::vector<std::string> arguments = RetireFlags(mode);
    arguments.insert(arguments.begin(), "plan");
    arguments.push_back("--config=" + file_.path());
    return WaitUntil([&] { return Agent(arguments).exit_code == kExitOk; });
  }
  void Flip(IptablesMode mode) {
    WriteConfig("");
    EXPECT_TRUE(daemon().Prints("Using the new configuration (the file has changed)"));
    EXPECT_TRUE(Settles(mode)) << daemon().Output();
  }

  // What an idle kube-proxy writes: the save without any service.
  static std::string WithoutServices(const std::string& save) {
    std::string idle;
    for (absl::string_view line : absl::StrSplit(save, '\n')) {
      bool of_service = false;
      for (const char* mark :
           {"KUBE-SVC-", "KUBE-SEP-", "KUBE-FW-", "KUBE-XLB-", "KUBE-EXT-", "KUBE-SVL-", "/svc"}) {
        of_service |= absl::StrContains(line, mark);
      }
      if (!of_service) absl::StrAppend(&idle, line, "\n");
    }
    return idle;
  }

 private:
  TemporaryFile file_{absl::StrCat(kConfigHead, kGateOff)};
};

// What kube-proxy is when the gate goes on. Afterwards it has services in every case.
enum class AtTheFlip { kServes, kIdles, kIsNotThere };
constexpr AtTheFlip kAtTheFlip[] = {AtTheFlip::kServes, AtTheFlip::kIdles, AtTheFlip::kIsNotThere};
constexpr const char* kAtTheFlipNames[] = {"Serves", "Idles", "IsNotThere"};

struct Generation {
  const char* name;
  const char* version;
  // Since 1.25 kube-proxy drops by itself, where there is no kubelet for it.
  bool drops_by_itself;
};

struct FlipCase {
  Generation proxy;
  AtTheFlip at_the_flip;
  IptablesMode mode;
};

std::vector<FlipCase> FlipCases() {
  std::vector<FlipCase> cases;
  for (const Generation& proxy : {Generation{"KubeProxy1_17", "1.17", false},
                                  {"KubeProxy1_23", "1.23", false},
                                  {"KubeProxy1_24", "1.24", false},
                                  {"KubeProxy1_25", "1.25", true},
                                  {"KubeProxy1_28", "1.28", true}}) {
    const std::string version = proxy.version;
    const bool both_modes = version == "1.24" || version == "1.28";
    for (const AtTheFlip at_the_flip : kAtTheFlip) {
      // 1.17 cannot load a service where nobody makes KUBE-MARK-DROP: on any node.
      if (version == "1.17" && at_the_flip == AtTheFlip::kIsNotThere) continue;
      cases.push_back({proxy, at_the_flip, IptablesMode::kNft});
      if (both_modes) cases.push_back({proxy, at_the_flip, IptablesMode::kLegacy});
    }
  }
  return cases;
}

class PacketFlipTest : public FlipTest, public ::testing::WithParamInterface<FlipCase> {
 protected:
  static Iptables Ip4() { return {.mode = GetParam().mode}; }
  static void Load(const std::string& save) {
    const ProgramResult result = Ip4().Restore(OverWhatStands(save, Ip4()));
    EXPECT_EQ(result.exit_code, 0) << result;
  }
  static std::string Services() { return KubeProxySave(GetParam().proxy.version, Ip4()); }
  static void AddHostPort() {
    const ProgramResult result = Ip4().Restore(
        "*nat\n:CNI-DN-TEST - [0:0]\n"
        "-A PREROUTING -p tcp -m tcp --dport 8080 -j CNI-DN-TEST\n"
        "-A CNI-DN-TEST -j KUBE-MARK-MASQ\n"
        "-A CNI-DN-TEST -p tcp -j DNAT --to-destination 10.180.0.3:80\nCOMMIT\n");
    EXPECT_EQ(result.exit_code, 0) << result;
  }
  // By the rule that the generation drops with, once.
  static void ExpectDropped(ServiceWorld& world, const Call& call, const std::string& by) {
    const std::map<std::string, int> before = DropsOf(Ip4());
    EXPECT_EQ(world.Reaches(call, kSilence), kNobody);
    std::map<std::string, int> after = DropsOf(Ip4());
    for (const auto& [rule, count] : after) {
      const auto known = before.find(rule);
      const int dropped = count - (known == before.end() ? 0 : known->second);
      EXPECT_EQ(dropped, absl::StrContains(rule, by) ? 1 : 0) << rule;
    }
  }
  static void ExpectServices(ServiceWorld& world);
  static void ExpectDrops(ServiceWorld& world);
};

void PacketFlipTest::ExpectServices(ServiceWorld& world) {
  EXPECT_EQ(world.Reaches(kClusterIp, kPatience), kPodMasqueraded);
  EXPECT_EQ(world.Reaches(kClusterIpFromAPod, kPatience), kPodUnchanged);
  EXPECT_EQ(world.Reaches(kNodePort, kPatience), kPodMasqueraded);
  EXPECT_EQ(world.Reaches(kLoadBalancer, kPatience), kPodMasqueraded);
}

void PacketFlipTest::ExpectDrops(ServiceWorld& world) {
  const bool by_itself = GetParam().proxy.drops_by_itself;
  constexpr char kByKubelet[] = "kubernetes firewall for dropping marked packets";
  ExpectDropped(world, kLoadBalancerRefused, by_itself ? "not accepted by KUBE-FW-" : kByKubelet);
  ExpectDropped(world, kLocalNodePort, by_itself ? "svc2:p80 has no local endpoints" : kByKubelet);
}

TEST_P(PacketFlipTest, WhatMustBeMasqueradedIsAndWhatMustBeDroppedIs) {
  const auto& [proxy, at_the_flip, mode] = GetParam();
  ServiceWorld world;
  StartDaemon(mode);
  if (at_the_flip == AtTheFlip::kServes) Load(Services());
  if (at_the_flip == AtTheFlip::kIdles) Load(WithoutServices(Services()));
  EXPECT_TRUE(WaitUntil([&] { return IsReady(); })) << Readyz();
  if (at_the_flip == AtTheFlip::kServes) {
    ExpectServices(world);
    ExpectDrops(world);
  }

  Flip(mode);
  if (at_the_flip == AtTheFlip::kServes) {
    ExpectServices(world);
    ExpectDrops(world);
  } else if (at_the_flip == AtTheFlip::kIsNotThere) {
    EXPECT_EQ(Without(NatResidue(), LinesOf(Ip4())), NatResidue());
    Load(WithoutServices(Services()));
  }
  Load(Services());
  AddHostPort();
  EXPECT_EQ(world.Reaches(kHostPort, kPatience), kPodMasqueraded);

  EXPECT_EQ(Stop(SIGTERM), kExitOk);
  StartDaemon(mode);
  EXPECT_TRUE(Settles(mode)) << daemon().Output();
  ExpectServices(world);
  EXPECT_EQ(world.Reaches(kHostPort, kPatience), kPodMasqueraded);
  EXPECT_THAT(Without(LinesIn(Services()), LinesOf(Ip4())), IsEmpty()) << "kube-proxy's";
  if (at_the_flip == AtTheFlip::kIsNotThere && !proxy.drops_by_itself) {
    // It came to a node where nobody acts on the mark, as a fresh one with the gate on: the gate
    // must not go on before kube-proxy is 1.25.
    EXPECT_EQ(world.Reaches(kLoadBalancerRefused, kPatience), kHost);
    EXPECT_EQ(world.Reaches(kLocalNodePort, kPatience), kHost);
  } else {
    ExpectDrops(world);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PacketFlipTest, ::testing::ValuesIn(FlipCases()),
                         [](const auto& row) {
                           return absl::StrCat(
                               row.param.proxy.name,
                               kAtTheFlipNames[static_cast<size_t>(row.param.at_the_flip)],
                               TestNameOf(row.param.mode));
                         });

}  // namespace
}  // namespace kipt::testing
