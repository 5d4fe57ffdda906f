// SPDX-License-Identifier: Apache-2.0
//
// The node: what a battery finds out about packets through it, and streams.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/skew/node/test_node.h"
#include "tests/skew/probes/probe.h"
#include "tests/skew/probes/stream.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/private_run.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_tree.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::IptablesMode;

class NodeTest : public testing::NetnsTest,
                 public ::testing::WithParamInterface<std::tuple<IptablesMode, IpFamily>> {
 protected:
  static IptablesMode mode() { return std::get<0>(GetParam()); }
  static IpFamily family() { return std::get<1>(GetParam()); }

  void SetUp() override {
    NetnsTest::SetUp();
    absl::StatusOr<std::unique_ptr<TestNode>> node = TestNode::Create();
    ASSERT_TRUE(node.ok()) << node.status();
    node_ = *std::move(node);
  }

  void Load(const std::string& text) {
    const testing::InNetns inside(node_->At(Place::kNode));
    const testing::ProgramResult loaded =
        testing::Iptables{.family = family(), .mode = mode()}.Restore(text);
    ASSERT_EQ(loaded.exit_code, 0) << loaded << text;
  }

  static Probe To(Place from, Protocol protocol, const std::string& address, int port,
                  const std::string& name = "") {
    return {.name = name.empty() ? absl::StrCat(NameOf(from), " to ", address, " ", port) : name,
            .family = family(),
            .protocol = protocol,
            .from = from,
            .address = address,
            .port = port};
  }

  const testing::PrivateRun own_lock_;
  std::unique_ptr<TestNode> node_;
};

auto EveryModeAndFamily() {
  return ::testing::Combine(::testing::Values(IptablesMode::kNft, IptablesMode::kLegacy),
                            ::testing::ValuesIn(testing::kBothFamilies));
}
std::string NameOfRow(const ::testing::TestParamInfo<std::tuple<IptablesMode, IpFamily>>& info) {
  return absl::StrCat(testing::NameOf(std::get<0>(info.param)),
                      std::get<1>(info.param) == IpFamily::kIpv6 ? "Ipv6" : "Ipv4");
}

// A service at 172.30.0.41 with its pods, and otherwise unused ports at which each rule has its own
// effect.
constexpr char kRules[] = R"(*raw
-A PREROUTING -p PROTO --dport 8090 -j DROP
COMMIT
*filter
-A FORWARD -p PROTO --dport 8091 -m comment --comment "dropped when forwarded" -j DROP
-A INPUT -p PROTO --dport 8092 -m comment --comment "dropped at the host" -j DROP
-A FORWARD -p PROTO --dport 8093 -j REJECT --reject-with TELL
-A FORWARD -p PROTO --dport 8094 -j REJECT --reject-with HIDE
-A OUTPUT -p PROTO --dport 8095 -m comment --comment "dropped at home" -j DROP
COMMIT
*nat
-A PREROUTING -d CLUSTERIP -p PROTO --dport 80 -j DNAT --to-destination POD_A:8080
-A PREROUTING -d CLUSTERIP -p PROTO --dport 81 -j DNAT --to-destination REMOTE:8080
-A PREROUTING -d CLUSTERIP -p PROTO --dport 82 -m statistic --mode nth --every 2 --packet 0 -j DNAT --to-destination POD_A:8080
-A PREROUTING -d CLUSTERIP -p PROTO --dport 82 -j DNAT --to-destination POD_B:8080
-A PREROUTING -d CLUSTERIP -p PROTO --dport 83 -m statistic --mode nth --every 2 --packet 0 -j DNAT --to-destination POD_A:8080
-A PREROUTING -d CLUSTERIP -p PROTO --dport 83 -j DNAT --to-destination POD_B:8091
-A OUTPUT -d CLUSTERIP -p PROTO --dport 80 -j DNAT --to-destination POD_A:8080
-A POSTROUTING -d REMOTE -j MASQUERADE --random-fully
-A POSTROUTING -s POD_A -d POD_A -j MASQUERADE --random-fully
COMMIT
)";

std::string ClusterIp(IpFamily family) {
  return family == IpFamily::kIpv6 ? "fd00:30::41" : "172.30.0.41";
}

