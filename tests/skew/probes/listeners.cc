// SPDX-License-Identifier: Apache-2.0
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/skew/probes/callers.h"
#include "tests/skew/probes/packets.h"

namespace kipt::skew {
namespace {

using agent::OwnedFd;
using testing::InNetns;
using testing::IpFamily;

constexpr int kOn = 1;

bool Set(const OwnedFd& fd, int level, int option) {
  return setsockopt(fd.get(), level, option, &kOn, sizeof(kOn)) == 0;
}

// A message of recvmsg() that holds the address it came to, as sendmsg() takes it to answer from
// there.
struct Datagram {
  Datagram() {
    header.msg_name = &source.storage;
    header.msg_namelen = sizeof(source.storage);
    header.msg_iov = &content;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  Datagram(const Datagram&) = delete;
  Datagram& operator=(const Datagram&) = delete;

  SocketAddress source;
  std::array<uint8_t, kMessageBytes + 1> bytes = {};
  alignas(cmsghdr) std::array<uint8_t, 64> control = {};
  iovec content = {bytes.data(), bytes.size()};
  msghdr header = {};
};

// The interface is left to routing; the address stays.
void ForgetInterface(msghdr& header) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level == SOL_IP && part->cmsg_type == IP_PKTINFO) {
      auto* info = reinterpret_cast<in_pktinfo*>(CMSG_DATA(part));
      info->ipi_ifindex = 0;
      info->ipi_spec_dst = info->ipi_addr;
    }
    if (part->cmsg_level == SOL_IPV6 && part->cmsg_type == IPV6_PKTINFO) {
      reinterpret_cast<in6_pktinfo*>(CMSG_DATA(part))->ipi6_ifindex = 0;
    }
  }
}

MessageBytes Answer(Message question, Place place) {
  question.answerer = 1 + static_cast<uint32_t>(place);
  return BytesOf(question);
}

}  // namespace

