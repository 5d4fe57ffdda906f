// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/writer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/netns.h"

namespace kipt::soak {
namespace {

constexpr absl::Duration kNap = absl::Milliseconds(30);

// As long as between two calls at a telephone exchange.
absl::Duration PauseOf(const Writer& writer, Random& random) {
  const double uniform = std::uniform_real_distribution<double>(0.0, 1.0)(random);
  return std::min(-std::log(1.0 - uniform) * writer.pause(), 4 * writer.pause());
}

}  // namespace

void Run(Writer& writer, Node& node) {
  const testing::InNetns inside(node.netns());
  Random random = node.RandomOf(writer.name());
  while (!node.ended) {
    const absl::Time next = absl::Now() + PauseOf(writer, random);
    while (!node.ended && !writer.Hurries(node) && (node.calm || absl::Now() < next)) {
      absl::SleepFor(kNap);
    }
    // Not at once again: what hindered it may still do so.
    if (writer.Hurries(node)) absl::SleepFor(kNap);
    if (node.ended) return;
    const std::string done = writer.Act(node, random);
    if (done.empty()) continue;
    node.journal.Event(node.name(), absl::StrCat(writer.name(), ": ", done));
    node.journal.Count(node.name(), absl::StrCat("acts of ", writer.name()));
  }
}

}  // namespace kipt::soak
