// SPDX-License-Identifier: Apache-2.0
#include "netlink/conntrack.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "absl/status/status.h"
#include "netlink/attributes.h"
#include "netlink/kernel_error.h"
#include "netlink/nf_tables.h"
// After nf_tables.h, which decides whose netinet/in.h it is.
#include <linux/netfilter/nfnetlink_conntrack.h>

namespace kipt::netlink {
namespace {

constexpr char kReadingEntries[] = "reading the entries of connection tracking";
constexpr char kNoCtnetlink[] = "the kernel has no ctnetlink: module nf_conntrack_netlink";

std::optional<IpAddress> ParseAddress(const Attributes& addresses, uint16_t v4, uint16_t v6) {
  IpAddress address;
  std::optional<WireBytes> bytes = addresses.Bytes(v4);
  size_t size = sizeof(in_addr);
  if (!bytes) {
    address.family = Family::kIPv6;
    bytes = addresses.Bytes(v6);
    size = sizeof(in6_addr);
  }
  if (!bytes || bytes->size() != size) return std::nullopt;
  std::copy(bytes->begin(), bytes->end(), address.bytes.begin());
  return address;
}

std::optional<Connection> ParseConnection(const nlmsghdr* message) {
  const Attributes addresses =
      Attributes::OfMessage(MessageBytes(message)).Nest(CTA_TUPLE_ORIG).Nest(CTA_TUPLE_IP);
  const auto source = ParseAddress(addresses, CTA_IP_V4_SRC, CTA_IP_V6_SRC);
  const auto destination = ParseAddress(addresses, CTA_IP_V4_DST, CTA_IP_V6_DST);
  if (!source || !destination) return std::nullopt;
  return Connection{.source = *source, .destination = *destination};
}

}  // namespace

std::string ToString(const IpAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  inet_ntop(address.family == Family::kIPv4 ? AF_INET : AF_INET6, address.bytes.data(), text.data(),
            text.size());
  return text.data();
}

absl::StatusOr<std::unique_ptr<ConntrackDump>> ConntrackDump::Start() {
  absl::StatusOr<std::unique_ptr<Socket>> socket = Socket::Open();
  if (!socket.ok()) return socket.status();
  Requests request((*socket)->ReserveSequences(1));
  request.Begin((NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_GET, AF_UNSPEC, NLM_F_DUMP);
  if (absl::Status status = (*socket)->Begin(request); !status.ok()) return status;
  return std::unique_ptr<ConntrackDump>(new ConntrackDump(*std::move(socket)));
}

absl::StatusOr<bool> ConntrackDump::Take(absl::FunctionRef<void(const Connection&)> handle) {
  int error = 0;
  absl::StatusOr<bool> ended = socket_->Continue([&](const Reply& reply) {
    if (reply.message == nullptr) {
      error = reply.error_number;
    } else if (const auto connection = ParseConnection(reply.message)) {
      handle(*connection);
    }
  });
  if (ended.ok() && error != 0) {
    return KernelError(error, kReadingEntries, error == EINVAL ? kNoCtnetlink : "");
  }
  return ended;
}

}  // namespace kipt::netlink
