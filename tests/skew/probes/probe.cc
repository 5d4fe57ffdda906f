// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/probe.h"

namespace kipt::skew {

const char* NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kServed:
      return "served";
    case Outcome::kServedMasqueraded:
      return "masqueraded";
    case Outcome::kDropped:
      return "dropped";
    case Outcome::kRejected:
      return "rejected";
    case Outcome::kReachedHost:
      return "reached the host";
    case Outcome::kForwarded:
      return "forwarded";
    case Outcome::kLost:
      return "lost";
    case Outcome::kOther:
      return "other";
  }
  return "?";
}

}  // namespace kipt::skew
