// SPDX-License-Identifier: Apache-2.0
//
// Which calls get through, from which address, and whether the answer finds its way back: UDP and
// TCP, IPv4 and IPv6.
#ifndef KIPT_TESTS_SUPPORT_ECHO_CALL_H_
#define KIPT_TESTS_SUPPORT_ECHO_CALL_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace kipt::testing {

enum class Protocol : uint8_t { kUdp, kTcp };
inline constexpr Protocol kBothProtocols[] = {Protocol::kUdp, Protocol::kTcp};
const char* NameOf(Protocol protocol);  // "udp", "tcp"

// Answers each message, from its constructor on, with the address that the caller has here
// ("10.0.0.1"); at each of `ports`, in the network namespace of the thread that made it.
class EchoServer {
 public:
  explicit EchoServer(const std::vector<uint16_t>& ports);
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

 private:
  void Run();

  std::vector<int> datagrams_;
  std::vector<int> listeners_;
  std::vector<int> connections_;
  std::atomic<bool> stopped_ = false;
  // Last: it uses all of them.
  std::thread thread_;
};

// One connection (of UDP too: two ports), in the network namespace of the thread that made it.
class EchoCall {
 public:
  struct Ends {
    Protocol protocol = Protocol::kUdp;
    std::string address;
    uint16_t port = 0;
    // Of the caller; empty: the route's.
    std::string source = {};
  };

  explicit EchoCall(const Ends& ends);
  ~EchoCall();
  EchoCall(EchoCall&& other) noexcept;
  EchoCall& operator=(EchoCall&&) = delete;

  // Sends a message to each, one by one, and waits until all are answered, or for `patience` no
  // more answers have come. What each was answered, by the same key; empty where nothing came.
  static std::map<std::string, std::string> AskAll(std::map<std::string, EchoCall>& calls,
                                                   absl::Duration patience);

 private:
  void Begin();
  // Sends what could not be sent yet, and checks for the answer.
  bool Answered();

  int fd_ = -1;
  bool unsent_ = false;
  std::string answer_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_ECHO_CALL_H_
