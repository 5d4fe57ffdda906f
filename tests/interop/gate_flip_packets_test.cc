// SPDX-License-Identifier: Apache-2.0
//
// Packets that never cease, while IPTablesOwnershipCleanup is switched back and forth and what is
// stale is retired: no martian comes in, and nothing that a third party has marked leaves with the
// address of its sender.
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/interop/packet_world.h"
#include "tests/support/matchers.h"

namespace kipt::testing {
namespace {

constexpr int kPerSecond = 2000;
constexpr uint16_t kMartianPort = 4001;
constexpr uint16_t kServicePort = 4002;

constexpr char kHead[] =
    "apiVersion: kube-iptables-agent/v1alpha1\nkind: KubeIPTablesAgentConfiguration\n";

// What of the martians came to the node, before iptables sees them.
constexpr char kWitness[] = R"(
table inet observer {
  counter martians { }
  chain arrived {
    type filter hook prerouting priority -400
    iifname "outside" ip daddr 127.0.0.0/8 counter name martians
  }
}
)";

// Who beside kubelet has packets masqueraded.
enum class ThirdParty { kNobody, kJumps, kSetsTheBit };

struct FlipCase {
  std::string name;
  ThirdParty third_party;
  IptablesMode iptables;
  int flips = 50;
};
void PrintTo(const FlipCase& row, std::ostream* stream) { *stream << row.name; }

class GateFlipPacketsTest : public DaemonTest, public ::testing::WithParamInterface<FlipCase> {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    world_.emplace();
    listener_.emplace(kLoopback, kMartianPort);
    const InNetns inside(world_->receiver());
    receiver_.emplace(0, kServicePort);
  }
  // Their threads have this test's mount namespace.
  void TearDown() override {
    receiver_.reset();
    listener_.reset();
  }

  void WriteGate(bool cleanup) const {
    std::ofstream(file_.path()) << kHead << "featureGates: {IPTablesOwnershipCleanup: "
                                << (cleanup ? "true" : "false") << "}\n";
  }

  void StartWithGateOff() {
    WriteGate(/*cleanup=*/false);
    StartOnly({"--config=" + file_.path(), "--stale-chains=retire",
               "--cni-conf-dir=" + no_cni_.root(), "--iptables-sync-period=1s",
               absl::StrCat("--iptables-mode=", NameOf(GetParam().iptables))});
    ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  }

  void AddThirdParty() const {
    const std::vector<std::string> to_service = {"-p", "udp", "--dport",
                                                 absl::StrCat(kServicePort)};
    std::vector<std::string> rule = {"-t", "nat", "-A", "THIRD-PARTY"};
    rule.insert(rule.end(), to_service.begin(), to_service.end());
    const std::vector<std::string> target =
        GetParam().third_party == ThirdParty::kJumps
            ? std::vector<std::string>{"-j", "KUBE-MARK-MASQ"}
            : std::vector<std::string>{"-j", "MARK", "--or-mark", "0x4000"};
    rule.insert(rule.end(), target.begin(), target.end());
    Change({"-t", "nat", "-N", "THIRD-PARTY"});
    Change(rule);
    Change({"-t", "nat", "-A", "PREROUTING", "-j", "THIRD-PARTY"});
  }

  void Change(const std::vector<std::string>& arguments) const {
    const ProgramResult result = iptables_.Run(arguments);
    ASSERT_EQ(result.exit_code, 0) << result;
  }
  bool Stands(const std::string& chain) const {
    return iptables_.Run({"-t", "nat", "-S", chain}).exit_code == 0;
  }

  // Switches the gate and waits until that has been done in the kernel.
  void Flip(bool cleanup) {
    const double retired = Metric("kube_iptables_agent_retired_total");
    WriteGate(cleanup);
    const auto done = [&] {
      return cleanup ? Metric("kube_iptables_agent_retired_total") > retired
                     : Metric("kube_iptables_agent_mode_info", ",mode=\"legacy\"") == 1;
    };
    ASSERT_TRUE(WaitUntil(done)) << daemon().Output();
    ASSERT_EQ(Stands("KUBE-MARK-DROP"), !cleanup) << daemon().Output();
    const bool claimed = GetParam().third_party == ThirdParty::kJumps;
    EXPECT_EQ(Stands("KUBE-MARK-MASQ"), !cleanup || claimed);
    const bool marks = GetParam().third_party != ThirdParty::kNobody;
    EXPECT_EQ(Stands("KUBE-POSTROUTING"), !cleanup || marks);
  }

