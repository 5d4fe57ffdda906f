// SPDX-License-Identifier: Apache-2.0
#include "tests/interop/packet_world.h"

#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/background_program.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

constexpr char kClientInterface[] = "client0";
const std::vector<uint8_t> kNodeMac = {2, 0, 0, 0, 0, 1};

std::string AddressOf(const VethEnd& end) { return end.address.substr(0, end.address.find('/')); }

// In the namespace of `end`.
void SetUp(const VethEnd& end, const VethEnd& neighbour) {
  MustRun({"ip", "address", "add", end.address, "dev", end.interface});
  MustRun({"ip", "link", "set", end.interface, "up"});
  MustRun({"ip", "neigh", "replace", AddressOf(neighbour), "lladdr", neighbour.mac, "dev",
           end.interface});
}

}  // namespace

std::map<std::string, uint64_t> Witnessed() {
  const ProgramResult result = RunProgram({"nft", "list", "counters", "table", "inet", "observer"});
  EXPECT_EQ(result.exit_code, 0) << result;
  const std::vector<std::string> words =
      absl::StrSplit(result.out, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  std::map<std::string, uint64_t> counters;
  std::string name;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "counter") name = words[i + 1];
    if (words[i] == "packets") counters[name] = std::strtoull(words[i + 1].c_str(), nullptr, 10);
  }
  return counters;
}

void ConnectVeth(const VethEnd& here, const VethEnd& there, const Netns& netns) {
  MustRun({"ip", "link", "add", here.interface, "address", here.mac, "type", "veth", "peer", "name",
           there.interface, "address", there.mac, "netns", netns.Path()});
  SetUp(here, there);
  const InNetns inside(netns);
  SetUp(there, here);
  MustRun({"ip", "route", "add", "default", "via", AddressOf(here)});
}

void WitnessMartians() {
  const ProgramResult result = RunProgram({"nft", "-f", "-"}, R"(
table inet observer {
  counter martians { }
  chain arrived {
    type filter hook prerouting priority -400
    iifname "outside" ip daddr 127.0.0.0/8 counter name martians
  }
}
)");
  EXPECT_EQ(result.exit_code, 0) << result;
}

uint64_t MartiansArrived() { return Witnessed().at("martians"); }

PacketWorld::PacketWorld() : client_(NewNetns()), receiver_(NewNetns()) {
  ConnectVeth({kOutsideInterface, "10.77.1.1/24", "02:00:00:00:00:01"},
              {kClientInterface, "10.77.1.2/24", "02:00:00:00:00:02"}, client_);
  ConnectVeth({"inside", "10.77.2.1/24", "02:00:00:00:00:03"},
              {"receiver0", "10.77.2.2/24", "02:00:00:00:00:04"}, receiver_);
  SetSysctl("ipv4/ip_forward", "1");
  SetSysctl(std::string("ipv4/conf/") + kOutsideInterface + "/route_localnet", "1");
}

StreamPath PacketWorld::MartianPath(uint16_t port) {
  return {.interface = kClientInterface,
          .mac = kNodeMac,
          .first_source = kClient,
          .destination = kLoopback,
          .port = port};
}

bool PacketWorld::Reaches(PacketTaker& taker, uint32_t destination, uint16_t port) const {
  StreamPath path = MartianPath(port);
  path.destination = destination;
  taker.Forget();
  // On a busy machine the sender may not run for a while: no packet sent is no answer.
  constexpr uint64_t kEnoughSent = 20;
  uint64_t sent = 0;
  for (const absl::Time end = absl::Now() + absl::Seconds(5);
       sent < kEnoughSent && absl::Now() < end;) {
    const InNetns outside(client_);
    PacketSender sender(path, /*per_second=*/2000);
    absl::SleepFor(absl::Milliseconds(30));
    sent += sender.Stop();
  }
  EXPECT_GE(sent, kEnoughSent) << "to " << path.interface;
  return WaitUntil([&] { return taker.received().packets > 0; }, absl::Milliseconds(100));
}

StreamPath PacketWorld::ForwardedPath(uint16_t port) {
  return {.interface = kClientInterface,
          .mac = kNodeMac,
          .first_source = kClient,
          .destination = kReceiver,
          .port = port};
}

}  // namespace kipt::testing
