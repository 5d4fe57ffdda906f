// SPDX-License-Identifier: Apache-2.0
//
// File: agent/config/go_duration.h
//
// Durations as Go's time package reads and prints them, which is how every duration of a Kubernetes
// component is written: "1m0s", "90s", "1h30m", "500ms", "1.5s". Pure functions.
#ifndef KIPT_AGENT_CONFIG_GO_DURATION_H_
#define KIPT_AGENT_CONFIG_GO_DURATION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace kipt::agent {

// time.ParseDuration: an optional sign, then decimal numbers, each with an optional fraction and
// one of the units ns, us, µs, ms, s, m, h; "0" needs none. What is finer than a nanosecond is cut
// off. At most 2^63 - 1 ns, some 292 years, to either side.
//
// InvalidArgument with Go's text: `time: missing unit in duration "90"`.
absl::StatusOr<absl::Duration> ParseGoDuration(absl::string_view text);

// Duration.String: "1m0s", "1.5s", "500ms", "0s". `duration` must be what ParseGoDuration can
// return.
std::string FormatGoDuration(absl::Duration duration);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_CONFIG_GO_DURATION_H_
