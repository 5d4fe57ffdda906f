// SPDX-License-Identifier: Apache-2.0
//
// UDP at a steady rate, every packet of a connection of its own: nat sees only the first packet of
// a connection, so only new connections show its current rules.
#ifndef KIPT_TESTS_SUPPORT_PACKET_STREAM_H_
#define KIPT_TESTS_SUPPORT_PACKET_STREAM_H_

#include <linux/if_packet.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace kipt::testing {

// Where packets go and come from. Addresses are in host order, as in raw_packet.h.
struct StreamPath {
  // Of the calling thread's network namespace.
  std::string interface;
  // Of the neighbour there, 6 bytes: packets go past routing and all hooks.
  std::vector<uint8_t> mac;
  // Every 60,000 packets the next address: 60,000 source ports each.
  uint32_t first_source = 0;
  uint32_t destination = 0;
  uint16_t port = 0;
};

// Sends from its constructor on. Errors fail the test.
class PacketSender {
 public:
  PacketSender(const StreamPath& path, int per_second);
  ~PacketSender();
  PacketSender(const PacketSender&) = delete;
  PacketSender& operator=(const PacketSender&) = delete;

  // Sends no more. How many packets the kernel took, which are numbered from 0.
  uint64_t Stop();

 private:
  void Run();

  const StreamPath path_;
  const int per_second_;
  const sockaddr_ll to_;
  const int fd_;
  std::atomic<bool> stopped_ = false;
  std::atomic<uint64_t> sent_ = 0;
  // Last: it uses all of them.
  std::thread thread_;
};

// Of a PacketSender's packets, those that came.
struct Received {
  uint64_t packets = 0;
  // By source address.
  std::map<uint32_t, uint64_t> sources;
  // The numbers of the packets.
  std::set<uint32_t> numbers;

  // The longest run of packets between the first and the last that came of which none did.
  uint32_t LongestGap() const;
};

// Takes UDP from its constructor on, in the calling thread's network namespace.
class PacketTaker {
 public:
  PacketTaker(uint32_t address, uint16_t port);
  ~PacketTaker();
  PacketTaker(const PacketTaker&) = delete;
  PacketTaker& operator=(const PacketTaker&) = delete;

  Received received() const;
  // Counts from nothing again.
  void Forget();

 private:
  void Run();

  const int fd_;
  std::atomic<bool> stopped_ = false;
  mutable std::mutex mutex_;
  Received received_;
  std::thread thread_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_PACKET_STREAM_H_