class BatteryTest : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    ASSERT_NE(node_, nullptr);
    absl::StatusOr<std::unique_ptr<Battery>> battery =
        Battery::Create(*node_, {{Place::kNode, {80, 8092, 8096}},
                                 {Place::kPodA, {8080, 8090, 8091, 8093, 8094}},
                                 {Place::kPodB, {8080, 8091, 8095}},
                                 {Place::kRemotePod, {8080}},
                                 {Place::kSecondNode, {8080}},
                                 {Place::kRefusedClient, {8080}},
                                 {Place::kBeyond, {80}}});
    ASSERT_TRUE(battery.ok()) << battery.status();
    battery_ = *std::move(battery);
  }

  void LoadRules(Protocol protocol) {
    const bool v6 = family() == IpFamily::kIpv6;
    const auto host = [&](Place place) {
      const std::string address = AddressOf(place, family());
      return v6 ? absl::StrCat("[", address, "]") : address;
    };
    const bool tcp = protocol == Protocol::kTcp;
    Load(absl::StrReplaceAll(
        kRules,
        {{"PROTO", tcp ? "tcp" : "udp"},
         {"TELL", tcp ? "tcp-reset" : (v6 ? "icmp6-port-unreachable" : "icmp-port-unreachable")},
         {"HIDE", v6 ? "icmp6-adm-prohibited" : "icmp-admin-prohibited"},
         {"CLUSTERIP", ClusterIp(family())},
         {"-d REMOTE", absl::StrCat("-d ", AddressOf(Place::kRemotePod, family()))},
         {"-s POD_A", absl::StrCat("-s ", AddressOf(Place::kPodA, family()))},
         {"-d POD_A", absl::StrCat("-d ", AddressOf(Place::kPodA, family()))},
         {"POD_A", host(Place::kPodA)},
         {"POD_B", host(Place::kPodB)},
         {"REMOTE", host(Place::kRemotePod)}}));
  }

  std::vector<ProbeResult> Ask(const std::vector<Probe>& probes) {
    const absl::StatusOr<std::vector<ProbeResult>> results = battery_->Ask(probes, mode());
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? *results : std::vector<ProbeResult>(probes.size());
  }

  static std::string Shown(const ProbeResult& result) {
    std::string text =
        absl::StrCat(result.probe, ": ", NameOf(result.outcome), ", sent ", result.sent,
                     ", received ", result.received, ", by [", result.dropped_by, "], source ",
                     result.seen_source, ", detail ", result.detail);
    for (const auto& [place, count] : result.receivers) absl::StrAppend(&text, "; ", place, count);
    return text;
  }

  std::unique_ptr<Battery> battery_;
};

INSTANTIATE_TEST_SUITE_P(All, BatteryTest, EveryModeAndFamily(), NameOfRow);

struct Expected {
  Place from;
  std::string address;
  int port;
  Outcome outcome;
  // The desired dropped_by, and the receiver.
  std::string dropped_by = "";
  std::string receiver = "";
};

std::vector<Expected> AllOutcomes(IpFamily family) {
  const Place client = Place::kRefusedClient;
  const std::string pod = AddressOf(Place::kPodA, family);
  const std::string pod_b = AddressOf(Place::kPodB, family);
  const std::string node = AddressOf(Place::kNode, family);
  const std::string v = family == IpFamily::kIpv6 ? "ip6" : "ip";
  const std::string blackhole = family == IpFamily::kIpv6 ? "fd00:99::1" : "10.99.0.1";
  return {
      {client, ClusterIp(family), 80, Outcome::kServed, "", "pod a"},
      {Place::kNode, ClusterIp(family), 80, Outcome::kServed, "", "pod a"},
      {Place::kPodB, pod, 8080, Outcome::kServed, "", "pod a"},
      {client, ClusterIp(family), 81, Outcome::kServedMasqueraded, "", "remote pod"},
      // Hairpin.
      {Place::kPodA, ClusterIp(family), 80, Outcome::kServedMasqueraded, "", "pod a"},
      {client, pod, 8091, Outcome::kDropped, v + " filter -A FORWARD "},
      {Place::kAllowedClient, node, 8092, Outcome::kDropped, "\"dropped at the host\" -j DROP"},
      {Place::kNode, pod_b, 8095, Outcome::kDropped, v + " filter -A OUTPUT "},
      {client, pod, 8093, Outcome::kRejected},
      {client, pod, 8094, Outcome::kRejected},
      // A port without a listener.
      {client, pod, 9999, Outcome::kRejected},
      {client, node, 80, Outcome::kReachedHost, "", "node"},
      {Place::kNode, node, 80, Outcome::kReachedHost, "", "node"},
      {Place::kAllowedClient, BoundVip(family), 80, Outcome::kReachedHost, "", "node"},
      {client, RoutedVip(family), 80, Outcome::kForwarded, "", "beyond"},
      // An address of no service.
      {client, family == IpFamily::kIpv6 ? "fd00:30::99" : "172.30.0.99", 80, Outcome::kForwarded,
       "", "beyond"},
      {client, AddressOf(Place::kSecondNode, family), 8080, Outcome::kForwarded, "", "second node"},
      {Place::kAllowedClient, AddressOf(client, family), 8080, Outcome::kForwarded, "",
       "refused client"},
      // Dropped, but not by a rule of filter: by raw, by routing.
      {client, pod, 8090, Outcome::kLost},
      {client, blackhole, 80, Outcome::kLost},
  };
}

