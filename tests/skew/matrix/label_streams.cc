// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/label_streams.h"

#include <cstdint>

namespace kipt::skew {

StreamCheck JudgeLabelStream(const FamilyFacts& before, const FamilyFacts& after,
                             const StreamQuestion& question, const StreamCount& count) {
  const bool labelled = before.LabelsWork() && after.LabelsWork();
  const bool unlabelled = !before.LabelsWork() && !after.LabelsWork();
  const bool drop = question.labelled == Outcome::kDropped;
  const uint64_t served = count.served + count.served_masqueraded;
  const uint64_t elsewhere = count.reached_host + count.forwarded;
  StreamCheck check;
  check.count = count;
  if (unlabelled) {
    check.rule = "nothing labels it: every packet is served, as itself";
    check.bad = count.sent - count.served;
  } else if (labelled && drop) {
    check.rule = "labelled: no packet is received by anybody";
    check.bad = served + elsewhere;
  } else if (labelled) {
    check.rule = "labelled: every packet is served, masqueraded";
    check.bad = count.sent - count.served_masqueraded;
  } else if (drop) {
    check.rule = "labelled for a part of the time: every packet is served as itself, or dropped";
    check.bad = count.served_masqueraded + elsewhere;
  } else {
    check.rule = "labelled for a part of the time: every packet is served";
    check.bad = count.sent - served;
  }
  return check;
}

}  // namespace kipt::skew
