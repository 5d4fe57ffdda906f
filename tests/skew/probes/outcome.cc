// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/outcome.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

// A pod received it.
Verdict ServedOrNot(const Call& call, const std::vector<std::string>& node_addresses) {
  const Receipt& receipt = call.receipts.front();
  if (call.answered_by != receipt.place) {
    return {Outcome::kOther,
            absl::StrCat(NameOf(receipt.place), " received it, and its answer did not come back (",
                         ErrorText(call), ")")};
  }
  if (receipt.source == call.own_address) return {Outcome::kServed};
  if (std::find(node_addresses.begin(), node_addresses.end(), receipt.source) !=
      node_addresses.end()) {
    return {Outcome::kServedMasqueraded};
  }
  return {Outcome::kOther,
          absl::StrCat(NameOf(receipt.place), " saw ", receipt.source, " as its source")};
}

Verdict OfReceived(const Call& call, const std::vector<std::string>& node_addresses) {
  for (const Receipt& receipt : call.receipts) {
    if (receipt.place == call.receipts.front().place) continue;
    return {Outcome::kOther, "more than one place received it"};
  }
  const Place place = call.receipts.front().place;
  if (IsPod(place)) return ServedOrNot(call, node_addresses);
  return {place == Place::kNode ? Outcome::kReachedHost : Outcome::kForwarded};
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

}  // namespace

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

}  // namespace kipt::skew
