// SPDX-License-Identifier: Apache-2.0
//
// What happens to the daemon itself.
#ifndef KIPT_TESTS_SOAK_DISTURBANCES_H_
#define KIPT_TESTS_SOAK_DISTURBANCES_H_

#include <atomic>
#include <string>

#include "tests/soak/daemon.h"
#include "tests/soak/node.h"

namespace kipt::soak {

// Starts the daemon, and until the node has ended: reloads with another configuration, flips of the
// gate, invalid configurations, kills, stops, the lock held, its socket overflowed. Then ends it by
// SIGTERM. `started` is set when the daemon was ready for the first time.
void Disturb(Node& node, Daemon& daemon, std::atomic<bool>& started);

// What is wrong with how the daemon ended on `signal`, and with how often it has taken a
// configuration after one more, valid or not, was written. "" where nothing is.
std::string ExitFault(int exit_code, int signal);
std::string ReloadFault(int taken_before, int taken_after, bool valid);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_DISTURBANCES_H_
