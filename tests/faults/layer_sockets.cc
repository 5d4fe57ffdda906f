// SPDX-License-Identifier: Apache-2.0
//
// Sockets: the kernel's netlink, and the streams of the programs that are run.
#include <linux/netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "tests/faults/layer.h"
#include "tests/faults/spoil.h"

namespace kipt::testing {
namespace {

constexpr uint32_t kAnotherPort = 4711;

struct Datagram {
  std::vector<char> bytes;
  sockaddr_nl sender = {};
  bool truncated = false;
};

// What is still to be received, because there was no room for it.
std::deque<Datagram> g_more;
int g_next_error = 0;

nlmsghdr* FirstMessage(Datagram& datagram) {
  return datagram.bytes.size() < sizeof(nlmsghdr)
             ? nullptr
             : reinterpret_cast<nlmsghdr*>(datagram.bytes.data());
}

// Counts the messages of a datagram, and their attributes, and spoils the one that is due.
void SpoilMessages(Datagram& datagram) {
  size_t left = datagram.bytes.size();
  char* at = datagram.bytes.data();
  while (left >= sizeof(nlmsghdr)) {
    auto* message = reinterpret_cast<nlmsghdr*>(at);
    const size_t size = message->nlmsg_len;
    if (size < sizeof(nlmsghdr) || size > left) return;
    const FaultRow* row = Meet(Point::kMessage);
    if (row == nullptr && HasAttributes(message, size)) row = Meet(Point::kAttribute);
    if (row != nullptr) SpoilMessage(*row, message, size);
    const size_t step = std::min<size_t>(NLMSG_ALIGN(size), left);
    at += step;
    left -= step;
  }
}

// A copy that somebody else sent, and that says no.
Datagram Forge(const Datagram& datagram) {
  Datagram forged = datagram;
  forged.sender.nl_pid = kAnotherPort;
  const FaultRow refused = {Point::kMessage, "", Kind::kRefused, EPERM};
  if (nlmsghdr* message = FirstMessage(forged)) {
    SpoilMessage(refused, message, std::min<size_t>(message->nlmsg_len, forged.bytes.size()));
  }
  return forged;
}

// What of `datagram` arrives.
void Deliver(Datagram datagram, std::vector<Datagram>& arrived) {
  const FaultRow* row = Meet(Point::kDatagram);
  const Kind kind = row != nullptr ? row->kind : Kind::kErrno;
  if (kind == Kind::kLost || kind == Kind::kFromAnother) {
    const nlmsghdr* message = FirstMessage(datagram);
    if (message != nullptr && IsPartOfADump(message)) g_next_error = ENOBUFS;
  }
  if (kind == Kind::kLost) return;
  if (kind == Kind::kTruncated) {
    datagram.truncated = true;
    datagram.bytes.resize(datagram.bytes.size() / 2);
  }
  if (kind == Kind::kFromAnother) datagram.sender.nl_pid = kAnotherPort;
  if (kind == Kind::kForged) arrived.push_back(Forge(datagram));
  if (kind == Kind::kDuplicated) arrived.push_back(datagram);
  if (row == nullptr) SpoilMessages(datagram);
  arrived.push_back(std::move(datagram));
}

std::vector<Datagram> Take(mmsghdr* headers, int count) {
  std::vector<Datagram> arrived;
  for (int i = 0; i < count; ++i) {
    Datagram datagram;
    const msghdr& header = headers[i].msg_hdr;
    const char* start = static_cast<const char*>(header.msg_iov[0].iov_base);
    datagram.bytes.assign(start,
                          start + std::min<size_t>(headers[i].msg_len, header.msg_iov[0].iov_len));
    datagram.truncated = (header.msg_flags & MSG_TRUNC) != 0;
    if (header.msg_name != nullptr && header.msg_namelen >= sizeof(sockaddr_nl)) {
      std::memcpy(&datagram.sender, header.msg_name, sizeof(sockaddr_nl));
    }
    Deliver(std::move(datagram), arrived);
  }
  return arrived;
}

void Put(const Datagram& datagram, mmsghdr& header) {
  iovec& part = header.msg_hdr.msg_iov[0];
  const size_t size = std::min(datagram.bytes.size(), part.iov_len);
  std::memcpy(part.iov_base, datagram.bytes.data(), size);
  header.msg_len = static_cast<unsigned int>(size);
  header.msg_hdr.msg_flags = datagram.truncated ? MSG_TRUNC : 0;
  if (header.msg_hdr.msg_name != nullptr) {
    header.msg_hdr.msg_namelen = sizeof(sockaddr_nl);
    std::memcpy(header.msg_hdr.msg_name, &datagram.sender, sizeof(sockaddr_nl));
  }
}

// The queue was full: what is in it is lost, and the kernel says so.
int Overflow(int fd) {
  static auto* const real = Real<ssize_t(int, void*, size_t, int)>("recv");
  char byte = 0;
  while (real(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) >= 0) {
  }
  errno = ENOBUFS;
  return -1;
}

}  // namespace
}  // namespace kipt::testing

