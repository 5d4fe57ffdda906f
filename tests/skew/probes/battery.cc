// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/skew/probes/callers.h"
#include "tests/skew/probes/drop_counters.h"
#include "tests/skew/probes/packets.h"
#include "tests/skew/probes/probe.h"

namespace kipt::skew {
namespace {

struct Verdict {
  Outcome outcome = Outcome::kOther;
  std::string why = {};
};

bool IsPod(Place place) {
  return place == Place::kPodA || place == Place::kPodB || place == Place::kRemotePod;
}

std::string ErrorText(const Call& call) {
  return call.error == 0 ? "no error" : std::strerror(call.error);
}

Verdict OfReceived(const Call& call, const std::vector<std::string>& node_addresses) {
  const Receipt& receipt = call.receipts.front();
  for (const Receipt& other : call.receipts) {
    if (other.place == receipt.place) continue;
    return {Outcome::kOther, "more than one place received it"};
  }
  const Outcome outcome =
      OutcomeAt(receipt.place, receipt.source, call.own_address, node_addresses);
  if (!IsPod(receipt.place)) return {outcome};
  if (call.answered_by != receipt.place) {
    return {Outcome::kOther,
            absl::StrCat(NameOf(receipt.place), " received it, and its answer did not come back (",
                         ErrorText(call), ")")};
  }
  if (outcome != Outcome::kOther) return {outcome};
  return {Outcome::kOther,
          absl::StrCat(NameOf(receipt.place), " saw ", receipt.source, " as its source")};
}

Verdict OfCall(const Call& call, const std::vector<std::string>& node_addresses,
               const std::string& dropped_by) {
  if (!call.receipts.empty()) return OfReceived(call, node_addresses);
  if (call.Silent()) return {dropped_by.empty() ? Outcome::kLost : Outcome::kDropped};
  if (call.answered_by.has_value())
    return {Outcome::kOther, "answered, but no listener received it"};
  if (call.connected) {
    return {Outcome::kOther,
            absl::StrCat("connected, but the peer does not answer (", ErrorText(call), ")")};
  }
  if (call.refused_at_home) {
    return {Outcome::kOther, absl::StrCat("could not be sent: ", ErrorText(call))};
  }
  return {Outcome::kRejected, ErrorText(call)};
}

// `calls`: all connections of the last round that asked the probe. `dropped_by`: the rule that
// counted the silent ones; "" where none did. `node_addresses`: of the probe's family.
ProbeResult ResultOf(const Probe& probe, const std::vector<const Call*>& calls,
                     const std::vector<std::string>& node_addresses,
                     const std::string& dropped_by) {
  ProbeResult result;
  result.probe = probe.name;
  result.sent = static_cast<int>(calls.size());
  std::map<Outcome, int> outcomes;
  std::map<std::string, int> receivers;
  std::set<std::string> sources;
  std::set<std::string> reasons;
  for (const Call* call : calls) {
    const Verdict verdict = OfCall(*call, node_addresses, dropped_by);
    ++outcomes[verdict.outcome];
    if (!verdict.why.empty()) reasons.insert(verdict.why);
    if (call->receipts.empty()) continue;
    ++result.received;
    ++receivers[NameOf(call->receipts.front().place)];
    sources.insert(call->receipts.front().source);
  }
  result.receivers.assign(receivers.begin(), receivers.end());
  result.seen_source = absl::StrJoin(sources, ", ");
  if (outcomes.size() == 1) {
    result.outcome = outcomes.begin()->first;
  } else {
    const auto count = [](std::string* out, const std::pair<const Outcome, int>& one) {
      absl::StrAppend(out, one.second, " ", NameOf(one.first));
    };
    reasons.insert(absl::StrJoin(outcomes, ", ", count));
  }
  if (outcomes.count(Outcome::kDropped) != 0) result.dropped_by = dropped_by;
  result.detail = absl::StrJoin(reasons, "; ");
  return result;
}

using testing::IpFamily;
using testing::IptablesMode;

// Of the first packet of a connection.
size_t LengthOf(const Probe& probe) {
  if (probe.protocol == Protocol::kUdp) return UdpLength(probe.family, kMessageBytes);
  if (probe.kind == ProbeKind::kMartian) return TcpFrameLength(kMessageBytes);
  return KernelSynLength(probe.family);
}

class RealBattery : public Battery {
 public:
  RealBattery(const TestNode& node, CallTools tools, bool nftables)
      : node_(node), tools_(std::move(tools)), nftables_(nftables) {
    label_.battery = FreshNumber();
  }

  absl::StatusOr<std::vector<ProbeResult>> Ask(const std::vector<Probe>& probes,
                                               IptablesMode mode) override {
    std::vector<ProbeResult> results(probes.size());
    std::vector<size_t> silent;
    if (absl::Status status = AskAll(probes, results, silent); !status.ok()) return status;
    // Of each family: the last reading, if any.
    std::map<IpFamily, DropCounters> counters;
    for (const size_t probe : silent) {
      if (counters.count(probes[probe].family) == 0) {
        absl::StatusOr<DropCounters> now = ReadCounters(mode, probes[probe].family);
        if (!now.ok()) return now.status();
        counters[probes[probe].family] = *std::move(now);
      }
      absl::StatusOr<ProbeResult> result =
          AskAlone(probes, probe, mode, counters[probes[probe].family]);
      if (!result.ok()) return result.status();
      results[probe] = *std::move(result);
    }
    return results;
  }

