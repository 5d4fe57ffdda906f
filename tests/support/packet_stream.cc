// SPDX-License-Identifier: Apache-2.0
#include "tests/support/packet_stream.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
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

constexpr size_t kAtOnce = 64;
constexpr absl::Duration kBetweenBursts = absl::Milliseconds(5);
// What was missed while the thread did not run is made up for, but never so fast that a queue of
// net.core.netdev_max_backlog (1,000) runs over.
constexpr uint64_t kLargestBurst = 200;

constexpr uint16_t kFirstPort = 1024;
constexpr uint64_t kPorts = 60000;

constexpr int kReceiveBuffer = 8 << 20;
constexpr timeval kReceivePatience = {.tv_sec = 0, .tv_usec = 50000};

void Append(const std::vector<uint8_t>& bytes, PacketBytes& frame) {
  frame.insert(frame.end(), bytes.begin(), bytes.end());
}

// Ethernet's header and the packet, whose last four bytes are its number.
PacketBytes NumberedFrame(const StreamPath& path, uint64_t number) {
  const std::vector<uint8_t> sender = {2, 0, 0, 0, 0, 0xff};
  const IpEnds ends = {path.first_source + static_cast<uint32_t>(number / kPorts),
                       path.destination};
  const Ports ports = {static_cast<uint16_t>(kFirstPort + number % kPorts), path.port};
  PacketBytes frame = path.mac;
  Append(sender, frame);
  Append({ETHERTYPE_IP >> 8, ETHERTYPE_IP & 0xff}, frame);
  Append(UdpPacket(ends, static_cast<uint16_t>(number), ports), frame);
  const uint32_t text = htonl(static_cast<uint32_t>(number));
  std::memcpy(frame.data() + frame.size() - sizeof(text), &text, sizeof(text));
  return frame;
}

int BoundTo(const std::string& interface) {
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  EXPECT_NE(address.sll_ifindex, 0) << interface << ": " << std::strerror(errno);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
      << "a packet socket: " << std::strerror(errno);
  return fd;
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
      fd_(BoundTo(path.interface)),
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
    while (sent_ < end) {
      if (!Send(std::min<uint64_t>(end - sent_, kAtOnce))) return;
    }
    absl::SleepFor(kBetweenBursts);
  }
}

bool PacketSender::Send(uint64_t count) {
  std::vector<PacketBytes> frames;
  for (uint64_t i = 0; i < count; ++i) frames.push_back(NumberedFrame(path_, sent_ + i));
  std::vector<iovec> texts;
  for (PacketBytes& frame : frames) texts.push_back({frame.data(), frame.size()});
  std::vector<mmsghdr> messages(frames.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    messages[i].msg_hdr.msg_iov = &texts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int taken = sendmmsg(fd_, messages.data(), static_cast<unsigned>(messages.size()), 0);
  EXPECT_GT(taken, 0) << "sendmmsg: " << std::strerror(errno);
  if (taken <= 0) return false;
  sent_ += static_cast<uint64_t>(taken);
  return true;
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
  std::array<sockaddr_in, kAtOnce> from = {};
  std::array<std::array<uint8_t, 64>, kAtOnce> payloads = {};
  std::array<iovec, kAtOnce> texts = {};
  std::array<mmsghdr, kAtOnce> messages = {};
  while (!stopped_) {
    for (size_t i = 0; i < kAtOnce; ++i) {
      texts[i] = {payloads[i].data(), payloads[i].size()};
      messages[i].msg_hdr = {.msg_name = &from[i],
                             .msg_namelen = sizeof(from[i]),
                             .msg_iov = &texts[i],
                             .msg_iovlen = 1,
                             .msg_control = nullptr,
                             .msg_controllen = 0,
                             .msg_flags = 0};
    }
    const int count = recvmmsg(fd_, messages.data(), kAtOnce, MSG_WAITFORONE, nullptr);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; static_cast<int>(i) < count; ++i) {
      ++received_.packets;
      ++received_.sources[ntohl(from[i].sin_addr.s_addr)];
      uint32_t number = 0;
      if (messages[i].msg_len != sizeof(number)) continue;
      std::memcpy(&number, payloads[i].data(), sizeof(number));
      received_.numbers.insert(ntohl(number));
    }
  }
}

}  // namespace kipt::testing
