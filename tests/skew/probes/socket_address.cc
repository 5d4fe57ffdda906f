// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>

#include "absl/strings/str_cat.h"

namespace kipt::skew {

using testing::IpFamily;

int DomainOf(IpFamily family) { return family == IpFamily::kIpv6 ? AF_INET6 : AF_INET; }

std::string SocketAddress::Text() const {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const void* address = nullptr;
  if (storage.ss_family == AF_INET6) {
    address = &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  } else {
    address = &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr;
  }
  return inet_ntop(storage.ss_family, address, text.data(), text.size()) == nullptr ? ""
                                                                                    : text.data();
}

SocketAddress AnyAddress(IpFamily family, int port) {
  SocketAddress result;
  result.storage.ss_family = static_cast<sa_family_t>(DomainOf(family));
  // Zero is both families' "any"; the port stands in the same place in both.
  auto* any = reinterpret_cast<sockaddr_in*>(&result.storage);
  any->sin_port = htons(static_cast<uint16_t>(port));
  result.size = family == IpFamily::kIpv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return result;
}

absl::StatusOr<SocketAddress> AddressAt(IpFamily family, const std::string& address, int port) {
  SocketAddress result = AnyAddress(family, port);
  void* where = nullptr;
  if (family == IpFamily::kIpv6) {
    where = &reinterpret_cast<sockaddr_in6*>(&result.storage)->sin6_addr;
  } else {
    where = &reinterpret_cast<sockaddr_in*>(&result.storage)->sin_addr;
  }
  if (inet_pton(DomainOf(family), address.c_str(), where) != 1 || port < 1 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(address, " port ", port));
  }
  return result;
}

}  // namespace kipt::skew