using kipt::testing::Armed;
using kipt::testing::DomainOf;
using kipt::testing::FailWith;
using kipt::testing::FaultRow;
using kipt::testing::Kind;
using kipt::testing::Meet;
using kipt::testing::Point;
using kipt::testing::Real;

extern "C" {

int socket(int domain, int type, int protocol) {
  static auto* const real = Real<int(int, int, int)>("socket");
  const FaultRow* row = domain == AF_NETLINK ? Meet(Point::kSocket) : nullptr;
  return row != nullptr ? FailWith(*row) : real(domain, type, protocol);
}

int bind(int fd, const sockaddr* address, socklen_t size) {
  static auto* const real = Real<int(int, const sockaddr*, socklen_t)>("bind");
  const FaultRow* row = DomainOf(fd) == AF_NETLINK ? Meet(Point::kBind) : nullptr;
  return row != nullptr ? FailWith(*row) : real(fd, address, size);
}

int getsockname(int fd, sockaddr* address, socklen_t* size) noexcept {
  static auto* const real = Real<int(int, sockaddr*, socklen_t*)>("getsockname");
  const FaultRow* row = DomainOf(fd) == AF_NETLINK ? Meet(Point::kGetsockname) : nullptr;
  return row != nullptr ? FailWith(*row) : real(fd, address, size);
}

int setsockopt(int fd, int level, int name, const void* value, socklen_t size) noexcept {
  static auto* const real = Real<int(int, int, int, const void*, socklen_t)>("setsockopt");
  const FaultRow* row = DomainOf(fd) == AF_NETLINK ? Meet(Point::kSetsockopt) : nullptr;
  return row != nullptr ? FailWith(*row) : real(fd, level, name, value, size);
}

int getsockopt(int fd, int level, int name, void* value, socklen_t* size) noexcept {
  static auto* const real = Real<int(int, int, int, void*, socklen_t*)>("getsockopt");
  const FaultRow* row = DomainOf(fd) == AF_NETLINK ? Meet(Point::kGetsockopt) : nullptr;
  return row != nullptr ? FailWith(*row) : real(fd, level, name, value, size);
}

int socketpair(int domain, int type, int protocol, int ends[2]) noexcept {
  static auto* const real = Real<int(int, int, int, int*)>("socketpair");
  const FaultRow* row = Meet(Point::kSocketpair);
  return row != nullptr ? FailWith(*row) : real(domain, type, protocol, ends);
}

ssize_t sendto(int fd, const void* bytes, size_t size, int flags, const sockaddr* address,
               socklen_t address_size) {
  static auto* const real =
      Real<ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t)>("sendto");
  const FaultRow* row = DomainOf(fd) == AF_NETLINK ? Meet(Point::kSend) : nullptr;
  if (row != nullptr && row->kind == Kind::kErrno) return FailWith(*row);
  if (row != nullptr && row->kind == Kind::kLost) return static_cast<ssize_t>(size);
  if (row != nullptr) size /= 2;
  return real(fd, bytes, size, flags, address, address_size);
}

ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  static auto* const real = Real<ssize_t(int, const void*, size_t, int)>("send");
  const FaultRow* row = DomainOf(fd) == AF_UNIX ? Meet(Point::kFeed) : nullptr;
  if (row != nullptr && row->kind == Kind::kErrno) return FailWith(*row);
  return real(fd, bytes, row != nullptr ? (size + 1) / 2 : size, flags);
}

ssize_t recv(int fd, void* bytes, size_t size, int flags) {
  static auto* const real = Real<ssize_t(int, void*, size_t, int)>("recv");
  const int domain = Armed() ? DomainOf(fd) : -1;
  const FaultRow* row = domain == AF_UNIX      ? Meet(Point::kOutput)
                        : domain == AF_NETLINK ? Meet(Point::kReceive)
                                               : nullptr;
  if (row != nullptr && row->kind == Kind::kErrno) return FailWith(*row);
  if (row != nullptr && row->kind == Kind::kOverflow) return kipt::testing::Overflow(fd);
  return real(fd, bytes, row != nullptr ? std::min<size_t>(size, 1) : size, flags);
}

int recvmmsg(int fd, mmsghdr* headers, unsigned int room, int flags, timespec* timeout) {
  using namespace kipt::testing;
  static auto* const real = Real<int(int, mmsghdr*, unsigned int, int, timespec*)>("recvmmsg");
  if (!Armed() || DomainOf(fd) != AF_NETLINK) return real(fd, headers, room, flags, timeout);
  const FaultRow* row = Meet(Point::kReceive);
  if (row != nullptr && row->kind == Kind::kErrno) return FailWith(*row);
  if (row != nullptr) return Overflow(fd);
  while (true) {
    if (g_next_error != 0) {
      errno = std::exchange(g_next_error, 0);
      return -1;
    }
    if (g_more.empty()) {
      const int count = real(fd, headers, room, flags, timeout);
      if (count < 0) return count;
      for (Datagram& datagram : Take(headers, count)) g_more.push_back(std::move(datagram));
    }
    int put = 0;
    for (; static_cast<unsigned int>(put) < room && !g_more.empty(); ++put) {
      Put(g_more.front(), headers[put]);
      g_more.pop_front();
    }
    if (put > 0) return put;
  }
}

}  // extern "C"
