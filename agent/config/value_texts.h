// SPDX-License-Identifier: Apache-2.0
//
// Values as flags and configuration files write them: durations, as Go's time package reads and
// prints them ("1m0s", "90s", "1h30m", "500ms", "1.5s"), and addresses to listen on, "HOST:PORT".
// Pure functions.
#ifndef KIPT_AGENT_CONFIG_VALUE_TEXTS_H_
#define KIPT_AGENT_CONFIG_VALUE_TEXTS_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace kipt::agent {

// time.ParseDuration: an optional sign, then decimal numbers, each with an optional fraction and
// one of the units ns, us, µs, ms, s, m, h; "0" needs none. Fractions of a nanosecond are cut off.
// At most 2^63 - 1 ns, some 292 years, to either side.
//
// InvalidArgument with Go's text: `time: missing unit in duration "90"`.
absl::StatusOr<absl::Duration> ParseGoDuration(absl::string_view text);

// Duration.String: "1m0s", "1.5s", "500ms", "0s". `duration` must be what ParseGoDuration can
// return.
std::string FormatGoDuration(absl::Duration duration);

struct BindAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// HOST is an IPv6 address in brackets, or an IPv4 address with or without them. A name could lead
// elsewhere tomorrow. PORT is decimal, up to 65535; 0 is any free one. Errors are InvalidArgument.
absl::StatusOr<BindAddress> ParseBindAddress(absl::string_view text);

// As ParseBindAddress takes it, in one form; empty for neither IPv4 nor IPv6.
std::string ToString(const BindAddress& address);

// Whether only this machine reaches it: 127.0.0.0/8, also as an IPv4-mapped address, and ::1.
bool IsLoopback(const BindAddress& address);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_VALUE_TEXTS_H_