  // Packets of rules in filter/KUBE-FIREWALL that are about 127.0.0.0/8.
  uint64_t DroppedByTheRule() const {
    const std::string save = absl::StrCat("iptables-", NameOf(GetParam().iptables), "-save");
    uint64_t packets = 0;
    for (absl::string_view line : absl::StrSplit(Output({save, "-c", "-t", "filter"}), '\n')) {
      if (!absl::StrContains(line, "-A KUBE-FIREWALL") || !absl::StrContains(line, "127.0.0.0/8")) {
        continue;
      }
      uint64_t of_line = 0;
      const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::ByAnyChar("[:"));
      EXPECT_TRUE(absl::SimpleAtoi(parts.at(1), &of_line)) << line;
      packets += of_line;
    }
    return packets;
  }

  static uint64_t MartiansArrived() { return Witnessed().at("martians"); }

  // Both streams, from the client.
  void StartSending() {
    const InNetns outside(world_->client());
    martians_.emplace(PacketWorld::MartianPath(kMartianPort), kPerSecond);
    forwarded_.emplace(PacketWorld::ForwardedPath(kServicePort), kPerSecond);
  }

  const Iptables iptables_ = {.mode = GetParam().iptables};
  const TemporaryFile file_{kHead};
  const TemporaryTree no_cni_;
  std::optional<PacketWorld> world_;
  std::optional<PacketTaker> listener_;
  std::optional<PacketTaker> receiver_;
  std::optional<PacketSender> martians_;
  std::optional<PacketSender> forwarded_;
};

TEST_P(GateFlipPacketsTest, NoMartianComesInAndNothingMarkedLeavesUnmasqueraded) {
  // Without rules all of them arrive, as they were sent: what follows can fail.
  StartSending();
  EXPECT_TRUE(WaitUntil([this] { return listener_->received().packets > 0; }));
  EXPECT_TRUE(WaitUntil([this] { return receiver_->received().packets > 0; }));
  martians_.reset();
  forwarded_.reset();
  EXPECT_THAT(receiver_->received().sources, Contains(Key(kClient)));

  StartWithGateOff();
  if (GetParam().third_party != ThirdParty::kNobody) AddThirdParty();
  // Or the ports of one address would not be enough for the connections of half a minute.
  SetSysctl("netfilter/nf_conntrack_udp_timeout", "2");
  ASSERT_EQ(RunProgram({"nft", "-f", "-"}, kWitness).exit_code, 0);
  listener_->Forget();
  receiver_->Forget();
  const absl::Time start = absl::Now();
  StartSending();
  for (int i = 0; i < GetParam().flips && !HasFatalFailure(); ++i) Flip(/*cleanup=*/i % 2 == 0);
  const absl::Duration took = absl::Now() - start;
  const uint64_t martians_sent = martians_->Stop();
  const uint64_t forwarded_sent = forwarded_->Stop();
  ASSERT_FALSE(HasFatalFailure());

  const uint64_t arrived = MartiansArrived();
  EXPECT_GT(martians_sent, absl::ToDoubleSeconds(took) * kPerSecond * 0.8);
  EXPECT_GT(arrived, martians_sent * 9 / 10) << "a queue ran over";
  EXPECT_EQ(listener_->received().packets, 0) << "of " << martians_sent;
  EXPECT_EQ(DroppedByTheRule(), arrived);
  EXPECT_TRUE(MetricReaches("kube_iptables_agent_martian_dropped_packets_total",
                            static_cast<double>(arrived)));
  EXPECT_EQ(Metric("kube_iptables_agent_martian_dropped_packets_total"), arrived);

  const Received received = receiver_->received();
  RecordProperty("Seconds", absl::StrCat(absl::ToDoubleSeconds(took)));
  RecordProperty("Martians", absl::StrCat(arrived));
  RecordProperty("Forwarded", absl::StrCat(received.packets, " of ", forwarded_sent));
  EXPECT_GT(received.packets, forwarded_sent * 9 / 10);
  EXPECT_EQ(received.numbers.size(), received.packets) << "each comes once";
  if (GetParam().third_party == ThirdParty::kNobody) return;
  EXPECT_THAT(received.sources, Each(Key(kNodeInside)));
  EXPECT_LT(received.LongestGap(), static_cast<uint32_t>(kPerSecond) / 2);
}

INSTANTIATE_TEST_SUITE_P(
    Beside, GateFlipPacketsTest,
    ::testing::Values(
        FlipCase{"ARuleThatJumpsToKubeMarkMasqNft", ThirdParty::kJumps, IptablesMode::kNft},
        FlipCase{"ARuleThatJumpsToKubeMarkMasqLegacy", ThirdParty::kJumps, IptablesMode::kLegacy},
        FlipCase{"ARuleThatSetsTheBitItselfNft", ThirdParty::kSetsTheBit, IptablesMode::kNft},
        FlipCase{"ARuleThatSetsTheBitItselfLegacy", ThirdParty::kSetsTheBit, IptablesMode::kLegacy},
        FlipCase{"NobodyNft", ThirdParty::kNobody, IptablesMode::kNft, 20},
        FlipCase{"NobodyLegacy", ThirdParty::kNobody, IptablesMode::kLegacy, 20}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace kipt::testing
