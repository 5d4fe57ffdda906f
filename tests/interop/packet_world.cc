// SPDX-License-Identifier: Apache-2.0
#include "tests/interop/packet_world.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

constexpr char kClientInterface[] = "client0";
const std::vector<uint8_t> kNodeMac = {2, 0, 0, 0, 0, 1};

absl::StatusOr<Netns> Fresh() {
  absl::StatusOr<Netns> netns = Netns::Create();
  EXPECT_TRUE(netns.ok()) << netns.status();
  return netns;
}

void Run(const std::vector<std::string>& argv) {
  const ProgramResult result = RunProgram(argv);
  EXPECT_EQ(result.exit_code, 0) << result;
}

std::string AddressOf(const VethEnd& end) { return end.address.substr(0, end.address.find('/')); }

// In the namespace of `end`.
void SetUp(const VethEnd& end, const VethEnd& neighbour) {
  Run({"ip", "address", "add", end.address, "dev", end.interface});
  Run({"ip", "link", "set", end.interface, "up"});
  Run({"ip", "neigh", "replace", AddressOf(neighbour), "lladdr", neighbour.mac, "dev",
       end.interface});
}

}  // namespace

void SetSysctl(const std::string& name, const std::string& value) {
  std::ofstream file("/proc/sys/net/" + name);
  file << value << std::flush;
  EXPECT_TRUE(file.good()) << name;
}

void ConnectVeth(const VethEnd& here, const VethEnd& there, const Netns& netns) {
  Run({"ip", "link", "add", here.interface, "address", here.mac, "type", "veth", "peer", "name",
       there.interface, "address", there.mac, "netns", netns.Path()});
  SetUp(here, there);
  const InNetns inside(netns);
  SetUp(there, here);
  Run({"ip", "route", "add", "default", "via", AddressOf(here)});
}

PacketWorld::PacketWorld() : client_(*Fresh()), receiver_(*Fresh()) {
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

StreamPath PacketWorld::ForwardedPath(uint16_t port) {
  return {.interface = kClientInterface,
          .mac = kNodeMac,
          .first_source = kClient,
          .destination = kReceiver,
          .port = port};
}

}  // namespace kipt::testing
