// SPDX-License-Identifier: Apache-2.0
#include "netlink/socket.h"

#include <libmnl/libmnl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "netlink/kernel_error.h"
#include "netlink/nf_tables.h"

namespace kipt::netlink {
namespace {

constexpr size_t kDatagramBytes = size_t{64} << 10;
// A check of our own chains takes less; the rules of a whole node take half a megabyte.
constexpr size_t kUsualAnswerBytes = size_t{128} << 10;
constexpr char kReceiving[] = "receiving over netlink";
constexpr timeval kAnswerTimeout = {.tv_sec = 5, .tv_usec = 0};

void GrowBuffer(int fd, int force_option, int option, int bytes) {
  // The forced one needs CAP_NET_ADMIN, the other stops at net.core.*mem_max. A buffer that stays
  // too small causes an error later.
  if (setsockopt(fd, SOL_SOCKET, force_option, &bytes, sizeof(bytes)) != 0) {
    setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof(bytes));
  }
}

uint32_t FindAttributeOffset(const nlmsghdr* message, const nlmsgerr* error) {
  if ((message->nlmsg_flags & NLM_F_ACK_TLVS) == 0) return 0;
  const WireBytes rest(static_cast<const uint8_t*>(mnl_nlmsg_get_payload(message)),
                       mnl_nlmsg_get_payload_len(message));
  size_t skip = sizeof(nlmsgerr);
  // Without NLM_F_CAPPED the kernel echoes the whole request in front of the attributes.
  if ((message->nlmsg_flags & NLM_F_CAPPED) == 0) {
    if (error->msg.nlmsg_len < sizeof(nlmsghdr)) return 0;
    skip += MNL_ALIGN(size_t{error->msg.nlmsg_len}) - sizeof(nlmsghdr);
  }
  const Attributes attributes =
      Attributes::Parse(rest.subspan(std::min(skip, rest.size()))).value_or(Attributes());
  const std::optional<WireBytes> offset = attributes.Bytes(NLMSGERR_ATTR_OFFS);
  uint32_t value = 0;  // in host order, unlike nf_tables' own
  if (offset && offset->size() == sizeof(value)) {
    std::memcpy(&value, offset->data(), sizeof(value));
  }
  return value;
}

// The kernel's errors are negative, and none is beyond this (MAX_ERRNO, linux/err.h).
constexpr int kMostErrno = 4095;
int ErrnoOf(int error) { return error <= 0 && error >= -kMostErrno ? -error : EBADMSG; }

// NLMSG_ERROR; its error_number is 0 for an acknowledgement.
BatchError ParseError(const nlmsghdr* message) {
  if (mnl_nlmsg_get_payload_len(message) < sizeof(nlmsgerr)) {
    return BatchError{.sequence = message->nlmsg_seq, .error_number = EBADMSG};
  }
  const auto* error = static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(message));
  return BatchError{.sequence = message->nlmsg_seq,
                    .error_number = ErrnoOf(error->error),
                    .attribute_offset = FindAttributeOffset(message, error)};
}

// NLMSG_DONE carries the dump's error since Linux 2.6.
int DoneError(const nlmsghdr* message) {
  int error = 0;
  if (mnl_nlmsg_get_payload_len(message) >= sizeof(error)) {
    std::memcpy(&error, mnl_nlmsg_get_payload(message), sizeof(error));
  }
  return error < 0 ? ErrnoOf(error) : 0;
}

// Hands over the answers to the `count` requests from `first`. DataLoss: the kernel sends no such
// datagram.
template <typename F>
absl::Status ForEachMessage(const Datagram& datagram, uint32_t first, uint32_t count, F handle) {
  if (datagram.cut) return absl::DataLossError("an answer of the kernel is larger than 64 KiB");
  const auto* message = reinterpret_cast<const nlmsghdr*>(datagram.bytes.data());
  int rest = static_cast<int>(datagram.bytes.size());
  for (; IsWhole(message, rest); message = mnl_nlmsg_next(message, &rest)) {
    const uint32_t place = message->nlmsg_seq - first;
    if (place < count) {
      handle(message);
    } else if (static_cast<int32_t>(place) > 0) {
      return absl::DataLossError("the kernel sent an answer without a request");
    }
    // Answers to requests that timed out are still in the queue.
  }
  // At most the last message's padding follows.
  if (rest > 0) {
    return absl::DataLossError("an answer of the kernel is malformed: its lengths do not fit");
  }
  return absl::OkStatus();
}

}  // namespace

uint16_t WireFamily(Family family) { return family == Family::kIPv4 ? NFPROTO_IPV4 : NFPROTO_IPV6; }

