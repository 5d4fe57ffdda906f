// SPDX-License-Identifier: Apache-2.0
#include "tests/support/echo_call.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/strip.h"
#include "tests/support/background_program.h"

namespace kipt::testing {
namespace {

constexpr int kTickMs = 20;
constexpr char kMapped[] = "::ffff:";

// An IPv4 address as the IPv6 one that a socket of both families knows it by.
sockaddr_in6 Address(const std::string& text, uint16_t port) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  const bool is_ipv6 = text.find(':') != std::string::npos;
  const std::string whole = is_ipv6 ? text : kMapped + text;
  EXPECT_EQ(inet_pton(AF_INET6, whole.c_str(), &address.sin6_addr), 1) << text;
  return address;
}

std::string TextOf(const sockaddr_in6& address) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
  return std::string(absl::StripPrefix(text, kMapped));
}

int SocketOf(Protocol protocol) {
  const int type = protocol == Protocol::kUdp ? SOCK_DGRAM : SOCK_STREAM;
  const int fd = socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int off = 0;
  EXPECT_EQ(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)), 0);
  return fd;
}

int BoundAt(Protocol protocol, const sockaddr_in6& address) {
  const int fd = SocketOf(protocol);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
      << TextOf(address) << " port " << ntohs(address.sin6_port) << ": " << std::strerror(errno);
  return fd;
}

// False: the other end has closed it.
bool AnswerDatagramOrStream(int fd) {
  std::array<char, 64> message = {};
  sockaddr_in6 from = {};
  socklen_t length = sizeof(from);
  const ssize_t size =
      recvfrom(fd, message.data(), message.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
  if (size <= 0) return size < 0 && errno == EAGAIN;
  const bool stream = length == 0;
  if (stream) {
    length = sizeof(from);
    getpeername(fd, reinterpret_cast<sockaddr*>(&from), &length);
  }
  const std::string answer = TextOf(from);
  sendto(fd, answer.data(), answer.size(), MSG_NOSIGNAL,
         stream ? nullptr : reinterpret_cast<const sockaddr*>(&from), stream ? 0 : length);
  return true;
}

}  // namespace

const char* NameOf(Protocol protocol) { return protocol == Protocol::kUdp ? "udp" : "tcp"; }

EchoServer::EchoServer(const std::vector<uint16_t>& ports) {
  for (const uint16_t port : ports) {
    datagrams_.push_back(BoundAt(Protocol::kUdp, Address("::", port)));
    listeners_.push_back(BoundAt(Protocol::kTcp, Address("::", port)));
    EXPECT_EQ(listen(listeners_.back(), SOMAXCONN), 0);
  }
  thread_ = std::thread([this] { Run(); });
}

EchoServer::~EchoServer() {
  stopped_ = true;
  thread_.join();
  for (const auto* fds : {&datagrams_, &listeners_, &connections_}) {
    for (const int fd : *fds) close(fd);
  }
}

void EchoServer::Run() {
  while (!stopped_) {
    std::vector<pollfd> polled;
    for (const auto* fds : {&datagrams_, &listeners_, &connections_}) {
      for (const int fd : *fds) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    poll(polled.data(), polled.size(), kTickMs);
    const size_t first_listener = datagrams_.size();
    const size_t first_connection = first_listener + listeners_.size();
    std::vector<int> open;
    for (size_t i = 0; i < polled.size(); ++i) {
      const int fd = polled[i].fd;
      const bool ready = polled[i].revents != 0;
      if (i >= first_listener && i < first_connection) {
        const int accepted =
            ready ? accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
        if (accepted >= 0) open.push_back(accepted);
        continue;
      }
      const bool goes_on = !ready || AnswerDatagramOrStream(fd);
      if (i < first_connection) continue;
      goes_on ? open.push_back(fd) : static_cast<void>(close(fd));
    }
    connections_ = std::move(open);
  }
}

EchoCall::EchoCall(const Ends& ends) : fd_(SocketOf(ends.protocol)) {
  if (!ends.source.empty()) {
    const sockaddr_in6 source = Address(ends.source, 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&source), sizeof(source)), 0)
        << ends.source << ": " << std::strerror(errno);
  }
  const sockaddr_in6 target = Address(ends.address, ends.port);
  const int result = connect(fd_, reinterpret_cast<const sockaddr*>(&target), sizeof(target));
  EXPECT_TRUE(result == 0 || errno == EINPROGRESS || errno == EPERM)
      << ends.address << ": " << std::strerror(errno);
}

EchoCall::~EchoCall() {
  if (fd_ >= 0) close(fd_);
}

EchoCall::EchoCall(EchoCall&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      unsent_(other.unsent_),
      answer_(std::move(other.answer_)) {}

void EchoCall::Begin() {
  unsent_ = true;
  answer_.clear();
  Answered();
}

bool EchoCall::Answered() {
  // EPERM is how a dropped packet of OUTPUT's shows: it is not sent again.
  if (unsent_) unsent_ = send(fd_, "?", 1, MSG_NOSIGNAL) < 0 && errno != EPERM;
  std::array<char, 64> message = {};
  const ssize_t size = recv(fd_, message.data(), message.size(), 0);
  if (size > 0) answer_.assign(message.data(), static_cast<size_t>(size));
  return !answer_.empty();
}

std::map<std::string, std::string> EchoCall::AskAll(std::map<std::string, EchoCall>& calls,
                                                    absl::Duration patience) {
  for (auto& [name, call] : calls) call.Begin();
  const auto count = [&] {
    return std::count_if(calls.begin(), calls.end(), [](auto& call) {
      return !call.second.answer_.empty() || call.second.Answered();
    });
  };
  auto answered = count();
  while (answered < std::ssize(calls) &&
         WaitUntil([&, before = answered] { return (answered = count()) > before; }, patience)) {
  }
  std::map<std::string, std::string> answers;
  for (const auto& [name, call] : calls) answers[name] = call.answer_;
  return answers;
}

}  // namespace kipt::testing
