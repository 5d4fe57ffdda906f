// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/socket.h
//
// One netfilter netlink socket. What can go wrong with a socket is handled here and nowhere else:
// interrupted calls, full buffers, cut-off messages, interrupted dumps, a kernel that does not
// answer.
#ifndef KIPT_NETLINK_SOCKET_H_
#define KIPT_NETLINK_SOCKET_H_

#include <linux/netlink.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "netlink/attributes.h"
#include "netlink/ruleset.h"

struct mnl_socket;

namespace kipt::netlink {

// nfgen_family of a message: NFPROTO_IPV4 or NFPROTO_IPV6, linux/netfilter.h.
uint16_t WireFamily(Family family);

// Lets the socket `fd` hold `bytes` of datagrams, or as much as it may. Only CAP_NET_ADMIN goes
// beyond net.core.rmem_max; no error: a buffer that is too small shows when it is.
void GrowReceiveBuffer(int fd, int bytes);

struct CloseMnlSocket {
  void operator()(mnl_socket* socket) const;
};
using MnlSocketPtr = std::unique_ptr<mnl_socket, CloseMnlSocket>;

// A NETLINK_NETFILTER socket, bound; `flags` are SOCK_* beside SOCK_CLOEXEC. Errors are Open's.
absl::StatusOr<MnlSocketPtr> OpenNetfilterSocket(int flags);

// Whether the `rest` bytes that begin with `message` hold all of it. (libmnl's mnl_nlmsg_ok alone
// takes a length of 2^31 and more for a negative one, which fits.)
bool IsWhole(const nlmsghdr* message, int rest);

// The whole of `message`, its header too.
absl::Span<const uint8_t> MessageBytes(const nlmsghdr* message);

// One message of an answer. `message` is null where the request failed.
struct Reply {
  uint32_t sequence = 0;
  const nlmsghdr* message = nullptr;
  int error_number = 0;  // positive errno, or 0
};

// One error that the kernel reported for one message of a batch.
struct BatchError {
  uint32_t sequence = 0;
  int error_number = 0;  // positive errno
  // Where in the message the attribute stands that the kernel refused (NLMSGERR_ATTR_OFFS), 0 where
  // it did not say.
  uint32_t attribute_offset = 0;
};

// Not safe for use by several threads at once. Stays in the network namespace in which it was
// opened.
class Socket {
 public:
  // Unavailable: this kernel has no netfilter netlink.
  static absl::StatusOr<std::unique_ptr<Socket>> Open();

  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // nlmsg_pid of what this socket sends, and of the events that it causes.
  uint32_t port_id() const;

  // Takes `count` sequence numbers that this socket has not used yet; returns the first.
  uint32_t ReserveSequences(uint32_t count);

  // Sends GET requests in one datagram and hands over every reply until each is answered: one
  // message or one error for a request, any number for a dump. Requests and replies must fit the
  // receive buffer (about 1 MiB, 200 kB without privileges), dumps need not.
  //
  // Aborted: a dump was interrupted by a commit. ResourceExhausted: replies were lost.
  // DeadlineExceeded: no answer for 5 seconds. DataLoss: an answer is no netlink, or to nothing
  // that was asked; what `handle` has seen is worth nothing.
  absl::Status Ask(const Messages& requests, const std::function<void(const Reply&)>& handle);

  // nf_tables works a batch off inside sendmsg(), so all errors are there when that returns; none
  // means committed.
  absl::StatusOr<std::vector<BatchError>> SendBatch(const Messages& batch);

 private:
  struct Unmap {
    void operator()(uint32_t* buffer) const;
  };
  using BufferPtr = std::unique_ptr<uint32_t[], Unmap>;

  Socket(MnlSocketPtr socket, BufferPtr buffer);

  absl::Status Send(absl::Span<const uint8_t> bytes);
  // The datagrams of the kernel that have come, good until the next call. Empty when there are none
  // and `wait` is false.
  absl::StatusOr<absl::Span<const absl::Span<const uint8_t>>> Receive(bool wait);

  MnlSocketPtr socket_;
  // Where datagrams are received, side by side. Not touched before: one that is never full takes
  // no memory but the pages that were used, and those of a big answer go back to the kernel.
  BufferPtr buffer_;
  std::vector<absl::Span<const uint8_t>> received_;
  uint32_t next_sequence_ = 1;
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_SOCKET_H_
