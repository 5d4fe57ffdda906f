// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_SKEW_PROBES_SOCKET_ADDRESS_H_
#define KIPT_TESTS_SKEW_PROBES_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

// An address of either family with its port, as the socket calls take and give it: sockaddr_in,
// sockaddr_in6, or (frame.h) sockaddr_ll.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(sockaddr_storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  // As inet_ntop writes it, without the port.
  std::string Text() const;
};

// InvalidArgument: `address` is not one of `family`, or `port` none.
absl::StatusOr<SocketAddress> AddressAt(testing::IpFamily family, const std::string& address,
                                        int port);
// 0.0.0.0 or ::.
SocketAddress AnyAddress(testing::IpFamily family, int port);

// AF_INET or AF_INET6.
int DomainOf(testing::IpFamily family);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_SOCKET_ADDRESS_H_