absl::StatusOr<OwnedFd> BoundSocket(IpFamily family, int type, int port) {
  const bool v6 = family == IpFamily::kIpv6;
  OwnedFd fd(socket(DomainOf(family), type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketAddress any = AnyAddress(family, port);
  const bool done = fd.valid() && (type != SOCK_STREAM || Set(fd, SOL_SOCKET, SO_REUSEADDR)) &&
                    (!v6 || Set(fd, SOL_IPV6, IPV6_V6ONLY)) &&
                    (v6 ? Set(fd, SOL_IPV6, IPV6_TRANSPARENT) : Set(fd, SOL_IP, IP_TRANSPARENT)) &&
                    (v6 ? Set(fd, SOL_IPV6, IPV6_RECVPKTINFO) : Set(fd, SOL_IP, IP_PKTINFO)) &&
                    bind(fd.get(), any.get(), any.size) == 0 &&
                    (type != SOCK_STREAM || listen(fd.get(), SOMAXCONN) == 0);
  if (!done) return absl::ErrnoToStatus(errno, absl::StrCat("listening at port ", port));
  return fd;
}

absl::StatusOr<std::unique_ptr<Listeners>> Listeners::Open(
    const TestNode& node, const std::vector<ListenerPorts>& ports) {
  std::unique_ptr<Listeners> listeners(new Listeners());
  listeners->epoll_ = OwnedFd(epoll_create1(EPOLL_CLOEXEC));
  if (!listeners->epoll_.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  absl::Status status = listeners->WatchSyns(node);
  for (const ListenerPorts& at_place : ports) {
    if (status.ok()) status = listeners->Listen(node, at_place);
  }
  if (!status.ok()) return status;
  return listeners;
}

absl::Status Listeners::Listen(const TestNode& node, const ListenerPorts& ports) {
  const InNetns inside(node.At(ports.place));
  for (const int port : ports.ports) {
    for (const IpFamily family : {IpFamily::kIpv4, IpFamily::kIpv6}) {
      for (const int type : {SOCK_DGRAM, SOCK_STREAM}) {
        absl::StatusOr<OwnedFd> fd = BoundSocket(family, type, port);
        if (!fd.ok()) return fd.status();
        const Kind kind = type == SOCK_DGRAM ? Kind::kDatagrams : Kind::kConnections;
        if (absl::Status status = Add(kind, ports.place, *std::move(fd)); !status.ok()) {
          return status;
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Listeners::WatchSyns(const TestNode& node) {
  const InNetns inside(node.At(Place::kNode));
  OwnedFd fd(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  // Of all that comes, what has SYN and not ACK.
  std::array<sock_filter, 6> program = {{
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_IND, 13),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, TH_SYN | TH_ACK),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TH_SYN, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0xffff),
      BPF_STMT(BPF_RET | BPF_K, 0),
  }};
  const sock_fprog filter = {static_cast<uint16_t>(program.size()), program.data()};
  if (!fd.valid() ||
      setsockopt(fd.get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) != 0) {
    return absl::ErrnoToStatus(errno, "a raw socket");
  }
  return Add(Kind::kSynObserver, Place::kNode, std::move(fd));
}

absl::Status Listeners::Add(Kind kind, Place place, OwnedFd fd) {
  if (absl::Status status = Watch(epoll_.get(), fd.get(), EPOLLIN); !status.ok()) return status;
  const int key = fd.get();
  sockets_.insert_or_assign(key, Socket{kind, place, std::move(fd)});
  return absl::OkStatus();
}

std::vector<Receipt> Listeners::Serve() {
  std::vector<Receipt> receipts;
  std::array<epoll_event, 64> events = {};
  int count = 0;
  while ((count = epoll_wait(epoll_.get(), events.data(), events.size(), 0)) > 0) {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const auto found = sockets_.find(events[i].data.fd);
      if (found == sockets_.end()) continue;
      switch (found->second.kind) {
        case Kind::kDatagrams:
          ServeDatagrams(found->second, receipts);
          break;
        case Kind::kConnections:
          Accept(found->second);
          break;
        case Kind::kConnection:
          if (!ServeConnection(found->second, receipts)) sockets_.erase(found);
          break;
        case Kind::kSynObserver:
          ServeSyns(found->second, receipts);
          break;
      }
    }
  }
  return receipts;
}

void Listeners::HangUp() {
  std::erase_if(sockets_, [](const auto& one) { return one.second.kind == Kind::kConnection; });
}

void Listeners::ServeDatagrams(const Socket& socket, std::vector<Receipt>& receipts) {
  for (;;) {
    Datagram datagram;
    const ssize_t size = recvmsg(socket.fd.get(), &datagram.header, 0);
    if (size < 0) return;
    const std::optional<Message> question =
        MessageIn<Message>(datagram.bytes.data(), static_cast<size_t>(size));
    if (!question.has_value()) continue;
    receipts.push_back({socket.place, *question, datagram.source.Text()});
    const MessageBytes answer = Answer(*question, socket.place);
    std::memcpy(datagram.bytes.data(), answer.data(), answer.size());
    datagram.content.iov_len = answer.size();
    ForgetInterface(datagram.header);
    // An answer that cannot be sent is lost: the caller reports that.
    sendmsg(socket.fd.get(), &datagram.header, 0);
  }
}

void Listeners::Accept(const Socket& socket) {
  for (;;) {
    OwnedFd fd(accept4(socket.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) return;
    // Either end's close sends RST: nothing lingers.
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    // One that cannot be watched is closed: the caller reports that.
    Add(Kind::kConnection, socket.place, std::move(fd)).IgnoreError();
  }
}

bool Listeners::ServeConnection(const Socket& socket, std::vector<Receipt>& receipts) {
  MessageBytes bytes = {};
  const ssize_t size = recv(socket.fd.get(), bytes.data(), bytes.size(), 0);
  if (size < 0 && errno == EAGAIN) return true;
  const std::optional<Message> question =
      size > 0 ? MessageIn<Message>(bytes.data(), static_cast<size_t>(size)) : std::nullopt;
  SocketAddress source;
  if (!question.has_value() || getpeername(socket.fd.get(), source.get(), &source.size) != 0) {
    return false;
  }
  receipts.push_back({socket.place, *question, source.Text()});
  const MessageBytes answer = Answer(*question, socket.place);
  // The caller hangs up first, when it has read it.
  return send(socket.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL) > 0;
}

void Listeners::ServeSyns(const Socket& socket, std::vector<Receipt>& receipts) {
  constexpr size_t kLength = 20 + 20 + kMessageBytes;
  for (;;) {
    std::array<uint8_t, kLength + 1> packet = {};
    SocketAddress source;
    const ssize_t size =
        recvfrom(socket.fd.get(), packet.data(), packet.size(), 0, source.get(), &source.size);
    if (size < 0) return;
    if (static_cast<size_t>(size) != TcpFrameLength(kMessageBytes)) continue;
    const std::optional<Message> question =
        MessageIn<Message>(packet.data() + kLength - kMessageBytes, kMessageBytes);
    receipts.push_back({socket.place, *question, source.Text()});
  }
}

}  // namespace kipt::skew