void CloseMnlSocket::operator()(mnl_socket* socket) const { mnl_socket_close(socket); }

absl::StatusOr<MnlSocketPtr> OpenNetlinkSocket(int protocol, int flags, int receive_bytes) {
  MnlSocketPtr socket(mnl_socket_open2(protocol, SOCK_CLOEXEC | flags));
  if (socket == nullptr) return KernelError(errno, "opening a netlink socket");
  if (mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) != 0) {
    return KernelError(errno, "binding a netlink socket");
  }
  GrowBuffer(mnl_socket_get_fd(socket.get()), SO_RCVBUFFORCE, SO_RCVBUF, receive_bytes);
  return socket;
}

bool IsWhole(const nlmsghdr* message, int rest) {
  return mnl_nlmsg_ok(message, rest) && message->nlmsg_len <= static_cast<uint32_t>(rest);
}

WireBytes MessageBytes(const nlmsghdr* message) {
  return {reinterpret_cast<const uint8_t*>(message), message->nlmsg_len};
}

void Receiver::Unmap::operator()(uint8_t* memory) const { munmap(memory, kAtOnce * size); }

absl::StatusOr<Receiver> Receiver::Make(size_t size) {
  void* const memory = mmap(nullptr, kAtOnce * size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  if (memory == MAP_FAILED) return KernelError(errno, "mapping a receive buffer");
  return Receiver(static_cast<uint8_t*>(memory), size);
}

absl::StatusOr<absl::Span<const Datagram>> Receiver::Receive(const mnl_socket& socket, int flags,
                                                             absl::string_view action) {
  const size_t size = memory_.get_deleter().size;
  std::array<sockaddr_nl, kAtOnce> senders = {};
  std::array<iovec, kAtOnce> parts = {};
  std::array<mmsghdr, kAtOnce> headers = {};
  for (size_t i = 0; i < kAtOnce; ++i) {
    parts[i] = {.iov_base = &memory_[i * size], .iov_len = size};
    msghdr& header = headers[i].msg_hdr;
    header.msg_name = &senders[i];
    header.msg_namelen = sizeof(senders[i]);
    header.msg_iov = &parts[i];
    header.msg_iovlen = 1;
  }
  received_.clear();
  int count = 0;
  do {
    count = recvmmsg(mnl_socket_get_fd(&socket), headers.data(), kAtOnce, flags, nullptr);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno != EAGAIN) return KernelError(errno, action);
  for (int i = 0; i < count; ++i) {
    const auto& [header, length] = headers[static_cast<size_t>(i)];
    // Only the kernel has port 0; a privileged program could send us anything.
    const bool from_kernel = static_cast<const sockaddr_nl*>(header.msg_name)->nl_pid == 0;
    received_.push_back(
        {.bytes = {static_cast<const uint8_t*>(header.msg_iov->iov_base), from_kernel ? length : 0},
         .cut = from_kernel && (header.msg_flags & MSG_TRUNC) != 0});
  }
  return received_;
}

void Receiver::Clear() {
  madvise(memory_.get(), kAtOnce * memory_.get_deleter().size, MADV_DONTNEED);
}

absl::StatusOr<std::unique_ptr<Socket>> Socket::Open(int protocol) {
  absl::StatusOr<MnlSocketPtr> opened = OpenNetlinkSocket(protocol, 0);
  if (!opened.ok()) return opened.status();
  MnlSocketPtr socket = *std::move(opened);
  const int fd = mnl_socket_get_fd(socket.get());
  if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kAnswerTimeout, sizeof(kAnswerTimeout)) != 0) {
    return KernelError(errno, "setting the receive timeout of a netlink socket");
  }
  // Kernels before 4.12 have neither; errors then come without an attribute's place.
  int on = 1;
  mnl_socket_setsockopt(socket.get(), NETLINK_EXT_ACK, &on, sizeof(on));
  mnl_socket_setsockopt(socket.get(), NETLINK_CAP_ACK, &on, sizeof(on));
  absl::StatusOr<Receiver> receiver = Receiver::Make(kDatagramBytes);
  if (!receiver.ok()) return receiver.status();
  return std::unique_ptr<Socket>(new Socket(std::move(socket), *std::move(receiver)));
}

int Socket::fd() const { return mnl_socket_get_fd(socket_.get()); }

uint32_t Socket::port_id() const { return mnl_socket_get_portid(socket_.get()); }

uint32_t Socket::ReserveSequences(uint32_t count) {
  return std::exchange(next_sequence_, next_sequence_ + count);
}