 private:
  // iptables' come first: what they counted a hook has counted too.
  absl::StatusOr<DropCounters> ReadCounters(IptablesMode mode, IpFamily family) const {
    absl::StatusOr<DropCounters> counters = ReadDropCounters(node_, mode, family);
    if (!nftables_ || !counters.ok()) return counters;
    const absl::StatusOr<DropCounters> hooks = ReadHookCounters(node_, family);
    if (!hooks.ok()) return hooks.status();
    counters->insert(counters->end(), hooks->begin(), hooks->end());
    return counters;
  }

  Message NextLabel() {
    ++label_.round;
    return label_;
  }

  ProbeResult Result(const Round& round, const std::vector<Probe>& probes, size_t probe,
                     const std::string& dropped_by) const {
    std::vector<const Call*> calls;
    for (const std::unique_ptr<Call>& call : round.calls()) {
      if (call->probe == probe) calls.push_back(call.get());
    }
    return ResultOf(probes[probe], calls, node_.NodeAddresses(probes[probe].family), dropped_by);
  }

  // All probes at once, the connections of each one after the other. Those of which a connection is
  // `silent` have no result.
  absl::Status AskAll(const std::vector<Probe>& probes, std::vector<ProbeResult>& results,
                      std::vector<size_t>& silent) {
    Round round(node_, probes, tools_, NextLabel());
    for (size_t probe = 0; probe < probes.size(); ++probe) {
      if (absl::Status status = round.Start(probe, 0); !status.ok()) return status;
    }
    for (;;) {
      const absl::StatusOr<const Call*> over = round.Next();
      if (!over.ok()) return over.status();
      if (*over == nullptr) break;
      const int next = (*over)->connection + 1;
      if (next >= probes[(*over)->probe].connections) continue;
      if (absl::Status status = round.Start((*over)->probe, next); !status.ok()) return status;
    }
    std::vector<bool> has_silent(probes.size(), false);
    for (const std::unique_ptr<Call>& call : round.calls()) {
      if (call->Silent()) has_silent[call->probe] = true;
    }
    for (size_t probe = 0; probe < probes.size(); ++probe) {
      if (has_silent[probe]) {
        silent.push_back(probe);
      } else {
        results[probe] = Result(round, probes, probe, "");
      }
    }
    return absl::OkStatus();
  }

  // One probe, all its connections at once, between `counters` and a later reading, which they are
  // afterwards.
  absl::StatusOr<ProbeResult> AskAlone(const std::vector<Probe>& probes, size_t probe,
                                       IptablesMode mode, DropCounters& counters) {
    Round round(node_, probes, tools_, NextLabel());
    for (int connection = 0; connection < probes[probe].connections; ++connection) {
      if (absl::Status status = round.Start(probe, connection); !status.ok()) return status;
    }
    for (;;) {
      const absl::StatusOr<const Call*> over = round.Next();
      if (!over.ok()) return over.status();
      if (*over == nullptr) break;
    }
    // A SYN that is repeated after the reading would be the next probe's.
    if (absl::Status status = round.HangUp(); !status.ok()) return status;
    absl::StatusOr<DropCounters> after = ReadCounters(mode, probes[probe].family);
    if (!after.ok()) return after.status();
    const auto silent = static_cast<uint64_t>(
        std::count_if(round.calls().begin(), round.calls().end(),
                      [](const std::unique_ptr<Call>& call) { return call->Silent(); }));
    std::string dropped_by;
    if (silent != 0) {
      dropped_by = RuleThatCounted(counters, *after, silent, LengthOf(probes[probe]),
                                   UdpLength(probes[probe].family, kStreamMessageBytes));
    }
    counters = *std::move(after);
    if (!dropped_by.empty()) {
      dropped_by =
          absl::StrCat(probes[probe].family == IpFamily::kIpv6 ? "ip6" : "ip",
                       absl::StartsWith(dropped_by, "hook ") ? " " : " filter ", dropped_by);
    }
    return Result(round, probes, probe, dropped_by);
  }

  const TestNode& node_;
  CallTools tools_;
  const bool nftables_;
  Message label_;
};

}  // namespace

const char* NameOf(Outcome outcome) {
  // In the order of the enumeration.
  constexpr std::array kNames = {"served",           "masqueraded", "dropped", "rejected",
                                 "reached the host", "forwarded",   "lost",    "other"};
  return kNames[static_cast<size_t>(outcome)];
}

Outcome OutcomeAt(Place place, const std::string& source, const std::string& own_address,
                  const std::vector<std::string>& node_addresses) {
  if (place == Place::kNode) return Outcome::kReachedHost;
  if (!IsPod(place)) return Outcome::kForwarded;
  if (source == own_address) return Outcome::kServed;
  const bool of_node = absl::c_linear_search(node_addresses, source);
  return of_node ? Outcome::kServedMasqueraded : Outcome::kOther;
}

absl::StatusOr<std::unique_ptr<Battery>> Battery::Create(const TestNode& node,
                                                         const std::vector<ListenerPorts>& ports,
                                                         bool nftables) {
  absl::StatusOr<std::unique_ptr<Listeners>> listeners = Listeners::Open(node, ports);
  if (!listeners.ok()) return listeners.status();
  absl::StatusOr<PacketBarrier> barrier = PacketBarrier::Create();
  if (!barrier.ok()) return barrier.status();
  if (nftables) {
    if (absl::Status status = MakeHookCounters(node); !status.ok()) return status;
  }
  CallTools tools = {*std::move(listeners), *std::move(barrier),
                     static_cast<uint32_t>(FreshNumber())};
  return std::make_unique<RealBattery>(node, std::move(tools), nftables);
}

}  // namespace kipt::skew
