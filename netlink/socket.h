// SPDX-License-Identifier: Apache-2.0
//
// One netlink socket, and all that can go wrong with it: interrupted calls, full buffers, cut-off
// messages, interrupted dumps, a kernel that does not answer.
#ifndef KIPT_NETLINK_SOCKET_H_
#define KIPT_NETLINK_SOCKET_H_

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "netlink/attributes.h"
#include "netlink/requests.h"
#include "netlink/ruleset.h"

struct mnl_socket;

namespace kipt::netlink {

// nfgen_family of a message: NFPROTO_IPV4 or NFPROTO_IPV6, linux/netfilter.h.
uint16_t WireFamily(Family family);

struct CloseMnlSocket {
  void operator()(mnl_socket* socket) const;
};
using MnlSocketPtr = std::unique_ptr<mnl_socket, CloseMnlSocket>;

// A bound socket of `protocol` (NETLINK_*); `flags` are SOCK_* in addition to SOCK_CLOEXEC. Its
// receive buffer holds `receive_bytes`, or as much as it may: only CAP_NET_ADMIN goes beyond
// net.core.rmem_max. Errors are Open's.
absl::StatusOr<MnlSocketPtr> OpenNetlinkSocket(int protocol, int flags,
                                               int receive_bytes = 1 << 20);

// A received datagram. Empty if another program than the kernel sent it.
struct Datagram {
  WireBytes bytes;
  bool cut = false;  // there was no room for all of it
};

// Receives datagrams, several by one system call.
class Receiver {
 public:
  static constexpr size_t kAtOnce = 16;

  // For datagrams of `size` bytes at most, a multiple of 8.
  static absl::StatusOr<Receiver> Make(size_t size);

  // Valid until the next call; `flags` are recvmmsg(2)'s. Fewer than kAtOnce: the queue is empty.
  // `action` is for errors.
  absl::StatusOr<absl::Span<const Datagram>> Receive(const mnl_socket& socket, int flags,
                                                     absl::string_view action);
  // Returns the memory to the kernel; what was received is lost.
  void Clear();

 private:
  struct Unmap {
    size_t size;
    void operator()(uint8_t* memory) const;
  };
  Receiver(uint8_t* memory, size_t size) : memory_(memory, Unmap{size}) {}

  // kAtOnce buffers. A page that no datagram reached takes no memory.
  std::unique_ptr<uint8_t[], Unmap> memory_;
  std::vector<Datagram> received_;
};

// Whether the `rest` bytes that begin with `message` hold all of it. (mnl_nlmsg_ok alone takes a
// length of 2^31 and more for a negative one.)
bool IsWhole(const nlmsghdr* message, int rest);

// All of `message`, with its header.
WireBytes MessageBytes(const nlmsghdr* message);

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
  // Offset of the attribute that the kernel refused (NLMSGERR_ATTR_OFFS), 0 if unknown.
  uint32_t attribute_offset = 0;
};

// Not safe for use by several threads at once. Stays in the network namespace in which it was
// opened.
class Socket {
 public:
  // Unavailable: this kernel has no such netlink.
  static absl::StatusOr<std::unique_ptr<Socket>> Open(int protocol = NETLINK_NETFILTER);

  // nlmsg_pid of what this socket sends, and of the events that it causes.
  uint32_t port_id() const;

  // Reserves `count` unused sequence numbers; returns the first.
  uint32_t ReserveSequences(uint32_t count);

  // Sends GET requests in one datagram and hands over every reply until each is answered: one
  // message or one error for a request, any number for a dump. The receive buffer must hold
  // requests and replies (about 1 MiB, 200 kB without privileges), but not dumps.
  //
  // Aborted: a commit interrupted a dump. ResourceExhausted: replies were lost. DeadlineExceeded:
  // no answer for 5 seconds. DataLoss: an answer is malformed, or to no request; what `handle` has
  // seen is worth nothing.
  absl::Status Ask(const Requests& requests, const std::function<void(const Reply&)>& handle);
  // Within Ask's `handle`: Ask returns without the rest of the answers, so the kernel need not make
  // them, nor does it matter that the rules changed meanwhile. The socket must then be closed.
  void Abandon();

  // Ask in pieces that do not wait, for a dump of many megabytes: Begin sends, and Continue hands
  // over what has arrived, sixteen datagrams at most; true when each request is answered. Until
  // then fd() becomes readable again. A dump that a commit interrupted is no error.
  absl::Status Begin(const Requests& requests);
  absl::StatusOr<bool> Continue(const std::function<void(const Reply&)>& handle);
  int fd() const;

  // The kernel processes a batch inside sendmsg(2), so all its errors are in the queue afterwards.
  // None means committed.
  absl::StatusOr<std::vector<BatchError>> SendBatch(const Requests& batch);

 private:
  Socket(MnlSocketPtr socket, Receiver receiver)
      : socket_(std::move(socket)), receiver_(std::move(receiver)) {}

  static constexpr size_t kUsuallyAskedAtOnce = 64;

  // What was asked last, and how much of it is answered.
  struct Asked {
    uint32_t first = 0;
    // By request, so that an answer that comes twice counts once.
    absl::InlinedVector<bool, kUsuallyAskedAtOnce> ended = {};
    uint32_t left = 0;
    bool interrupted = false;
    size_t received = 0;  // bytes

    void End(uint32_t sequence);
    void Take(const nlmsghdr* message, const std::function<void(const Reply&)>& handle);
  };

  absl::Status Send(WireBytes bytes);
  // How many datagrams; `flags` are recvmmsg(2)'s.
  absl::StatusOr<size_t> TakeArrived(int flags, const std::function<void(const Reply&)>& handle);

  MnlSocketPtr socket_;
  Receiver receiver_;
  uint32_t next_sequence_ = 1;
  Asked asked_;
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_SOCKET_H_
