// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/bind_address.h
//
// The text of an address to listen on, "HOST:PORT", as bind(2) wants it.
#ifndef KIPT_AGENT_CONFIG_BIND_ADDRESS_H_
#define KIPT_AGENT_CONFIG_BIND_ADDRESS_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::agent {

struct BindAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// HOST is an IPv4 address, or an IPv6 address in brackets; a name is none of these, for it could
// lead elsewhere tomorrow. PORT is decimal, 0 to 65535, 0 being any that is free.
//
// InvalidArgument: anything else; the message, "it must be ...", does not repeat `text`.
absl::StatusOr<BindAddress> ParseBindAddress(absl::string_view text);

// The text of an IPv4 or IPv6 address, in the one form that ParseBindAddress has for it; empty for
// another kind of address.
std::string ToString(const BindAddress& address);

// Whether only this machine reaches it: 127.0.0.0/8, also as an IPv4-mapped address, and ::1.
bool IsLoopback(const BindAddress& address);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_BIND_ADDRESS_H_
