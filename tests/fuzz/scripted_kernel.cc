// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/scripted_kernel.h"

#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>

#include "netlink/socket.h"
#include "tests/fuzz/require.h"

namespace kipt::testing {
namespace {

ScriptedKernel* scripted = nullptr;

constexpr uint32_t kNumberedSequences = 1 << 16;

// The messages of a datagram that may hold anything; `handle` may change them.
template <typename F>
void ForEachMessage(uint8_t* datagram, size_t size, F handle) {
  auto* message = reinterpret_cast<nlmsghdr*>(datagram);
  int rest = static_cast<int>(size);
  for (; netlink::IsWhole(message, rest); message = mnl_nlmsg_next(message, &rest))
    handle(*message);
}

// Number of the first message in what was sent, and how many there are.
std::pair<uint32_t, uint32_t> SequencesOf(FuzzBytes messages) {
  uint32_t first = 0;
  uint32_t count = 0;
  auto* bytes = const_cast<uint8_t*>(messages.data());
  ForEachMessage(bytes, messages.size(), [&](const nlmsghdr& message) {
    if (count++ == 0) first = message.nlmsg_seq;
  });
  return {first, std::max(count, 1U)};
}

Arrival ArrivalOf(const Frame& frame) { return static_cast<Arrival>(frame.kind % kArrivals); }

bool IsRefusal(const nlmsghdr& message) {
  if (message.nlmsg_type != NLMSG_ERROR) return false;
  if (mnl_nlmsg_get_payload_len(&message) < sizeof(nlmsgerr)) return false;
  return static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(&message))->error != 0;
}

}  // namespace

ScriptedKernel::ScriptedKernel(std::vector<Frame> script) : script_(std::move(script)) {
  KIPT_REQUIRE(scripted == nullptr);
  scripted = this;
}

ScriptedKernel::~ScriptedKernel() { scripted = nullptr; }

void ScriptedKernel::Sent(FuzzBytes messages) {
  std::tie(first_, count_) = SequencesOf(messages);
  const bool waits = next_ < script_.size() && ArrivalOf(script_[next_]) == Arrival::kNoMore;
  if (!sent_.empty() && waits) ++next_;
  sent_.emplace_back(messages.begin(), messages.end());
}

int ScriptedKernel::NextSendError() {
  if (send_errors_.empty()) return 0;
  const int error = send_errors_.front();
  send_errors_.erase(send_errors_.begin());
  return error;
}

ptrdiff_t ScriptedKernel::Receive(uint8_t* buffer, size_t room, uint32_t& sender, bool& cut_off) {
  if (next_ == script_.size() || ArrivalOf(script_[next_]) == Arrival::kNoMore) {
    errno = EAGAIN;
    return -1;
  }
  const Frame& frame = script_[next_++];
  const Arrival arrival = ArrivalOf(frame);
  if (arrival == Arrival::kError) {
    errno = frame.bytes.empty() || frame.bytes[0] == 0 ? ENOBUFS : frame.bytes[0];
    return -1;
  }
  const size_t size = std::min(frame.bytes.size(), room);
  std::copy_n(frame.bytes.begin(), size, buffer);
  sender = arrival == Arrival::kFromProcess ? 4711 : 0;
  cut_off = arrival == Arrival::kCutOff || size < frame.bytes.size();
  Renumber(buffer, size);
  if (sender == 0 && !cut_off && sent_.size() == 1) {
    ForEachMessage(buffer, size, [&](const nlmsghdr& message) {
      if (IsRefusal(message) && message.nlmsg_seq - first_ < count_) ++refusals_;
    });
  }
  return static_cast<ptrdiff_t>(size);
}

void ScriptedKernel::Renumber(uint8_t* datagram, size_t size) {
  ForEachMessage(datagram, size, [&](nlmsghdr& message) {
    if (message.nlmsg_seq >= kNumberedSequences) return;
    message.nlmsg_seq = first_ + message.nlmsg_seq % (count_ + 1);
  });
}

}  // namespace kipt::testing

using kipt::testing::FuzzBytes;
using kipt::testing::scripted;

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
int __real_recvmmsg(int fd, mmsghdr* headers, unsigned count, int flags, timespec* timeout);
ssize_t __real_mnl_socket_sendto(const mnl_socket* socket, const void* bytes, size_t size);
int __real_mnl_socket_setsockopt(const mnl_socket* socket, int type, void* value, socklen_t size);

int __wrap_recvmmsg(int fd, mmsghdr* headers, unsigned count, int flags, timespec* timeout) {
  if (scripted == nullptr) return __real_recvmmsg(fd, headers, count, flags, timeout);
  int received = 0;
  while (static_cast<unsigned>(received) < count && (received == 0 || scripted->left() > 0)) {
    msghdr& header = headers[received].msg_hdr;
    uint32_t sender = 0;
    bool cut_off = false;
    const ptrdiff_t size = scripted->Receive(static_cast<uint8_t*>(header.msg_iov[0].iov_base),
                                             header.msg_iov[0].iov_len, sender, cut_off);
    // The kernel also returns earlier datagrams first. (It would report the error at the next call;
    // here it is lost, which is another script.)
    if (size < 0) return received > 0 ? received : -1;
    KIPT_REQUIRE(header.msg_namelen == sizeof(sockaddr_nl) && header.msg_iovlen == 1);
    static_cast<sockaddr_nl*>(header.msg_name)->nl_pid = sender;
    header.msg_flags = cut_off ? MSG_TRUNC : 0;
    headers[received].msg_len = static_cast<unsigned>(size);
    ++received;
    // A dump comes with one datagram at a time as often as with many.
    if (size % 2 == 1) break;
  }
  return received;
}

ssize_t __wrap_mnl_socket_sendto(const mnl_socket* socket, const void* bytes, size_t size) {
  const FuzzBytes messages(static_cast<const uint8_t*>(bytes), size);
  if (scripted == nullptr) return __real_mnl_socket_sendto(socket, bytes, size);
  if (const int error = scripted->NextSendError(); error != 0) {
    errno = error;
    return -1;
  }
  scripted->Sent(messages);
  return static_cast<ssize_t>(size);
}

// Joining a group of the real kernel's needs privileges, and makes others' commits dearer.
int __wrap_mnl_socket_setsockopt(const mnl_socket* socket, int type, void* value, socklen_t size) {
  return scripted != nullptr ? 0 : __real_mnl_socket_setsockopt(socket, type, value, size);
}
// NOLINTEND(bugprone-reserved-identifier)

}  // extern "C"
