// SPDX-License-Identifier: Apache-2.0
//
// A node between pods and a client, for the services of the captured rulesets
// (fixture A, tests/agent/testdata/rulesets/README.md): what the client's connections are seen as.
#ifndef KIPT_TESTS_INTEROP_SERVICE_WORLD_H_
#define KIPT_TESTS_INTEROP_SERVICE_WORLD_H_

#include <list>

#include "tests/interop/agent_fixture.h"
#include "tests/support/echo_call.h"

namespace kipt::testing {

// Ports of the node. The first leads to a pod where other software has led it there. On the last
// listens a program of the node itself, which gets the packets that should have been dropped.
inline constexpr uint16_t kHostPort = 8080;
inline constexpr uint16_t kNodePort = 30002;
inline constexpr uint16_t kDroppedPort = 30001;
// What answers takes the client for; what is not answered is empty.
inline constexpr char kMasqueraded[] = "10.180.0.254";
inline constexpr char kUnchanged[] = "192.168.50.9";

class ServiceWorld {
 public:
  // The calling thread's network namespace is the node.
  ServiceWorld() : client_(NewNetns()), pods_(NewNetns()) {
    const auto ip = [](const std::string& lines) { MustRun({"ip", "-batch", "-"}, lines); };
    ip(absl::StrCat("link add client type veth peer name eth0 netns ", client_.Path(),
                    "\nlink add pods type veth peer name eth0 netns ", pods_.Path(),
                    "\nlink set client up\nlink set pods up\naddr add 192.168.50.2/24 dev client\n"
                    "addr add 10.180.0.254/23 dev pods\n"));
    SetSysctl("ipv4/ip_forward", "1");
    servers_.emplace_back(std::vector<uint16_t>{kDroppedPort});
    {
      const InNetns inside(client_);
      ip("link set eth0 up\naddr add 192.168.50.9/24 dev eth0\n"
         "route add default via 192.168.50.2\n");
    }
    const InNetns inside(pods_);
    std::string lines = "link set eth0 up\n";
    for (const char* pod : {"10.180.0.1", "10.180.0.2", "10.180.0.3", "10.180.1.1"}) {
      absl::StrAppend(&lines, "addr add ", pod, "/23 dev eth0\n");
    }
    ip(lines + "route add default via 10.180.0.254\n");
    servers_.emplace_back(std::vector<uint16_t>{80});
  }
  // Opens a TCP connection from the client to that port of the node. What it is answered.
  std::string Reaches(uint16_t port, absl::Duration patience) const {
    const InNetns inside(client_);
    std::map<std::string, EchoCall> call;
    call.emplace("",
                 EchoCall({.protocol = Protocol::kTcp, .address = "192.168.50.2", .port = port}));
    return EchoCall::AskAll(call, patience)[""];
  }

 private:
  const Netns client_;
  const Netns pods_;
  std::list<EchoServer> servers_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_SERVICE_WORLD_H_
