// SPDX-License-Identifier: Apache-2.0
#include "tests/support/packet_stream.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/raw_packet.h"

namespace kipt::testing {
namespace {

constexpr absl::Duration kBetweenBursts = absl::Milliseconds(5);
// What was missed while the thread did not run is made up for, but never so fast that a queue of
// net.core.netdev_max_backlog (1,000) runs over.
constexpr uint64_t kLargestBurst = 200;

constexpr uint16_t kFirstPort = 1024;
constexpr uint64_t kPorts = 60000;

constexpr int kReceiveBuffer = 8 << 20;
constexpr timeval kReceivePatience = {.tv_sec = 0, .tv_usec = 50000};

// Its payload is its number.
PacketBytes NumberedPacket(const StreamPath& path, uint64_t number) {
  const IpEnds ends = {path.first_source + static_cast<uint32_t>(number / kPorts),
                       path.destination};
  const Ports ports = {static_cast<uint16_t>(kFirstPort + number % kPorts), path.port};
  PacketBytes text(sizeof(uint32_t));
  const uint32_t in_order = htonl(static_cast<uint32_t>(number));
  std::memcpy(text.data(), &in_order, sizeof(in_order));
  return UdpPacket(ends, static_cast<uint16_t>(number), ports, text);
}

int ListeningAt(uint32_t host_address, uint16_t port) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(host_address);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
      << "port " << port << ": " << std::strerror(errno);
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBuffer, sizeof(kReceiveBuffer)), 0);
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kReceivePatience, sizeof(kReceivePatience)),
            0);
  return fd;
}

}  // namespace

PacketSender::PacketSender(const StreamPath& path, int per_second)
    : path_(path),
      per_second_(per_second),
      to_(WireAddress(path.interface, path.mac)),
      fd_(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
      thread_([this] { Run(); }) {}

PacketSender::~PacketSender() {
  Stop();
  close(fd_);
}

uint64_t PacketSender::Stop() {
  stopped_ = true;
  if (thread_.joinable()) thread_.join();
  return sent_;
}

void PacketSender::Run() {
  const absl::Time start = absl::Now();
  while (!stopped_) {
    const double due = absl::ToDoubleSeconds(absl::Now() - start) * per_second_;
    const uint64_t end = std::min(static_cast<uint64_t>(due), sent_ + kLargestBurst);
    for (; sent_ < end; ++sent_) {
      const PacketBytes packet = NumberedPacket(path_, sent_);
      const ssize_t taken = sendto(fd_, packet.data(), packet.size(), 0,
                                   reinterpret_cast<const sockaddr*>(&to_), sizeof(to_));
      EXPECT_GT(taken, 0) << path_.interface << ": " << std::strerror(errno);
      if (taken <= 0) return;
    }
    absl::SleepFor(kBetweenBursts);
  }
}

uint32_t Received::LongestGap() const {
  uint32_t longest = 0;
  std::optional<uint32_t> last;
  for (const uint32_t number : numbers) {
    if (last) longest = std::max(longest, number - *last - 1);
    last = number;
  }
  return longest;
}

PacketTaker::PacketTaker(uint32_t address, uint16_t port)
    : fd_(ListeningAt(address, port)), thread_([this] { Run(); }) {}

PacketTaker::~PacketTaker() {
  stopped_ = true;
  thread_.join();
  close(fd_);
}

Received PacketTaker::received() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return received_;
}

void PacketTaker::Forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  received_ = Received();
}

void PacketTaker::Run() {
  while (!stopped_) {
    sockaddr_in from = {};
    socklen_t length = sizeof(from);
    std::array<uint8_t, 64> payload = {};
    const ssize_t size = recvfrom(fd_, payload.data(), payload.size(), 0,
                                  reinterpret_cast<sockaddr*>(&from), &length);
    if (size < 0) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    ++received_.packets;
    ++received_.sources[ntohl(from.sin_addr.s_addr)];
    uint32_t number = 0;
    if (size != sizeof(number)) continue;
    std::memcpy(&number, payload.data(), sizeof(number));
    received_.numbers.insert(ntohl(number));
  }
}

}  // namespace kipt::testing
