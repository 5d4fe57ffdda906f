// SPDX-License-Identifier: Apache-2.0
//
// The CNI plugin portmap (Debian's containernetworking-plugins), configured to use KUBE-MARK-MASQ:
// the best known third party that needs a chain of kubelet's. The configuration asks for its
// iptables backend: newer releases may choose nftables, and refuse externalSetMarkChain there.
// (1.1.1 has only the iptables backend, and ignores the key.)
#include <nlohmann/json.hpp>

#include "tests/interop/daemon_fixture.h"
#include "tests/interop/packet_world.h"
#include "tests/support/echo_call.h"

namespace kipt::testing {
namespace {

using nlohmann::json;

constexpr char kConflist[] = "net.d/10-podnet.conflist";
constexpr uint16_t kPodPort = 8053;
constexpr int kCalls = 20;

// "10.88.NUMBER.2", reached through the node's "10.88.NUMBER.1", with a host port.
class Pod {
 public:
  Pod(uint8_t number, Netns netns) : number_(number), netns_(std::move(netns)) {
    const std::string mac = absl::StrCat("02:00:00:00:1", number, ":0");
    ConnectVeth({Interface(), Address(1) + "/24", mac + "1"},
                {"eth0", Address(2) + "/24", mac + "2"}, netns_);
  }

  uint16_t host_port() const { return static_cast<uint16_t>(18000 + number_); }
  const Netns& netns() const { return netns_; }
  std::string NodeAddress() const { return Address(1); }
  std::string container_id() const { return absl::StrCat("pod", number_); }
  std::string Interface() const { return absl::StrCat("veth", number_); }

  // What the plugin before portmap would have answered.
  json PreviousResult() const {
    return {
        {"cniVersion", "1.0.0"},
        {"interfaces", {{{"name", Interface()}}, {{"name", "eth0"}, {"sandbox", netns_.Path()}}}},
        {"ips", {{{"interface", 1}, {"address", Address(2) + "/24"}, {"gateway", Address(1)}}}}};
  }

 private:
  std::string Address(int last) const { return absl::StrCat("10.88.", number_, ".", last); }

  uint8_t number_;
  Netns netns_;
};

class CniPortmapTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    SetSysctl("ipv4/ip_forward", "1");
    const std::string program = absl::StrCat("/usr/sbin/xtables-", NameOf(GetParam()), "-multi");
    tree_.Link("bin/iptables", program);
    tree_.Link("bin/ip6tables", program);
    const json portmap = {{"type", "portmap"},
                          {"backend", "iptables"},
                          {"capabilities", {{"portMappings", true}}},
                          {"externalSetMarkChain", "KUBE-MARK-MASQ"}};
    plugin_ = portmap;
    const json conflist = {
        {"cniVersion", "1.0.0"}, {"name", "podnet"}, {"plugins", {{{"type", "ptp"}}, portmap}}};
    tree_.Write(kConflist, conflist.dump(2));
  }

  // As a container runtime calls it.
  void Add(const Pod& pod) const {
    json config = plugin_;
    config["cniVersion"] = "1.0.0";
    config["name"] = "podnet";
    config["prevResult"] = pod.PreviousResult();
    config["runtimeConfig"] = {
        {"portMappings",
         {{{"hostPort", pod.host_port()}, {"containerPort", kPodPort}, {"protocol", "udp"}}}}};
    const ProgramResult added = RunProgram(
        {"/usr/bin/env", "CNI_COMMAND=ADD", "CNI_CONTAINERID=" + pod.container_id(),
         "CNI_NETNS=" + pod.netns().Path(), "CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni",
         "PATH=" + tree_.Path("bin") + ":/usr/sbin:/usr/bin:/sbin:/bin", "/usr/lib/cni/portmap"},
        config.dump());
    EXPECT_EQ(added.exit_code, 0) << added;
  }

  // From 127.0.0.1, which no pod can answer to: the node's address must take its place.
  static void ExpectMasqueraded(const Pod& pod) {
    std::optional<EchoServer> server;
    {
      const InNetns inside(pod.netns());
      server.emplace(std::vector<uint16_t>{kPodPort});
    }
    std::map<std::string, EchoCall> calls;
    for (int i = 0; i < kCalls; ++i) {
      calls.emplace(absl::StrCat(i), EchoCall({.address = "127.0.0.1", .port = pod.host_port()}));
    }
    for (const auto& [call, seen_as] : EchoCall::AskAll(calls, kPatience)) {
      EXPECT_EQ(seen_as, pod.NodeAddress()) << call;
    }
  }

  void StartWithGateOff() {
    WriteGate(file_, /*cleanup=*/false);
    std::vector<std::string> flags = CommonFlags();
    flags.push_back("--config=" + file_.path());
    flags.push_back("--stale-chains=retire");
    StartOnly(flags);
    ASSERT_TRUE(BecomesReady()) << Readyz() << daemon().Output();
  }
  // And waits until the unused chains are removed.
  void SwitchGateOn() {
    const double retired = Metric("kube_iptables_agent_retired_total");
    WriteGate(file_, /*cleanup=*/true);
    ASSERT_TRUE(MetricReaches("kube_iptables_agent_retired_total", retired + 1))
        << daemon().Output();
    ASSERT_NE(Iptables{.mode = GetParam()}.Run({"-t", "nat", "-S", "KUBE-MARK-DROP"}).exit_code, 0);
  }
  // In how many families KUBE-MARK-MASQ is claimed so.
  static double MarkMasqClaims(const std::string& kind) {
    return Metric("kube_iptables_agent_stale_claims",
                  absl::StrCat("chain=\"KUBE-MARK-MASQ\",claim=\"", kind, "\""));
  }

  std::vector<std::string> CommonFlags() const {
    return {"--cni-conf-dir=" + tree_.Path("net.d"),
            absl::StrCat("--iptables-mode=", NameOf(GetParam()))};
  }

  const TemporaryFile file_{kConfigHead};
  const TemporaryTree tree_;
  json plugin_;
};

TEST_P(CniPortmapTest, WorksAfterTheGateIsSwitchedOnAndStaleChainsAreRetired) {
  StartWithGateOff();
  const Pod first(1, NewNetns());
  Add(first);
  ExpectMasqueraded(first);
  SwitchGateOn();
  EXPECT_EQ(MarkMasqClaims("foreignJump"), 1);
  EXPECT_EQ(MarkMasqClaims("cniConfig"), 2) << "ip6 has no pod, and the next may have IPv6";
  ExpectMasqueraded(first);
  const Pod second(2, NewNetns());
  Add(second);
  ExpectMasqueraded(second);
  ExpectMasqueraded(first);
}

INSTANTIATE_TEST_SUITE_P(IptablesModes, CniPortmapTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

}  // namespace
}  // namespace kipt::testing
