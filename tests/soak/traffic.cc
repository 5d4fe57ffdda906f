// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/traffic.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace kipt::soak {
namespace {

using skew::Place;
using testing::IpFamily;

constexpr absl::Duration kJudgedAfter = absl::Seconds(3);
constexpr absl::Duration kBetweenCounts = absl::Milliseconds(100);
// What queues lose on a busy machine, of packets that must come.
constexpr double kMayBeLost = 0.1;
constexpr int64_t kJudgedTogether = 100;

bool MustCome(Guard guard) { return guard == kMasq4 || guard == kMasq6; }

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
  sum.sent_in_peace += more.sent_in_peace;
  sum.lost_in_peace += more.lost_in_peace;
}

}  // namespace

void Judge::Note(const char* of, Guard guard, Span span, const TrafficCount& count) {
  // Nothing is expected of them while their users are away.
  if (!node_.windows.ExpectedSince(guard, span.from)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  cases_.push_back({of, guard, span, count});
}

void Judge::Decide(bool everything) {
  for (;;) {
    Case one;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (cases_.empty()) return;
      if (!everything && cases_.front().span.to > absl::Now() - kJudgedAfter) return;
      one = cases_.front();
      cases_.pop_front();
    }
    const bool udp = one.of[0] == 'U';
    const absl::Duration excused = node_.windows.Excused(one.guard, one.span);
    if (excused == absl::ZeroDuration()) {
      one.count.sent_in_peace = one.count.sent;
      one.count.lost_in_peace = one.count.lost;
    }
    DecideWrong(one, excused);
    DecideLost(one, udp ? udp_peace_[one.guard] : tcp_peace_[one.guard]);
    const std::lock_guard<std::mutex> lock(mutex_);
    AddTo(udp ? udp_[one.guard] : tcp_[one.guard], one.count);
  }
}

void Judge::DecideWrong(const Case& one, absl::Duration excused) {
  if (one.count.wrong <= 0) return;
  const std::string when =
      absl::StrCat(NameOf(one.guard), ", ", one.of, ", of ", one.count.sent, " sent between ",
                   absl::FormatDuration(one.span.from - node_.journal.start()), " and ",
                   absl::FormatDuration(one.span.to - node_.journal.start()));
  node_.journal.Event(node_.name(), absl::StrCat(one.count.wrong, " wrong: ", when, ", excused ",
                                                 absl::FormatDuration(excused)));
  if (excused > absl::ZeroDuration()) return;
  node_.journal.Violate(node_.name(), "packets",
                        absl::StrCat(one.count.wrong, " came that must not: ", when),
                        "none: the rules were not away, and nobody was about to damage them");
}

// By the hundred, and by nothing but their share: of fewer, one that waits in a queue at the end of
// a span would weigh too much.
void Judge::DecideLost(const Case& one, Peace& peace) {
  if (peace.sent == 0) peace.from = one.span.from;
  peace.sent += one.count.sent_in_peace;
  peace.lost += one.count.lost_in_peace;
  if (peace.sent < kJudgedTogether) return;
  if (static_cast<double>(peace.lost) > static_cast<double>(peace.sent) * kMayBeLost) {
    node_.journal.Violate(
        node_.name(), "packets",
        absl::StrCat(peace.lost, " of ", peace.sent, " did not come: ", NameOf(one.guard), ", ",
                     one.of, ", between ", absl::FormatDuration(peace.from - node_.journal.start()),
                     " and ", absl::FormatDuration(one.span.to - node_.journal.start()),
                     ", of which nothing is excused"),
        absl::StrCat("at most one in ", 1 / kMayBeLost));
  }
  peace = {};
}

std::array<TrafficCount, kGuards> Judge::udp() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return udp_;
}
std::array<TrafficCount, kGuards> Judge::tcp() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return tcp_;
}

void SendDatagrams(Node& node, Judge& judge) {
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
      judge.Note("UDP", streams[i].guard, {from, absl::Now()},
                 CountOf(streams[i].guard, counts[i]));
    }
    from = to;
    judge.Decide(false);
  }
}

}  // namespace kipt::soak
