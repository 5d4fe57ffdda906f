// SPDX-License-Identifier: Apache-2.0
#include "tests/interop/service_world.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/support/background_program.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

constexpr char kClientAddress[] = "192.168.50.9";
constexpr char kAllowedAddress[] = "203.0.113.9";
constexpr char kOtherPodAddress[] = "10.180.2.9";
constexpr char kNodesPodSide[] = "10.180.0.254";

void Ip(const std::string& arguments) {
  std::vector<std::string> argv = {"ip"};
  for (absl::string_view word : absl::StrSplit(arguments, ' ')) argv.emplace_back(word);
  const ProgramResult result = RunProgram(argv);
  EXPECT_EQ(result.exit_code, 0) << arguments << result;
}

sockaddr_in Address(const std::string& address, int port) {
  sockaddr_in result = {};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(inet_pton(AF_INET, address.c_str(), &result.sin_addr), 1) << address;
  return result;
}

int Listener(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
  const sockaddr_in address = Address("0.0.0.0", port);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0) << port;
  EXPECT_EQ(listen(fd, 16), 0);
  return fd;
}

const char* SourceOf(const Call& call) {
  switch (call.from) {
    case Call::From::kAllowedClient:
      return kAllowedAddress;
    case Call::From::kPod:
      return kOtherPodAddress;
    case Call::From::kClient:
      break;
  }
  return kClientAddress;
}

// The address at the other end of a connection that `listener` has, if any.
std::string TakeFrom(int listener) {
  sockaddr_in peer = {};
  socklen_t length = sizeof(peer);
  const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC);
  if (fd < 0) return "";
  close(fd);
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &peer.sin_addr, text, sizeof(text));
  return text;
}

}  // namespace

ServiceWorld::ServiceWorld() : client_(NewNetns()), pods_(NewNetns()), other_pod_(NewNetns()) {
  Connect();
  Listen();
}

ServiceWorld::~ServiceWorld() {
  for (const int fd : pod_listeners_) close(fd);
  for (const int fd : host_listeners_) close(fd);
}

void ServiceWorld::Connect() {
  const auto link = [](const std::string& here, const Netns& there) {
    Ip(absl::StrCat("link add ", here, " type veth peer name eth0 netns ", there.Path()));
    Ip(absl::StrCat("link set ", here, " up"));
  };
  link("client", client_);
  link("pods", pods_);
  link("other", other_pod_);
  Ip("addr add 192.168.50.2/24 dev client");
  Ip("route add 203.0.113.0/24 dev client");
  Ip("addr add 10.180.0.254/23 dev pods");
  Ip("addr add 10.180.2.254/24 dev other");
  Ip("addr add 1.2.3.4/32 dev lo");
  SetSysctl("ipv4/ip_forward", "1");
  const auto arrange = [](const Netns& netns, const std::vector<std::string>& addresses,
                          const std::string& gateway) {
    const InNetns inside(netns);
    Ip("link set eth0 up");
    for (const std::string& address : addresses)
      Ip(absl::StrCat("addr add ", address, " dev eth0"));
    Ip(absl::StrCat("route add default via ", gateway));
  };
  arrange(client_, {"192.168.50.9/24", "203.0.113.9/32"}, "192.168.50.2");
  arrange(pods_, {"10.180.0.1/23", "10.180.0.2/23", "10.180.0.3/23", "10.180.1.1/23"},
          kNodesPodSide);
  arrange(other_pod_, {"10.180.2.9/24"}, "10.180.2.254");
}

void ServiceWorld::Listen() {
  // Of the node: what gets the packets that should have been dropped.
  for (const int port : {80, 30001, 30002, 8080}) host_listeners_.push_back(Listener(port));
  const InNetns inside(pods_);
  pod_listeners_.push_back(Listener(80));
}

int ServiceWorld::Dial(const Call& call) {
  const InNetns inside(call.from == Call::From::kPod ? other_pod_ : client_);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const sockaddr_in source = Address(SourceOf(call), 0);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&source), sizeof(source)), 0);
  const sockaddr_in target = Address(call.address, call.port);
  const int result = connect(fd, reinterpret_cast<const sockaddr*>(&target), sizeof(target));
  EXPECT_TRUE(result == 0 || errno == EINPROGRESS) << call.address;
  return fd;
}

std::string ServiceWorld::Accepted(const Call& call) {
  for (const int listener : pod_listeners_) {
    const std::string peer = TakeFrom(listener);
    if (peer == kNodesPodSide) return kPodMasqueraded;
    if (peer == SourceOf(call)) return kPodUnchanged;
    if (!peer.empty()) return absl::StrCat("a pod, from ", peer);
  }
  for (const int listener : host_listeners_) {
    if (!TakeFrom(listener).empty()) return kHost;
  }
  return kNobody;
}

std::string ServiceWorld::Reaches(const Call& call, absl::Duration patience) {
  const int fd = Dial(call);
  std::string reached = kNobody;
  int error = 0;
  WaitUntil(
      [&] {
        reached = Accepted(call);
        socklen_t length = sizeof(error);
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
        return reached != kNobody || error != 0;
      },
      patience);
  close(fd);
  return error == 0 ? reached : absl::StrCat("refused: errno ", error);
}

std::map<std::string, int> DropsOf(const Iptables& iptables) {
  const ProgramResult saved =
      RunProgram({absl::StrCat("iptables-", NameOf(iptables.mode), "-save"), "-c", "-t", "filter"});
  EXPECT_EQ(saved.exit_code, 0) << saved;
  std::map<std::string, int> drops;
  for (absl::string_view line : absl::StrSplit(saved.out, '\n')) {
    if (!absl::StartsWith(line, "[") || !absl::EndsWith(line, " -j DROP")) continue;
    const std::string rule(line.substr(line.find("] ") + 2));
    drops[rule] += std::atoi(std::string(line.substr(1)).c_str());
  }
  return drops;
}

}  // namespace kipt::testing
