// SPDX-License-Identifier: Apache-2.0
#include "agent/config/bind_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace kipt::agent {
namespace {

std::optional<uint16_t> ParsePort(absl::string_view digits) {
  uint32_t port = 0;
  // SimpleAtoi alone would take a sign and spaces.
  if (digits.size() > 5 || !std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(digits, &port) || port > 65535) {
    return std::nullopt;
  }
  return static_cast<uint16_t>(port);
}

bool ParseIPv6(const std::string& host, uint16_t port, BindAddress& address) {
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(port);
  address.size = sizeof(ipv6);
  return inet_pton(AF_INET6, host.c_str(), &ipv6.sin6_addr) == 1;
}

bool ParseIPv4(const std::string& host, uint16_t port, BindAddress& address) {
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address.storage);
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(port);
  address.size = sizeof(ipv4);
  return inet_pton(AF_INET, host.c_str(), &ipv4.sin_addr) == 1;
}

}  // namespace

absl::StatusOr<BindAddress> ParseBindAddress(absl::string_view text) {
  const size_t colon = text.rfind(':');
  // A zero byte would end the host early for inet_pton.
  const bool splits = colon != absl::string_view::npos && text.find('\0') == text.npos;
  const std::optional<uint16_t> port =
      splits ? ParsePort(text.substr(colon + 1)) : std::optional<uint16_t>();
  if (port) {
    absl::string_view host = text.substr(0, colon);
    const bool brackets = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
    BindAddress address;
    if (brackets ? ParseIPv6(std::string(host), *port, address)
                 : ParseIPv4(std::string(host), *port, address)) {
      return address;
    }
  }
  return absl::InvalidArgumentError(
      "it must be an IPv4 address or an IPv6 address in brackets, a colon and a port, as in "
      "127.0.0.1:10270 or [::1]:10270");
}

std::string ToString(const BindAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (address.family() == AF_INET6) {
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    inet_ntop(AF_INET6, &ipv6.sin6_addr, host.data(), host.size());
    return absl::StrCat("[", host.data(), "]:", ntohs(ipv6.sin6_port));
  }
  if (address.family() != AF_INET) return "";
  const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address.storage);
  inet_ntop(AF_INET, &ipv4.sin_addr, host.data(), host.size());
  return absl::StrCat(host.data(), ":", ntohs(ipv4.sin_port));
}

bool IsLoopback(const BindAddress& address) {
  constexpr uint8_t kLoopbackNet = 127;
  if (address.family() == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return ntohl(ipv4.sin_addr.s_addr) >> 24 == kLoopbackNet;
  }
  if (address.family() != AF_INET6) return false;
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ipv6) ||
         (IN6_IS_ADDR_V4MAPPED(&ipv6) && ipv6.s6_addr[12] == kLoopbackNet);
}

}  // namespace kipt::agent
