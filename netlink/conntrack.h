// SPDX-License-Identifier: Apache-2.0
//
// The entries of connection tracking, over ctnetlink (linux/netfilter/nfnetlink_conntrack.h).
#ifndef KIPT_NETLINK_CONNTRACK_H_
#define KIPT_NETLINK_CONNTRACK_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "netlink/ruleset.h"
#include "netlink/socket.h"

namespace kipt::netlink {

struct IpAddress {
  Family family = Family::kIPv4;
  std::array<uint8_t, 16> bytes = {};  // of IPv4 the first four; the rest is 0

  auto operator<=>(const IpAddress&) const = default;
  template <typename H>
  friend H AbslHashValue(H state, const IpAddress& address) {
    return H::combine(std::move(state), address.bytes);
  }
};
std::string ToString(const IpAddress& address);  // "192.0.2.1", "2001:db8::1"

// One entry, as its first packet was: before address translation.
struct Connection {
  IpAddress source;
  IpAddress destination;
};

// All entries of the network namespace, both families, in pieces: a million of them are 250 MB, and
// the kernel makes each piece when the one before was read. Needs CAP_NET_ADMIN. Where ctnetlink is
// a module, the kernel loads it.
class ConntrackDump {
 public:
  // Unavailable: this kernel has no netfilter netlink.
  static absl::StatusOr<std::unique_ptr<ConntrackDump>> Start();

  // Readable while there is more.
  int fd() const { return socket_->fd(); }
  // Hands over some thousand entries at most, without waiting; true after the last. One that is
  // malformed is left out. After an error, what was handed over is not all. InvalidArgument: the
  // kernel has no ctnetlink.
  absl::StatusOr<bool> Take(absl::FunctionRef<void(const Connection&)> handle);

 private:
  explicit ConntrackDump(std::unique_ptr<Socket> socket) : socket_(std::move(socket)) {}
  std::unique_ptr<Socket> socket_;
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_CONNTRACK_H_
