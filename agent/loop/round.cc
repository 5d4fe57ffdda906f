// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/round.h"

namespace kipt::agent {

absl::string_view TriggerName(Trigger trigger) {
  switch (trigger) {
    case Trigger::kStart:
      return "start";
    case Trigger::kChange:
      return "change";
    case Trigger::kTimer:
      return "timer";
    case Trigger::kRetry:
      return "retry";
    case Trigger::kConfig:
      return "config";
  }
  return "unknown";
}

}  // namespace kipt::agent