absl::Status Socket::Send(WireBytes bytes) {
  const int fd = mnl_socket_get_fd(socket_.get());
  bool grown = false;
  while (mnl_socket_sendto(socket_.get(), bytes.data(), bytes.size()) < 0) {
    if (errno == EINTR) continue;
    // A datagram must fit the send buffer whole (212992 bytes by default).
    if (errno == EMSGSIZE && !grown && bytes.size() < (size_t{1} << 29)) {
      grown = true;
      GrowBuffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, static_cast<int>(bytes.size()) + 4096);
      continue;
    }
    // nf_tables itself would have taken the request, and answered.
    const bool refused = errno == EPERM || errno == EACCES;
    absl::Status status = KernelError(errno, "sending over netlink", refused ? kGuardAdvice : "");
    if (refused) SetWriteRefused(status);
    return status;
  }
  return absl::OkStatus();
}

absl::Status Socket::Begin(const Requests& requests) {
  asked_ = {.first = requests.first(),
            .ended = absl::InlinedVector<bool, kUsuallyAskedAtOnce>(requests.count(), false),
            .left = requests.count()};
  return Send(requests.bytes());
}

void Socket::Asked::End(uint32_t sequence) {
  if (!std::exchange(ended[sequence - first], true)) --left;
}

void Socket::Asked::Take(const nlmsghdr* message, const std::function<void(const Reply&)>& handle) {
  if (ended[message->nlmsg_seq - first]) return;
  interrupted = interrupted || (message->nlmsg_flags & NLM_F_DUMP_INTR) != 0;
  const bool is_error = message->nlmsg_type == NLMSG_ERROR;
  if (is_error || message->nlmsg_type == NLMSG_DONE) {
    const int error = is_error ? ParseError(message).error_number : DoneError(message);
    if (error != 0) handle(Reply{.sequence = message->nlmsg_seq, .error_number = error});
    End(message->nlmsg_seq);
  } else if (message->nlmsg_type >= NLMSG_MIN_TYPE) {
    handle(Reply{.sequence = message->nlmsg_seq, .message = message});
    if ((message->nlmsg_flags & NLM_F_MULTI) == 0) End(message->nlmsg_seq);
  }
}

absl::StatusOr<size_t> Socket::TakeArrived(int flags,
                                           const std::function<void(const Reply&)>& handle) {
  const auto datagrams = receiver_.Receive(*socket_, flags, kReceiving);
  if (!datagrams.ok()) return datagrams.status();
  for (const Datagram& datagram : *datagrams) {
    asked_.received += datagram.bytes.size();
    absl::Status status =
        ForEachMessage(datagram, asked_.first, static_cast<uint32_t>(asked_.ended.size()),
                       [&](const nlmsghdr* message) { asked_.Take(message, handle); });
    if (!status.ok()) return status;
  }
  return datagrams->size();
}

void Socket::Abandon() {
  asked_.ended.assign(asked_.ended.size(), true);
  asked_.left = 0;
  asked_.interrupted = false;
}

absl::StatusOr<bool> Socket::Continue(const std::function<void(const Reply&)>& handle) {
  if (absl::Status status = TakeArrived(MSG_DONTWAIT, handle).status(); !status.ok()) return status;
  return asked_.left == 0;
}

absl::Status Socket::Ask(const Requests& requests,
                         const std::function<void(const Reply&)>& handle) {
  if (absl::Status sent = Begin(requests); !sent.ok()) return sent;
  while (asked_.left > 0) {
    const absl::StatusOr<size_t> datagrams = TakeArrived(MSG_WAITFORONE, handle);
    if (!datagrams.ok()) return datagrams.status();
    if (*datagrams == 0) return KernelError(ETIMEDOUT, "waiting for an answer of the kernel");
  }
  if (asked_.received > kUsualAnswerBytes) receiver_.Clear();
  if (asked_.interrupted) return absl::AbortedError("the rules changed while they were dumped");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BatchError>> Socket::SendBatch(const Requests& batch) {
  if (absl::Status sent = Send(batch.bytes()); !sent.ok()) return sent;
  std::vector<BatchError> errors;
  const auto take = [&](const nlmsghdr* message) {
    if (message->nlmsg_type != NLMSG_ERROR) return;
    const BatchError error = ParseError(message);
    if (error.error_number != 0) errors.push_back(error);
  };
  while (true) {
    const auto datagrams = receiver_.Receive(*socket_, MSG_DONTWAIT, kReceiving);
    if (!datagrams.ok()) return datagrams.status();
    if (datagrams->empty()) return errors;
    for (const Datagram& datagram : *datagrams) {
      absl::Status status = ForEachMessage(datagram, batch.first(), batch.count(), take);
      if (!status.ok()) return status;
    }
  }
}

}  // namespace kipt::netlink
