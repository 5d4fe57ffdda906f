// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/callers.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/skew/probes/packets.h"

namespace kipt::skew {
namespace {

using agent::OwnedFd;
using testing::InNetns;
using testing::IpFamily;

bool IsMartian(const Probe& probe) { return probe.kind == ProbeKind::kMartian; }

// A socket that reports every ICMP error, and whose connection ends without lingering.
absl::StatusOr<OwnedFd> CallingSocket(const Probe& probe) {
  const bool tcp = probe.protocol == Protocol::kTcp;
  OwnedFd fd(socket(DomainOf(probe.family),
                    (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("a socket for ", probe.name));
  const int on = 1;
  if (tcp) {
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    setsockopt(fd.get(), SOL_TCP, TCP_SYNCNT, &on, sizeof(on));
    setsockopt(fd.get(), SOL_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  if (probe.family == IpFamily::kIpv6) {
    setsockopt(fd.get(), SOL_IPV6, IPV6_RECVERR, &on, sizeof(on));
  } else {
    setsockopt(fd.get(), SOL_IP, IP_RECVERR, &on, sizeof(on));
  }
  return fd;
}

// The error of an ICMP message in the socket's queue. TCP gets one there also where it ignores it:
// one that comes back before connect(2) has returned.
int QueuedError(const OwnedFd& fd) {
  alignas(cmsghdr) std::array<uint8_t, 512> control = {};
  msghdr header = {};
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  if (recvmsg(fd.get(), &header, MSG_ERRQUEUE) < 0) return 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    const bool is_error = (part->cmsg_level == SOL_IP && part->cmsg_type == IP_RECVERR) ||
                          (part->cmsg_level == SOL_IPV6 && part->cmsg_type == IPV6_RECVERR);
    if (!is_error) continue;
    sock_extended_err error = {};
    std::memcpy(&error, CMSG_DATA(part), sizeof(error));
    return static_cast<int>(error.ee_errno);
  }
  return 0;
}

// A hook of the caller's own dropped the packet: it hears nothing more, like from any other hook.
bool DroppedAtHome(int error) { return error == EPERM; }

}  // namespace

Round::Round(const TestNode& node, const std::vector<Probe>& probes, CallTools& tools,
             const Message& label)
    : node_(node),
      probes_(probes),
      tools_(tools),
      label_(label),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  // A descriptor it cannot watch only makes the round slower: every descriptor is also polled.
  Watch(epoll_.get(), tools_.listeners->poll_fd(), EPOLLIN).IgnoreError();
}

Round::~Round() {
  // The node's end of a martian connection would ask again for the rest of its handshake.
  for (const std::unique_ptr<Call>& call : calls_) {
    const Probe& probe = probes_[call->probe];
    if (!IsMartian(probe) || probe.protocol != Protocol::kTcp || call->receipts.empty()) continue;
    const absl::StatusOr<FrameSender> wire = FrameSender::OnWire(node_, probe.from);
    if (wire.ok()) wire->Send(MartianFrame(*call, testing::kTcpReset));
  }
  callers_.clear();
  tools_.listeners->HangUp();
}

absl::Status Round::Start(size_t probe, int connection) {
  calls_.push_back(std::make_unique<Call>(Call{.probe = probe, .connection = connection}));
  Call& call = *calls_.back();
  return IsMartian(probes_[probe]) ? StartMartian(call) : StartConnect(call);
}

absl::Status Round::StartConnect(Call& call) {
  const Probe& probe = probes_[call.probe];
  const bool tcp = probe.protocol == Protocol::kTcp;
  const absl::StatusOr<SocketAddress> to = AddressAt(probe.family, probe.address, probe.port);
  if (!to.ok()) return to.status();
  absl::StatusOr<OwnedFd> fd = absl::UnknownError("");
  {
    const InNetns inside(node_.At(probe.from));
    fd = CallingSocket(probe);
  }
  if (!fd.ok()) return fd.status();
  if (absl::Status status = TakePort(*fd, call); !status.ok()) return status;

  bool failed = connect(fd->get(), to->get(), to->size) != 0 && errno != EINPROGRESS;
  const MessageBytes question = BytesOf(MessageOf(call));
  if (!failed && !tcp) failed = send(fd->get(), question.data(), question.size(), 0) < 0;
  const int error = failed ? errno : 0;
  SocketAddress own;
  if (getsockname(fd->get(), own.get(), &own.size) == 0) call.own_address = own.Text();
  if (failed && !DroppedAtHome(error)) {
    call.error = error;
    call.refused_at_home = error != ECONNREFUSED;
    over_.push_back(&call);
    return absl::OkStatus();
  }
  const uint32_t events = EPOLLIN | (tcp ? EPOLLOUT : 0U);
  if (absl::Status status = Watch(epoll_.get(), fd->get(), events); !status.ok()) return status;
  const int key = fd->get();
  callers_.insert_or_assign(key, Caller{&call, *std::move(fd), tcp});
  return absl::OkStatus();
}

uint16_t Round::NextPort() {
  // Beyond node ports, which end at 32767.
  constexpr uint32_t kFirst = 33000;
  constexpr uint32_t kCount = 27000;
  return static_cast<uint16_t>(kFirst + tools_.next_port++ % kCount);
}

absl::Status Round::TakePort(const OwnedFd& fd, Call& call) {
  for (int i = 0; i < 100; ++i) {
    call.own_port = NextPort();
    const SocketAddress any = AnyAddress(probes_[call.probe].family, call.own_port);
    if (bind(fd.get(), any.get(), any.size) == 0) return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("binding to port ", call.own_port));
}

absl::Status Round::StartMartian(Call& call) {
  const Probe& probe = probes_[call.probe];
  if (probe.family != IpFamily::kIpv4) {
    return absl::InvalidArgumentError(absl::StrCat(probe.name, ": IPv6 has no such packets"));
  }
  const absl::StatusOr<FrameSender> wire = FrameSender::OnWire(node_, probe.from);
  if (!wire.ok()) return wire.status();
  call.own_address = AddressOf(probe.from, probe.family);
  call.own_port = NextPort();
  if (wire->Send(MartianFrame(call, testing::kTcpSyn))) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat(probe.name, ": sending a frame"));
}

FrameBytes Round::MartianFrame(const Call& call, uint8_t flags) const {
  const Probe& probe = probes_[call.probe];
  const FrameEnds ends = {probe.family, call.own_address, probe.address, call.own_port,
                          static_cast<uint16_t>(probe.port)};
  const MessageBytes question = BytesOf(MessageOf(call));
  if (probe.protocol == Protocol::kUdp) return UdpFrame(ends, question.data(), question.size());
  const auto sequence = static_cast<uint32_t>(label_.battery);
  if (flags == testing::kTcpReset) return TcpFrame(ends, sequence + 1, flags, nullptr, 0);
  return TcpFrame(ends, sequence, flags, question.data(), question.size());
}

absl::StatusOr<const Call*> Round::Next() {
  while (over_.empty()) {
    if (Serve()) continue;
    if (absl::Status status = tools_.barrier.Pass(); !status.ok()) return status;
    if (!Serve()) return nullptr;
  }
  const Call* call = over_.back();
  over_.pop_back();
  return call;
}

absl::Status Round::HangUp() {
  callers_.clear();
  return tools_.barrier.Pass();
}

bool Round::Serve() {
  std::array<epoll_event, 64> events = {};
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (size_t i = 0; static_cast<int>(i) < count; ++i) {
    const auto caller = callers_.find(events[i].data.fd);
    if (caller != callers_.end()) Hear(caller->second);
  }
  // After the callers: what they have sent is there by now.
  Receive();
  return count > 0;
}

void Round::Hear(Caller& caller) {
  Call& call = *caller.call;
  if (caller.connecting) {
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(caller.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    // No packet reports a time-out: TCP gave up, because this program was held up for seconds.
    const bool gave_up = error == ETIMEDOUT;
    if (error == 0 || gave_up) error = QueuedError(caller.fd);
    if (error == 0 && gave_up) {
      callers_.erase(caller.fd.get());
      return;
    }
    caller.connecting = false;
    call.error = error;
    if (error == 0) {
      call.connected = true;
      const MessageBytes question = BytesOf(MessageOf(call));
      if (send(caller.fd.get(), question.data(), question.size(), MSG_NOSIGNAL) < 0) {
        call.error = errno;
      }
      epoll_event interest = {};
      interest.events = EPOLLIN;
      interest.data.fd = caller.fd.get();
      epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, caller.fd.get(), &interest);
      if (call.error == 0) return;
    }
  } else if (!ReadAnswer(caller)) {
    return;
  }
  over_.push_back(&call);
  callers_.erase(caller.fd.get());
}

bool Round::ReadAnswer(Caller& caller) {
  Call& call = *caller.call;
  MessageBytes bytes = {};
  const ssize_t size = recv(caller.fd.get(), bytes.data(), bytes.size(), 0);
  if (size < 0 && errno == EAGAIN) return false;
  if (size <= 0) {
    call.error = size < 0 ? errno : ECONNRESET;
    return true;
  }
  std::optional<Message> answer = MessageIn<Message>(bytes.data(), static_cast<size_t>(size));
  if (!answer.has_value() || answer->answerer == 0) {
    call.error = EPROTO;
    return true;
  }
  call.answered_by = static_cast<Place>(answer->answerer - 1);
  answer->answerer = 0;
  if (!(*answer == MessageOf(call))) call.error = EPROTO;
  return true;
}

void Round::Receive() {
  for (Receipt& receipt : tools_.listeners->Serve()) {
    Call* call = CallOf(receipt.message);
    if (call == nullptr) continue;
    const bool first = call->receipts.empty();
    call->receipts.push_back(std::move(receipt));
    if (first && IsMartian(probes_[call->probe])) over_.push_back(call);
  }
}

Call* Round::CallOf(const Message& message) {
  for (const std::unique_ptr<Call>& call : calls_) {
    if (message == MessageOf(*call)) return call.get();
  }
  return nullptr;
}

Message Round::MessageOf(const Call& call) const {
  Message message = label_;
  message.probe = static_cast<uint32_t>(call.probe);
  message.connection = static_cast<uint32_t>(call.connection);
  return message;
}

}  // namespace kipt::skew
