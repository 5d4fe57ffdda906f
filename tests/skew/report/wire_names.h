// SPDX-License-Identifier: Apache-2.0
//
// What the enumerations of probes are called in a report's JSON: the names that people read, where
// there are such, because they are as stable.
#ifndef KIPT_TESTS_SKEW_REPORT_WIRE_NAMES_H_
#define KIPT_TESTS_SKEW_REPORT_WIRE_NAMES_H_

#include <array>

#include "tests/skew/node/test_node.h"
#include "tests/skew/probes/probe.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

inline const char* WireName(Outcome outcome) { return NameOf(outcome); }
inline const char* WireName(Place place) { return NameOf(place); }
inline const char* WireName(Protocol protocol) { return NameOf(protocol); }
inline const char* WireName(testing::IpFamily family) {
  return family == testing::IpFamily::kIpv4 ? "ipv4" : "ipv6";
}
inline const char* WireName(ProbeKind kind) {
  return kind == ProbeKind::kConnect ? "connect" : "martian";
}

// All values of the argument's type.
constexpr auto AllOf(Outcome) {
  return std::array{
      Outcome::kServed,      Outcome::kServedMasqueraded, Outcome::kDropped, Outcome::kRejected,
      Outcome::kReachedHost, Outcome::kForwarded,         Outcome::kLost,    Outcome::kOther};
}
constexpr auto AllOf(Place) { return std::to_array(kAllPlaces); }
constexpr auto AllOf(Protocol) { return std::array{Protocol::kTcp, Protocol::kUdp}; }
constexpr auto AllOf(testing::IpFamily) {
  return std::array{testing::IpFamily::kIpv4, testing::IpFamily::kIpv6};
}
constexpr auto AllOf(ProbeKind) { return std::array{ProbeKind::kConnect, ProbeKind::kMartian}; }

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_REPORT_WIRE_NAMES_H_