TEST_P(BatteryTest, ReportsEveryOutcome) {
  {
    const testing::InNetns inside(node_->At(Place::kNode));
    const char* nowhere = family() == IpFamily::kIpv6 ? "fd00:99::/64" : "10.99.0.0/16";
    EXPECT_EQ(testing::RunProgram({"ip", "route", "add", "blackhole", nowhere}).exit_code, 0);
  }
  for (const Protocol protocol : {Protocol::kTcp, Protocol::kUdp}) {
    SCOPED_TRACE(protocol == Protocol::kTcp ? "tcp" : "udp");
    LoadRules(protocol);
    const std::vector<Expected> expected = AllOutcomes(family());
    std::vector<Probe> probes;
    for (const Expected& row : expected) {
      probes.push_back(To(row.from, protocol, row.address, row.port));
    }
    const std::vector<ProbeResult> results = Ask(probes);
    for (size_t i = 0; i < expected.size(); ++i) {
      const Expected& row = expected[i];
      const ProbeResult& result = results[i];
      SCOPED_TRACE(Shown(result));
      EXPECT_EQ(result.probe, probes[i].name);
      EXPECT_EQ(NameOf(result.outcome), std::string(NameOf(row.outcome)));
      EXPECT_TRUE(absl::StrContains(result.dropped_by, row.dropped_by));
      EXPECT_EQ(result.dropped_by.empty(), row.outcome != Outcome::kDropped);
      EXPECT_EQ(result.sent, 1);
      std::vector<std::pair<std::string, int>> receivers;
      if (!row.receiver.empty()) receivers.emplace_back(row.receiver, 1);
      EXPECT_EQ(result.receivers, receivers);
      EXPECT_EQ(result.received, row.receiver.empty() ? 0 : 1);
      if (row.outcome == Outcome::kServed && row.from != Place::kNode) {
        EXPECT_EQ(result.seen_source, AddressOf(row.from, family()));
      }
    }
  }
}

TEST_P(BatteryTest, MakesEveryConnectionAndReportsTheReceivers) {
  for (const Protocol protocol : {Protocol::kTcp, Protocol::kUdp}) {
    LoadRules(protocol);
    Probe balanced = To(Place::kRefusedClient, protocol, ClusterIp(family()), 82);
    balanced.connections = 40;
    // Every second connection of it is dropped.
    Probe torn = To(Place::kRefusedClient, protocol, ClusterIp(family()), 83);
    torn.connections = 6;
    Probe dropped = To(Place::kRefusedClient, protocol, AddressOf(Place::kPodA, family()), 8091);
    dropped.connections = 6;
    const std::vector<ProbeResult> results = Ask({balanced, torn, dropped});
    EXPECT_EQ(results[0].outcome, Outcome::kServed) << Shown(results[0]);
    const std::vector<std::pair<std::string, int>> halves = {{"pod a", 20}, {"pod b", 20}};
    EXPECT_EQ(results[0].receivers, halves) << Shown(results[0]);
    EXPECT_EQ(results[1].outcome, Outcome::kOther) << Shown(results[1]);
    EXPECT_EQ(results[1].detail, "3 served, 3 dropped");
    EXPECT_TRUE(absl::StrContains(results[1].dropped_by, "-A FORWARD")) << Shown(results[1]);
    EXPECT_EQ(results[2].outcome, Outcome::kDropped) << Shown(results[2]);
    EXPECT_EQ(results[2].sent, 6);
  }
}

// As on a machine that holds the harness up.
TEST_P(BatteryTest, CountsARepeatedSynForNoOtherProbe) {
  const bool v6 = family() == IpFamily::kIpv6;
  const std::string save =
      absl::StrCat(v6 ? "ip6tables-" : "iptables-", testing::NameOf(mode()), "-save");
  const testing::TemporaryTree programs;
  programs.Write(save, absl::StrCat("#!/bin/sh\n/usr/sbin/", save, " \"$@\"\nsleep 1.3\n"));
  std::filesystem::permissions(programs.Path(save), std::filesystem::perms::owner_all);
  const std::string path = getenv("PATH");
  setenv("PATH", absl::StrCat(programs.Path(""), ":", path).c_str(), 1);
  const std::string pod = AddressOf(Place::kPodA, family());
  Load("*filter\n-F FORWARD\n-A FORWARD -j DROP\nCOMMIT\n");
  const std::vector<ProbeResult> results =
      Ask({To(Place::kRefusedClient, Protocol::kTcp, pod, 8091),
           To(Place::kRefusedClient, Protocol::kUdp, pod, 8091)});
  setenv("PATH", path.c_str(), 1);
  for (const ProbeResult& result : results) {
    EXPECT_EQ(result.outcome, Outcome::kDropped) << Shown(result);
  }
}

