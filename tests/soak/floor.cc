// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/floor.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace kipt::soak {
namespace {

constexpr int64_t kOnePacketIn = 50;
// Less than a third of what these come to on an idle machine.
constexpr absl::Duration kOneQuietMomentIn = absl::Seconds(30);
constexpr absl::Duration kOneRepairIn = absl::Seconds(20);
constexpr absl::Duration kOneAnswerIn = absl::Seconds(4);
constexpr absl::Duration kOneSampleIn = absl::Seconds(4);

int64_t OneIn(absl::Duration part, absl::Duration run) {
  return static_cast<int64_t>(absl::FDivDuration(run, part));
}

int64_t SamplesBetween(const NodeSummary& node, double from, double to) {
  int64_t count = 0;
  for (const Sample& sample : node.samples) {
    if (sample.at >= node.run * from && sample.at <= node.run * to) ++count;
  }
  return count;
}

}  // namespace

int64_t FloorOfPackets(Transport transport, const Options& options) {
  const absl::Duration between =
      transport == kUdp ? absl::Seconds(1) / options.packets_per_second : kBetweenConnections;
  return OneIn(kOnePacketIn * between, options.length);
}

void JudgeFloor(const NodeSummary& node, const Options& options, Journal& journal) {
  const auto expect = [&](const std::string& what, int64_t judged, int64_t floor) {
    if (judged >= floor) return;
    journal.Violate(node.name, "floor", absl::StrCat("proved nothing: ", judged, " ", what),
                    absl::StrCat("at least ", floor, " in ", absl::FormatDuration(options.length)));
  };
  for (const Transport transport : {kUdp, kTcp}) {
    for (unsigned i = 0; i < kGuards; ++i) {
      const Guard guard = static_cast<Guard>(i);
      if (!IsSent(transport, guard)) continue;
      const TrafficCount& count = node.traffic[transport][guard];
      expect(absl::StrCat("packets judged, ", NameOf(transport), " ", NameOf(guard), ", of ",
                          count.sent, " sent"),
             count.judged, FloorOfPackets(transport, options));
    }
  }
  const auto answered = node.counts.find("requests answered");
  expect("requests answered", answered == node.counts.end() ? 0 : answered->second,
         OneIn(kOneAnswerIn, options.length));
  expect("quiet moments", static_cast<int64_t>(node.quiet.size()),
         OneIn(kOneQuietMomentIn, options.length));
  expect("windows repaired", static_cast<int64_t>(node.repairs.size()),
         OneIn(kOneRepairIn, options.length));
  expect("samples of memory in the second quarter", SamplesBetween(node, 0.25, 0.5),
         OneIn(kOneSampleIn, options.length / 4));
  expect("samples of memory in the last quarter", SamplesBetween(node, 0.75, 1),
         OneIn(kOneSampleIn, options.length / 4));
}

}  // namespace kipt::soak
