// SPDX-License-Identifier: Apache-2.0
//
// Questions asked of the node with packets, and what packets answer.
#ifndef KIPT_TESTS_SKEW_PROBES_PROBE_H_
#define KIPT_TESTS_SKEW_PROBES_PROBE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/node/test_node.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

// What became of a new connection.
enum class Outcome {
  // An endpoint answered, and saw the caller's own address, or one of the node's.
  kServed,
  kServedMasqueraded,
  // A rule of filter dropped it: it was neither received nor answered, and a DROP rule counted it.
  kDropped,
  // The caller got a refusal: RST, or an ICMP error.
  kRejected,
  // No rule stopped it, and nothing served it: a program on the node has it, or the next hop has.
  kReachedHost,
  kForwarded,
  // It was neither received nor answered, and no DROP rule counted it.
  kLost,
  // None of these: see the detail.
  kOther,
};
const char* NameOf(Outcome outcome);

enum class ProbeKind {
  // A connection to `address`:`port`.
  kConnect,
  // A packet to 127.0.0.1:`port` of the node, put on the wire by the neighbour `from`: as of
  // CVE-2020-8558. IPv4 and UDP or TCP (its SYN). Answers do not come back, so kReachedHost is
  // what an unprotected node gives, kServed never.
  kMartian,
};

struct Probe {
  // "lb-refused/udp/ipv4": unique in a battery.
  std::string name;
  ProbeKind kind = ProbeKind::kConnect;
  testing::IpFamily family = testing::IpFamily::kIpv4;
  Protocol protocol = Protocol::kTcp;
  Place from = Place::kRefusedClient;
  std::string address;
  int port = 0;
  // How many connections are made, one after the other. More than 1: for balance and affinity.
  int connections = 1;
};

struct ProbeResult {
  std::string probe;
  // That of all connections; kOther where they differ.
  Outcome outcome = Outcome::kOther;
  // Where it was received, and how often: {"pod a": 31, "pod b": 35}.
  std::vector<std::pair<std::string, int>> receivers = {};
  // The source address that the receiver saw.
  std::string seen_source = {};
  // Of kDropped: the rule that counted it, "ip filter -A KUBE-FIREWALL ... -j DROP".
  std::string dropped_by = {};
  // Packets that were sent, and of these the ones that a place received.
  int sent = 0;
  int received = 0;
  // For people: why it is kOther, the errno of the caller.
  std::string detail = {};

  bool operator==(const ProbeResult&) const = default;
};

// Listeners at every place of a test node, and callers: real TCP and UDP.

// Ports with a listener, both families, TCP and UDP.
struct ListenerPorts {
  Place place = Place::kNode;
  std::vector<int> ports;
};

// What became of a packet that came to `place`, where `source` was seen. `own_address`: the
// sender's.
Outcome OutcomeAt(Place place, const std::string& source, const std::string& own_address,
                  const std::vector<std::string>& node_addresses);

class Battery {
 public:
  // `node` must outlive it. Listeners on the node emulate programs that receive packets which
  // should have been served or dropped. `nftables`: kube-proxy's nftables mode may drop packets
  // (drop_counters.h).
  static absl::StatusOr<std::unique_ptr<Battery>> Create(const TestNode& node,
                                                         const std::vector<ListenerPorts>& ports,
                                                         bool nftables = false);
  virtual ~Battery() = default;

  // Asks everything; the results are in the order of `probes`. Every probe is first asked together
  // with the others. Unanswered ones are asked once more, each alone, between two readings of the
  // DROP rules' counters (`iptables-MODE-save -c -t filter` of `mode`), which distinguish kDropped
  // from kLost. Streams may run meanwhile. No other program must have packets dropped: they could
  // hide a probe's, or, of the same length, be taken for it. No time-out decides anything: that all
  // packets have come is known (PacketBarrier).
  //
  // InvalidArgument: a probe that cannot be asked. DeadlineExceeded: the machine's packet queues do
  // not move. Internal: what iptables-MODE-save said.
  virtual absl::StatusOr<std::vector<ProbeResult>> Ask(const std::vector<Probe>& probes,
                                                       testing::IptablesMode mode) = 0;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_PROBE_H_