constexpr int kPerSecond = 500;

class StreamTest : public NodeTest {
 protected:
  void Start(const std::vector<Probe>& probes, int per_second = kPerSecond) {
    absl::StatusOr<std::unique_ptr<Streams>> streams = Streams::Start(*node_, probes,
                                                                      {{Place::kPodA, {9000, 9001}},
                                                                       {Place::kRemotePod, {9000}},
                                                                       {Place::kNode, {9000}},
                                                                       {Place::kBeyond, {9000}}},
                                                                      per_second);
    ASSERT_TRUE(streams.ok()) << streams.status();
    streams_ = *std::move(streams);
  }

  std::unique_ptr<Streams> streams_;
};

INSTANTIATE_TEST_SUITE_P(All, StreamTest, EveryModeAndFamily(), NameOfRow);

std::string Shown(const StreamCount& count) {
  return absl::StrCat(count.probe, ": sent ", count.sent, ", served ", count.served,
                      ", masqueraded ", count.served_masqueraded, ", reached host ",
                      count.reached_host, ", forwarded ", count.forwarded, ", longest gap ",
                      count.longest_gap);
}

TEST_P(StreamTest, CountsWhatBecameOfEveryPacket) {
  Load(absl::StrReplaceAll(
      "*nat\n-A POSTROUTING -s CLIENT -d POD -j MASQUERADE --random-fully\nCOMMIT\n",
      {{"CLIENT", AddressOf(Place::kAllowedClient, family())},
       {"POD", AddressOf(Place::kPodA, family())}}));
  const std::string pod = AddressOf(Place::kPodA, family());
  Start({To(Place::kRefusedClient, Protocol::kUdp, pod, 9000, "served"),
         To(Place::kNode, Protocol::kUdp, pod, 9000, "of the node"),
         To(Place::kAllowedClient, Protocol::kUdp, pod, 9000, "masqueraded"),
         To(Place::kRefusedClient, Protocol::kUdp, BoundVip(family()), 9000, "host"),
         To(Place::kRefusedClient, Protocol::kUdp, RoutedVip(family()), 9000, "forwarded"),
         To(Place::kRefusedClient, Protocol::kUdp, pod, 9999, "no listener")});
  for (int i = 0; i < 2; ++i) {
    absl::SleepFor(absl::Milliseconds(400));
    const std::vector<StreamCount> counts = streams_->Take();
    ASSERT_EQ(counts.size(), 6U);
    for (const StreamCount& count : counts) {
      SCOPED_TRACE(Shown(count));
      EXPECT_GT(count.sent, 50U);
      EXPECT_LT(count.sent, 1000U);
      const bool served = count.probe == "served" || count.probe == "of the node";
      EXPECT_EQ(count.served, served ? count.sent : 0);
      EXPECT_EQ(count.served_masqueraded, count.probe == "masqueraded" ? count.sent : 0);
      EXPECT_EQ(count.reached_host, count.probe == "host" ? count.sent : 0);
      EXPECT_EQ(count.forwarded, count.probe == "forwarded" ? count.sent : 0);
      EXPECT_EQ(count.longest_gap, served || count.probe == "masqueraded" ? 0 : count.sent);
    }
  }
}

// A stream's dropped packets do not prove that a probe's was.
TEST_P(StreamTest, LendsItsDropsToNoProbe) {
  const std::string pod = AddressOf(Place::kPodA, family());
  Load(R"(*filter
-A FORWARD -p udp -j DROP
COMMIT
*raw
-A PREROUTING -p udp --dport 9100 -j DROP
COMMIT
)");
  absl::StatusOr<std::unique_ptr<Battery>> battery =
      Battery::Create(*node_, {{Place::kPodA, {9100, 9101}}});
  ASSERT_TRUE(battery.ok()) << battery.status();
  // So many that some are dropped between any two readings of the counters.
  Start({To(Place::kRefusedClient, Protocol::kUdp, pod, 9000, "stream")}, /*per_second=*/8000);
  for (int i = 0; i < 5; ++i) {
    const absl::StatusOr<std::vector<ProbeResult>> results =
        (*battery)->Ask({To(Place::kRefusedClient, Protocol::kUdp, pod, 9100, "by raw"),
                         To(Place::kRefusedClient, Protocol::kUdp, pod, 9101, "by filter")},
                        mode());
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_EQ((*results)[0].outcome, Outcome::kLost) << (*results)[0].dropped_by;
    EXPECT_EQ((*results)[1].outcome, Outcome::kDropped);
  }
  const StreamCount count = streams_->Take()[0];
  EXPECT_EQ(count.Silent(), count.sent);
}

}  // namespace
}  // namespace kipt::skew
