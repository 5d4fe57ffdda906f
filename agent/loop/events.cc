// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/events.h"

#include <cstddef>

namespace kipt::agent {

absl::string_view TriggerName(Trigger trigger) {
  constexpr absl::string_view kNames[] = {"start", "change", "timer", "retry", "config"};
  return kNames[static_cast<size_t>(trigger)];
}

}  // namespace kipt::agent
