// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/traffic.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/skew/probes/stream.h"

namespace kipt::soak {
namespace {

using skew::Place;
using testing::IpFamily;

constexpr absl::Duration kJudgedAfter = absl::Seconds(3);
constexpr absl::Duration kBetweenCounts = absl::Milliseconds(100);
// One packet in a thousand may be lost.
constexpr int64_t kOneMayBeLostOf = 1000;

struct Stream {
  Guard guard;
  skew::Probe probe;
};

std::vector<Stream> TheStreams() {
  std::vector<Stream> streams;
  for (const IpFamily family : testing::kBothFamilies) {
    const bool v4 = family == IpFamily::kIpv4;
    skew::Probe probe = {.name = absl::StrCat("masquerade/", NameOf(family)),
                         .family = family,
                         .protocol = skew::Protocol::kUdp,
                         .from = Place::kRefusedClient,
                         .address = AddressOf(Place::kPodA, family),
                         .port = kMasqPort};
    streams.push_back({v4 ? kMasq4 : kMasq6, probe});
    probe.name = absl::StrCat("drop/", NameOf(family));
    probe.address = AddressOf(Place::kNode, family);
    probe.port = kDropPort;
    streams.push_back({v4 ? kDrop4 : kDrop6, probe});
  }
  streams.push_back({kMartian,
                     {.name = "martian",
                      .kind = skew::ProbeKind::kMartian,
                      .family = IpFamily::kIpv4,
                      .protocol = skew::Protocol::kUdp,
                      .from = Place::kRefusedClient,
                      .address = "127.0.0.1",
                      .port = kMartianPort}});
  return streams;
}

TrafficCount CountOf(Guard guard, const skew::StreamCount& count) {
  TrafficCount result;
  result.sent = static_cast<int64_t>(count.sent);
  const auto elsewhere = static_cast<int64_t>(count.reached_host + count.forwarded);
  const auto unmasqueraded = static_cast<int64_t>(count.served);
  const auto masqueraded = static_cast<int64_t>(count.served_masqueraded);
  if (MustCome(guard)) {
    result.right = masqueraded;
    result.wrong = unmasqueraded + elsewhere;
    result.lost = result.sent - result.right - result.wrong;
  } else {
    result.wrong = elsewhere + unmasqueraded + masqueraded;
    result.right = result.sent - result.wrong;
  }
  return result;
}

void AddTo(TrafficCount& sum, const TrafficCount& more) {
  sum.sent += more.sent;
  sum.right += more.right;
  sum.wrong += more.wrong;
  sum.lost += more.lost;
  sum.judged += more.judged;
  sum.judged_lost += more.judged_lost;
}

}  // namespace

const char* NameOf(Transport transport) { return transport == kUdp ? "UDP" : "TCP"; }

void TrafficJudge::Note(Transport transport, Guard guard, Span span, const TrafficCount& count) {
  const bool expected = windows_.ExpectedSince(guard, span.from);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (count.wrong > 0 || (MustCome(guard) && count.right > 0)) heard_[transport][guard] = true;
  if (expected) cases_.push_back({transport, guard, span, count});
}

void TrafficJudge::Decide(bool everything) {
  for (;;) {
    Case one;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (cases_.empty()) break;
      if (!everything && cases_.front().span.to > absl::Now() - kJudgedAfter) return;
      one = cases_.front();
      cases_.pop_front();
    }
    DecideOne(std::move(one));
  }
  if (!everything) return;
  for (const Transport transport : {kUdp, kTcp}) {
    for (unsigned i = 0; i < kGuards; ++i) {
      DecideLost(transport, static_cast<Guard>(i), batches_[transport][i]);
    }
  }
}

void TrafficJudge::DecideOne(Case one) {
  const absl::Duration excused = windows_.Excused(one.guard, one.span);
  DecideWrong(one, excused);
  if (excused == absl::ZeroDuration()) {
    one.count.judged = one.count.sent;
    one.count.judged_lost = one.count.lost;
    Batch& batch = batches_[one.transport][one.guard];
    if (batch.sent == 0) batch.span.from = one.span.from;
    batch.span.to = one.span.to;
    batch.sent += one.count.sent;
    batch.lost += one.count.lost;
    if (batch.sent >= kOneMayBeLostOf) DecideLost(one.transport, one.guard, batch);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  AddTo(counts_[one.transport][one.guard], one.count);
}

std::string TrafficJudge::Text(Span span) const {
  return absl::StrCat("between ", absl::FormatDuration(span.from - journal_.start()), " and ",
                      absl::FormatDuration(span.to - journal_.start()));
}

void TrafficJudge::DecideWrong(const Case& one, absl::Duration excused) {
  if (one.count.wrong <= 0) return;
  const std::string when = absl::StrCat(NameOf(one.guard), ", ", NameOf(one.transport), ", of ",
                                        one.count.sent, " sent ", Text(one.span));
  journal_.Event(node_, absl::StrCat(one.count.wrong, " wrong: ", when, ", excused ",
                                     absl::FormatDuration(excused)));
  if (excused > absl::ZeroDuration()) return;
  journal_.Violate(node_, "packets", absl::StrCat(one.count.wrong, " came that must not: ", when),
                   "none: the rules existed, and no writer was about to damage them");
}

// A batch of fewer than a thousand, which the end of the run has cut short, may lose none.
void TrafficJudge::DecideLost(Transport transport, Guard guard, Batch& batch) {
  if (batch.lost * kOneMayBeLostOf > batch.sent) {
    journal_.Violate(
        node_, "loss",
        absl::StrCat(batch.lost, " of ", batch.sent, " did not come: ", NameOf(guard), ", ",
                     NameOf(transport), ", ", Text(batch.span), ", without what is excused"),
        absl::StrCat("at most one in ", kOneMayBeLostOf));
  }
  batch = {};
}

TrafficCounts TrafficJudge::counts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

bool TrafficJudge::WasHeard(Transport transport, Guard guard) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return heard_[transport][guard];
}

void SendDatagrams(Node& node, TrafficJudge& judge) {
  const std::vector<Stream> streams = TheStreams();
  std::vector<skew::Probe> probes;
  for (const Stream& stream : streams) probes.push_back(stream.probe);
  const auto sending =
      skew::Streams::Start(node.place(), probes,
                           {{Place::kPodA, {kMasqPort}}, {Place::kNode, {kDropPort, kMartianPort}}},
                           node.options().packets_per_second);
  if (!sending.ok()) {
    node.journal.Violate(node.name(), "harness", std::string(sending.status().message()),
                         "packets can be sent");
    return;
  }
  absl::Time from = absl::Now();
  while (!node.ended) {
    absl::SleepFor(kBetweenCounts);
    const absl::Time to = absl::Now();
    const std::vector<skew::StreamCount> counts = (*sending)->Take();
    for (size_t i = 0; i < streams.size(); ++i) {
      judge.Note(kUdp, streams[i].guard, {from, absl::Now()}, CountOf(streams[i].guard, counts[i]));
    }
    from = to;
    judge.Decide(false);
  }
}

}  // namespace kipt::soak
